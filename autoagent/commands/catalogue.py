"""Which commands there are, which of them this machine and these settings allow, and which suit the goals."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from autoagent.commands.registry import Command, Registry
from autoagent.errors import SettingsError
from autoagent.messages import Goal
from autoagent.settings import Settings
from autoagent.window import SMALL_WINDOW

# Each is a module with its commands; those of the web are in two.
MODULES = ("files", "code", "web", "web_download", "git", "media", "agents", "memory", "system")
CATEGORIES = tuple(module for module in MODULES if module != "web_download")

# Always offered; the others of a small window's choice come by the words of the goals.
_CORE = ("read_file", "write_to_file", "list_files", "task_complete")
_WORDS = {
    "append_to_file": ("append", "add ", "log", "end of", "diary", "journal"),
    "edit_file": ("edit", "change", "fix", "replace", "rename", "update", "correct"),
    "delete_file": ("delete", "remove", "clean"),
    "search_in_files": ("search", "find", "where", "grep", "look for"),
    "execute_python_code": ("run", "execute", "python", "script", "program", "compute", "calculate"),
    "execute_python_file": ("run", "execute", "python", "script", "program"),
    "execute_shell": ("run", "shell", "command", "test", "build", "install", "git"),
    "execute_shell_popen": ("server", "background", "serve"),
    "list_programs": ("server", "background", "serve"),
    "stop_program": ("server", "background", "serve"),
    "analyze_code": ("analyse", "analyze", "review"),
    "improve_code": ("improve",),
    "write_tests": ("test",),
    "web_search": ("web", "search", "internet", "online", "research", "look up", "find out"),
    "browse_website": ("web", "page", "site", "http", "www", "url", "internet", "online", "research"),
    "get_hyperlinks": ("link",),
    "get_text_summary": ("summar",),
    "download_file": ("download",),
    "clone_repository": ("clone", "repository", "git"),
    "generate_image": ("image", "picture", "draw"),
    "read_audio_from_file": ("audio", "recording", "transcribe"),
    "send_tweet": ("tweet", "twitter"),
    "start_agent": ("agent", "delegate"),
    "message_agent": ("agent", "delegate"),
    "list_agents": ("agent", "delegate"),
    "memory_add": ("remember", "memory", "memorise", "memorize", "later"),
    "recall": ("remember", "memory", "recall"),
    "ask_user": ("ask", "user"),
}


def all_commands() -> tuple[Command, ...]:
    """Every command, in the order of the prompt."""
    modules = [import_module(f"autoagent.commands.{module}") for module in MODULES]
    return tuple(command for module in modules for command in module.COMMANDS)


def available(settings: Settings) -> Registry:
    """The commands that can be used with these settings; the others are known with the reason why not."""
    usable, reasons = [], {}
    for command in all_commands():
        spec = command.spec
        if spec.category in settings.disabled_command_categories:
            reason = f"the category {spec.category} is switched off (DISABLED_COMMAND_CATEGORIES)"
        else:
            reason = command.available(settings) if command.available else ""
        if reason:
            reasons.update(dict.fromkeys((spec.name, *spec.aliases), reason))
        else:
            usable.append(command)
    return Registry(usable, reasons)


def choose(registry: Registry, wanted: Sequence[str], goals: Sequence[Goal], window: int) -> Registry:
    """The commands to offer: those the user names (names or categories, `all`), or for a small window those that fit
    the goals, or all. `task_complete` is always among them.

    Raises SettingsError for a wanted name that is neither a command nor a category.
    """
    names = [spec.name for spec in registry.specs]
    if wanted and "all" not in wanted:
        by_category = {c: [s.name for s in registry.specs if s.category == c] for c in CATEGORIES}
        for name in wanted:
            if name not in by_category and name not in names:
                reason = registry.switched_off.get(name, f"there is neither a command nor a category {name!r}")
                raise SettingsError(f"--commands: {reason}; `autoagent commands` lists them.")
        names = [n for name in wanted for n in by_category.get(name, [name])] + ["task_complete"]
    elif not wanted and window < SMALL_WINDOW:
        text = " ".join(goal.text for goal in goals).lower()
        names = [n for n in names if n in _CORE or any(word in text for word in _WORDS.get(n, ()))]
    return registry.only(names, "it is not offered in this run")
