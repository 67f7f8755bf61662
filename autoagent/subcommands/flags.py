"""Declare the flags of a run once. Each parameter has the name of the setting that it sets (see Settings)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

import click

NO_LIMIT = "none"


class _LimitType(click.ParamType[float]):
    """Parse an amount, called `name` in errors. 0 and `none` lift the limit. `nan` and `inf` are rejected."""

    def __init__(self, name: str, number: click.ParamType[float]) -> None:
        self.name = number.name = f"{name}; 'none' lifts the limit"  # as in click's error: 'much' is not a valid ...
        self._number = number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if value == NO_LIMIT:
            return 0
        number = self._number.convert(value, param, ctx)
        if number != number or number == float("inf"):
            self.fail(f"{value} is not an amount.", param, ctx)
        return number


_AMOUNT, _TOKENS = _LimitType("number", click.FloatRange(min=0)), _LimitType("integer", click.IntRange(min=0))


class _FutureTime(click.ParamType[float]):
    """Parse a time in the future into seconds since the epoch."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        import time

        from autoagent.text.figures import parse_time

        try:
            return parse_time(str(value), time.time())
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


def run_ids_here(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the runs of the state folder, newest first, for shell completion, except names that no run can have."""
    from pathlib import Path

    state_dir = (ctx.obj or {}).get("state_dir") or os.environ.get("AUTOAGENT_STATE_DIR") or ".autoagent"
    runs = (path.name for path in (Path(state_dir) / "runs").glob("*") if re.fullmatch(r"[\w-]+", path.name, re.ASCII))
    return sorted((run for run in runs if run.startswith(incomplete)), reverse=True)


def command_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the agent's commands, for shell completion."""
    from autoagent.commands.selection import all_names

    return sorted(name for name in all_names() if name.startswith(incomplete))


def _model_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return possible model names without asking an endpoint, for shell completion."""
    from autoagent.models.pricing import chat_model_names
    from autoagent.registry.models import PROVIDERS

    return [name for name in [*PROVIDERS.names(), *chat_model_names()] if name.startswith(incomplete)]


class _RegistryOption(click.Option):
    """End the option's help with the choices of a registry, imported only to show them.

    `choices` is the function of the registry that lists them, as `module:function`.
    """

    def __init__(self, *args: Any, choices: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._choices = choices

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        names, text = super().get_help_record(ctx) or ("", "")
        choices = resolve_name(f"autoagent.registry.{self._choices}")()
        return names, f"{text}: {choices}." if text else f"{choices}."


_AGENT_FLAGS = (
    click.option("--ai-name", metavar="TEXT", help="Name of the agent."),
    click.option("--ai-role", metavar="TEXT", help="Role of the agent, after 'You are NAME,'."),
    click.option("--ai-goal", "ai_goals", multiple=True, metavar="TEXT",
                 help="A goal, or `goal :: command that checks it`; one to five times."),
)  # fmt: skip
_WORKSPACE_FLAG = click.option("-w", "--workspace-directory", "workspace", metavar="DIR",
                               help="Default: ./autoagent_workspace; for a task in a project, its folder.")  # fmt: skip
_TASK_FLAGS = (
    click.option("-C", "--ai-settings", "ai_settings_file", metavar="FILE", help="Default: ai_settings.yaml."),
    click.option("-P", "--prompt-settings", "prompt_settings_file", metavar="FILE",
                 help="Constraints, resources and best practices to use instead of the defaults."),
    click.option("-y", "--skip-reprompt", is_flag=True, help="Use saved settings without asking."),
    _WORKSPACE_FLAG,
    click.option("-r", "--resume", "newest", is_flag=True, help="Continue the newest run, or give it a new task."),
    click.option("--demo", is_flag=True, help="Play a scripted run: no key, no model, nothing to download."),
)  # fmt: skip
_RUN_FLAGS = (
    click.option("-c", "--continuous", is_flag=True, default=None, help="Run without asking (warns first)."),
    click.option("-l", "--continuous-limit", type=click.IntRange(min=1), metavar="N",
                 help="With -c: at most N commands, and 2 N + 3 requests to the model."),
    click.option("--hierarchical", is_flag=True, default=None,
                 help="A planner gives tasks to executors, which ask a thinker (docs/hierarchy.md)."),
    click.option("--model", metavar="NAME",
                 cls=_RegistryOption, choices="models:model_forms", shell_complete=_model_names),
    click.option("--gpt3only", is_flag=True, help="Use the fast model for everything."),
    click.option("--gpt4only", is_flag=True, help="Use the smart model for everything."),
    click.option("-m", "--use-memory", "memory_backend", metavar="NAME",
                 cls=_RegistryOption, choices="memory:backend_names", help="Memory backend"),
    click.option("--memory", "memory_trust", type=click.Choice(["all", "trusted"]),
                 help="trusted: recall no text from outside; the default if commands can reach out."),
    click.option("--distil", "memory_distil", type=click.Choice(["on", "off"]),
                 help="off: at the end, do not ask the model for facts to remember."),
    click.option("--allow", multiple=True, metavar="RULE", shell_complete=command_names,
                 help="Run matching calls without asking: COMMAND or COMMAND:PATTERN, such as write_to_file:notes/*."),
    click.option("--sandbox", metavar="NAME", cls=_RegistryOption, choices="sandbox:sandbox_names",
                 help="Sandbox for programs that the agent starts (auto: the strongest that works here)"),
    click.option("--require-sandbox", is_flag=True, default=None, help="Stop if no sandbox works."),
    click.option("-b", "--browser-name", metavar="NAME",
                 help="chromium or firefox: read pages through a headless browser."),
    click.option("--allow-downloads", is_flag=True, default=None, help="Let the agent download files."),
    click.option("--speak", is_flag=True, default=None, help="Speak the agent's words aloud."),
    click.option("--commands", metavar="NAMES", shell_complete=command_names,
                 help="Commands or categories to offer, comma-separated, or all."),
    click.option("--base-url", "openai_base_url", metavar="URL", help="The address of an OpenAI-compatible endpoint."),
    click.option("--verify/--no-verify", default=None, help="Have a verifier judge the goals before the run ends."),
    click.option("--accept-claims", is_flag=True, default=None,
                 help="Accept goals that only the agent says are met."),
    click.option("--budget", type=_AMOUNT, metavar="USD",
                 help="Stop before spending more than this; 'none' lifts the limit."),
    click.option("--max-tokens", type=_TOKENS, metavar="N", help="Stop before using more than N tokens."),
    click.option("--max-seconds", type=_AMOUNT, metavar="S",
                 help="Stop after S seconds of work, not counting the time you take to answer."),
    click.option("--deadline", type=_FutureTime(), metavar="TIME",
                 help="Stop at this time: 18:00 (the next), 2026-11-23T08:00, or 2h30m from now."),
    click.option("--patience", type=click.IntRange(min=1), metavar="S",
                 help="Seconds to keep retrying a failing endpoint. Default: 600 with -c, else 60."),
    click.option("--context", type=_TOKENS, metavar="N",
                 help="Tokens of history in a prompt; 0: the whole window. Default: 24000."),
)  # fmt: skip
_SCREEN_FLAGS = (
    click.option("--name", "run_name", metavar="TEXT", help="The name of this run in `autoagent runs`."),
    click.option("--json", "json_output", is_flag=True, help="Print one event per line on stdout, all else on stderr."),
    click.option("--notify", metavar="CMD",
                 help="Run this command when a question has waited 10 s and at the end, with JSON on its input."),
    click.option("--thoughts", type=click.Choice(["auto", "full", "short", "none"]),
                 help="auto: the first in full, the rest in one line; full: all; short: one line in all; none."),
    click.option("--answer-timeout", type=_AMOUNT, metavar="S",
                 help="Seconds that a question waits for an answer, here or by `autoagent answer`."),
    click.option("--if-unanswered", type=click.Choice(["end", "go-on"]),
                 help="What the run does after that. Default: end, or go-on with -c."),
    click.option("--plain", "plain_output", is_flag=True, default=None, help="Show no colours and no live lines."),
)  # fmt: skip
_AUTOGPT_FLAGS = (  # accepted so that AutoGPT's command lines work; those without effect are reported at the start
    click.option("--install-plugin-deps", is_flag=True,
                 help="Install the requirements of enabled plug-ins, in an environment of their own."),
    click.option("--skip-news", is_flag=True, help="No effect: there is no news to skip."),
)  # fmt: skip


_NEGATABLE = ("verify",)  # flags with a form --no-..., whose False is a choice


def _store(ctx: click.Context, flag: click.Parameter, value: Any) -> None:
    if value is not None:
        ctx.obj = {**(ctx.obj or {}), flag.name: value}


_COMMON_FLAGS = (  # accepted before and after the name of every subcommand, and stored in `ctx.obj`
    click.option("--state-dir", metavar="DIR", expose_value=False, callback=_store,
                 help="Runs and memory. Default: ./.autoagent."),
    click.option("--debug", is_flag=True, default=None, expose_value=False, callback=_store, help="Show tracebacks."),
)  # fmt: skip


def is_task(text: str) -> bool:
    """Return whether an argument can only be a task: no subcommand and no run has spaces, or letters beyond ASCII."""
    return len(text.split()) > 1 or not text.isascii()


def merge_flags(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the flags that were given; later layers win. A 0 counts as given, since it lifts a limit."""
    return {
        name: value
        for flags in layers
        for name, value in flags.items()
        if value is not None and value not in ("", ()) and (value is not False or name in _NEGATABLE)
    }


def flags(*groups: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    """Combine groups of options into one decorator."""

    def decorate(function: Any) -> Any:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


run_flags = flags(_AGENT_FLAGS, _TASK_FLAGS, _RUN_FLAGS, _SCREEN_FLAGS, _AUTOGPT_FLAGS)
resume_flags = flags(_AGENT_FLAGS, _RUN_FLAGS, _SCREEN_FLAGS)
serve_flags = flags((_WORKSPACE_FLAG,), _RUN_FLAGS)
fleet_flags = flags(_RUN_FLAGS, _SCREEN_FLAGS)
team_flags = flags((_WORKSPACE_FLAG,), _RUN_FLAGS, _SCREEN_FLAGS)
common_flags = flags(_COMMON_FLAGS)
