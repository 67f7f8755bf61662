"""Uses what AutoGPT itself has."""

import os

from auto_gpt_plugin_template import AutoGPTPluginTemplate
from autogpt.commands.command import command
from autogpt.commands.file_operations import append_to_file, read_file, write_to_file
from autogpt.config import Config
from autogpt.config.config import Config as SameConfig
from autogpt.llm.utils import create_chat_completion
from autogpt.logs import logger
from autogpt.models.command import Command
from autogpt.singleton import AbstractSingleton, Singleton
from autogpt.token_counter import count_string_tokens
from autogpt.workspace import path_in_workspace

CFG = Config()


class Once(AbstractSingleton, metaclass=Singleton):
    pass


@command("decorated", "Decorated")
def decorated(word: str) -> str:
    return word.upper()


class Borrower(AutoGPTPluginTemplate):
    def can_handle_post_prompt(self):
        return True

    def post_prompt(self, prompt):
        prompt.add_command("Borrow", "borrow", {}, self.borrow)
        prompt.command_registry.register(Command(name="shout", description="Shout", method=decorated))

    def borrow(self):
        assert Once() is Once() and SameConfig() is CFG
        logger.typewriter_log("BORROWED", content="something")
        write_to_file("made.txt", "one")
        append_to_file("made.txt", " two")
        answer = create_chat_completion([{"role": "user", "content": "Which day is it?"}], model=CFG.fast_llm)
        try:
            path_in_workspace("../../etc/passwd")
        except ValueError:
            refused = "outside is refused"
        try:
            read_file("../secret.txt")
        except Exception as error:
            refused += f", and so is {error}"
        own = CFG.plugins_config.plugins["borrower"].config["colour"]
        return [
            read_file("made.txt"),
            answer,
            refused,
            own,
            CFG.workspace_path,
            str(CFG.no_such_thing),
            str(count_string_tokens("four tokens long", "gpt-4")),
            ",".join(sorted(os.environ)),
        ]
