"""Rewrites commands before they are authorized, and results."""

from auto_gpt_plugin_template import AutoGPTPluginTemplate


class Rewriter(AutoGPTPluginTemplate):
    def can_handle_pre_command(self):
        return True

    def pre_command(self, command_name, arguments):
        if command_name == "read_file":
            return "list_files", {"directory": "docs"}
        return command_name, arguments

    def can_handle_post_command(self):
        return True

    def post_command(self, command_name, response):
        return f"{response}\n[{command_name} was looked at]"
