"""Answers in the place of the model."""

import json

from auto_gpt_plugin_template import AutoGPTPluginTemplate


class Oracle(AutoGPTPluginTemplate):
    def can_handle_chat_completion(self, messages, model, temperature, max_tokens):
        return True

    def handle_chat_completion(self, messages, model, temperature, max_tokens):
        assert model and max_tokens > 0
        command = {"name": "task_complete", "args": {"reason": "The oracle has spoken."}}
        return json.dumps({"thoughts": {"text": messages[0]["content"][:20]}, "command": command})
