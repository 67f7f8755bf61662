"""Answers for the user and is reported to, as from a chat."""

from auto_gpt_plugin_template import AutoGPTPluginTemplate


class Chatty(AutoGPTPluginTemplate):
    def can_handle_user_input(self, user_input):
        return True

    def user_input(self, user_input):
        print("asked:", user_input)
        return "Yes" if "list_files" in user_input or "task_complete" in user_input else "Use list_files."

    def can_handle_report(self):
        return True

    def report(self, message):
        print("reported:", message)
