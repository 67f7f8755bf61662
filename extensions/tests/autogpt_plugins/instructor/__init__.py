"""Adds to what is said to other agents, and to what they say."""

from auto_gpt_plugin_template import AutoGPTPluginTemplate


class Instructor(AutoGPTPluginTemplate):
    def can_handle_pre_instruction(self):
        return True

    def pre_instruction(self, messages):
        return [{"role": "system", "content": "Speak softly."}]

    def can_handle_on_instruction(self):
        return True

    def on_instruction(self, messages):
        return f"It was told {len(messages)} things."

    def can_handle_post_instruction(self):
        return True

    def post_instruction(self, response):
        return response.upper()
