"""Shaped like published search and task plug-ins: an import with a fallback, labels before or after names."""

import os

from auto_gpt_plugin_template import AutoGPTPluginTemplate

try:
    from .almanac import Almanac
except ImportError:
    from almanac import Almanac


class AlmanacPlugin(AutoGPTPluginTemplate):
    def __init__(self):
        super().__init__()
        self._name, self._version, self._description = "Almanac", "0.1.0", "Looks things up."
        self.almanac = Almanac(os.getenv("ALMANAC_KEY"))

    def can_handle_post_prompt(self) -> bool:
        return True

    def can_handle_report(self) -> bool:
        return False

    def post_prompt(self, prompt):
        if not self.almanac.key:
            print("Almanac: no key")
            return prompt
        prompt.add_command("look_up", "Look up", {"query": "<query>"}, self.almanac.look_up)
        prompt.add_command("Add a task", "add_task", {"task_id": "<int>"}, self.almanac.add_task)
        prompt.add_command("improve_plan", "Improves the plan", {}, self.almanac.improve_plan)
        prompt.add_command("lost", "Is not there", {}, no_such_function)  # noqa: F821 - as one of the published does
        return prompt
