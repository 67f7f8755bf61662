"""Has every method of the published template, with its signature."""

import json
from typing import Any

from auto_gpt_plugin_template import AutoGPTPluginTemplate
from autogpt.config import Config
from autogpt.config.ai_config import AIConfig

SETTINGS = AIConfig.load(Config().ai_settings_file)


class Herald(AutoGPTPluginTemplate):
    def can_handle_on_response(self) -> bool:
        return False

    def on_response(self, response: str, *args, **kwargs) -> str:
        pass

    def can_handle_post_prompt(self) -> bool:
        return False

    def post_prompt(self, prompt):
        pass

    def can_handle_on_planning(self) -> bool:
        return False

    def on_planning(self, prompt, messages: list[dict]) -> str | None:
        pass

    def can_handle_post_planning(self) -> bool:
        return False

    def post_planning(self, response: str) -> str:
        pass

    def can_handle_pre_instruction(self) -> bool:
        return False

    def pre_instruction(self, messages: list[dict]) -> list[dict]:
        pass

    def can_handle_on_instruction(self) -> bool:
        return False

    def on_instruction(self, messages: list[dict]) -> str | None:
        pass

    def can_handle_post_instruction(self) -> bool:
        return False

    def post_instruction(self, response: str) -> str:
        pass

    def can_handle_pre_command(self) -> bool:
        return False

    def pre_command(self, command_name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        pass

    def can_handle_post_command(self) -> bool:
        return False

    def post_command(self, command_name: str, response: str) -> str:
        pass

    def can_handle_chat_completion(
        self, messages: dict[Any, Any], model: str, temperature: float, max_tokens: int
    ) -> bool:
        return True

    def handle_chat_completion(self, messages: list[dict], model: str, temperature: float, max_tokens: int) -> str:
        goals = "; ".join(SETTINGS.ai_goals)
        return json.dumps({"thoughts": {"text": goals}, "command": {"name": "list_files", "args": {}}})

    def can_handle_text_embedding(self, text: str) -> bool:
        return False

    def handle_text_embedding(self, text: str) -> list:
        pass

    def can_handle_user_input(self, user_input: str) -> bool:
        return True

    def user_input(self, user_input: str) -> str:
        return "Do something else."

    def can_handle_report(self) -> bool:
        return True

    def report(self, message: str) -> None:
        print("reported:", message)
