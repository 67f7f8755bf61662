"""Hears every reply; two classes in one package, one of which does nothing."""

from auto_gpt_plugin_template import AutoGPTPluginTemplate

from .words import WRONG


class EchoPlugin(AutoGPTPluginTemplate):
    def can_handle_on_response(self):
        return True

    def on_response(self, response, *args, **kwargs):
        return response.replace(WRONG, "read_it")


class Idle(AutoGPTPluginTemplate):
    """Has none of the hooks, and says None where it is asked."""

    def can_handle_on_response(self):
        return True

    def on_response(self, response, *args, **kwargs):
        return None
