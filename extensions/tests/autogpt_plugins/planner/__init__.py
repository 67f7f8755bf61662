"""Says something before each step, and corrects a name in the reply."""

from auto_gpt_plugin_template import AutoGPTPluginTemplate


class Planner(AutoGPTPluginTemplate):
    def can_handle_on_planning(self):
        return True

    def on_planning(self, prompt, messages):
        assert messages[0]["role"] == "system" and prompt.goals
        return "The ferry is late today."

    def can_handle_post_planning(self):
        return True

    def post_planning(self, response):
        return response.replace("read_it", "read_file")
