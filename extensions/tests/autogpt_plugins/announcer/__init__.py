"""Adds to every part of the prompt, and a command."""

from auto_gpt_plugin_template import AutoGPTPluginTemplate


class Announcer(AutoGPTPluginTemplate):
    def __init__(self):
        super().__init__()
        self._name, self._version, self._description = "Announcer", "1.2.3", "Says hello."

    def can_handle_post_prompt(self):
        return True

    def post_prompt(self, prompt):
        assert prompt.goals and prompt.name and "thoughts" in str(prompt.response_format)
        prompt.add_constraint("Be kind to plug-ins.")
        prompt.add_resource("A plug-in that says hello.")
        prompt.add_performance_evaluation("Greet often.")
        prompt.goals.append("Greet the user")
        prompt.role = f"{prompt.role} and greets"
        prompt.add_command("Say hello to somebody", "say_hello", {"name": "<who>", "times": "<how often>"}, self.hello)
        prompt.add_command("Write it", "write_to_file", {"text": "<text>"}, self.hello)  # a name that is taken
        return prompt

    def hello(self, name, times: int = 1):
        print("this goes to the log")
        return " ".join([f"hello {name}"] * times)
