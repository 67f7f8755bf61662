"""Embeds texts."""

from auto_gpt_plugin_template import AutoGPTPluginTemplate


class Vectors(AutoGPTPluginTemplate):
    def can_handle_text_embedding(self, text):
        return True

    def handle_text_embedding(self, text):
        print("embedded:", text.split("\n")[0])
        return [len(text), text.count("e"), 1.0, 0.5]
