"""Has the name of the package that it needs, and reads a variable that it cannot do without."""

import os

from auto_gpt_plugin_template import AutoGPTPluginTemplate

from .lamp import Bulb


class Lantern(AutoGPTPluginTemplate):
    def can_handle_post_prompt(self):
        return True

    def can_handle_user_input(self, user_input):
        return ask_first  # noqa: F821 - as one of the published does

    def post_prompt(self, prompt):
        prompt.add_command("shine", "Shine", {}, Bulb(os.environ["LANTERN_TOKEN"]).shine)
        return prompt
