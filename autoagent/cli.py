"""The command line: the root command, its flags, the way from every error to one line and an exit code.

Nothing but click is imported before it is known what the user wants: `--help` and the first question do not wait
for the rest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from io import StringIO
from typing import Any, TextIO

import click

from autoagent import __version__
from autoagent.utf8_mode import restart_in_utf8_mode, use_encoding_of_terminal

EXIT_CODES = {
    "finished": 0,
    "failed": 1,
    "setup": 3,
    "limit": 4,
    "unanswered": 5,
    "stopped": 6,
    "budget": 7,
    "stuck": 8,
    "interrupted": 130,
}

# name -> (its module, what the overview says of it); the command object has the name of the subcommand
SUBCOMMANDS = {
    "run": ("run", "Start the agent (the same as no subcommand)."),
    "resume": ("resume", "Take up an unfinished run where it stopped, or from an earlier step."),
    "fork": ("fork", "Start a new run from a step of another one."),
    "undo": ("undo", "Take the workspace back to what it was before a step."),
    "replay": ("replay", "Show a run again step by step, or verify that its log explains every prompt."),
    "bisect": ("bisect", "Find the first step after which a check fails."),
    "runs": ("runs", "List the runs."),
    "show": ("runs", "Show a run from its log."),
    "why": ("why", "Show which memories fed a step, and what it would do without one."),
    "memory": ("memory", "List, search, add to and forget from the long-term memory."),
    "rules": ("rules", "List, add and remove rules of what runs without a question."),
    "commands": ("commands", "List the commands, and why some cannot be used here."),
    "model": ("model", "List, fetch or remove the embedded model."),
    "test": ("test", "Play scenarios: scripted runs, and what is to come of them."),
    "trust": ("trust", "Trust a folder with what it brings, or see what is trusted."),
    "setup": ("setup", "Choose a model and describe the agent."),
    "config": ("config", "Show the settings and where each comes from."),
    "doctor": ("doctor", "Check key, endpoint, model, memory and folders, and say how to mend each."),
}


class LazyGroup(click.Group):
    """Loads a subcommand's module when it is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module = import_module(f"autoagent.subcommands.{SUBCOMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        _take_common_flags(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Subcommands"):
            formatter.write_dl([(name, text) for name, (_, text) in SUBCOMMANDS.items()])


def _whole(minimum: int) -> click.IntRange:
    return click.IntRange(min=minimum)


NO_LIMIT = "none"


class _Ceiling(click.FloatRange):
    """A number above 0; 0 and `none` lift the limit. `nan`, which nothing ever reaches, and `inf` are no numbers."""

    name = "number; 'none' lifts the limit"  # as an error says it: 'much' is not a valid ...

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if value == NO_LIMIT:
            return 0.0
        number: float = super().convert(value, param, ctx)
        if number != number or number == float("inf"):
            self.fail(f"{value} is no amount.", param, ctx)
        return number


class _Tokens(click.IntRange):
    """A whole number; 0 and `none` lift the limit."""

    name = "integer; 'none' lifts the limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return 0 if value == NO_LIMIT else int(super().convert(value, param, ctx))


class _Moment(click.ParamType[float]):
    """A time in the future, as seconds since the epoch."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        import time

        from autoagent.deadline import moment

        try:
            return moment(str(value), time.time())
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


# Every flag of a run. The parameter's name is that of the setting it sets (see Settings); None: not given.
_AGENT_FLAGS = (
    click.option("--ai-name", metavar="TEXT", help="Name of the agent."),
    click.option("--ai-role", metavar="TEXT", help="Role of the agent, after 'You are NAME,'."),
    click.option(
        "--ai-goal",
        "ai_goals",
        multiple=True,
        metavar="TEXT",
        help="A goal, or `goal :: command that checks it`; give it one to five times.",
    ),
)
_TASK_FLAGS = (
    click.option("-C", "--ai-settings", "ai_settings_file", metavar="FILE", help="Default: ai_settings.yaml."),
    click.option("-P", "--prompt-settings", "prompt_settings_file", metavar="FILE",
                 help="Constraints, resources and best practices in place of the built-in ones."),
    click.option("-y", "--skip-reprompt", is_flag=True, help="Take saved settings without asking."),
    click.option("-w", "--workspace-directory", "workspace", metavar="DIR", help="Default: ./autoagent_workspace."),
    click.option("--demo", is_flag=True, help="A scripted run: no key, no model, nothing to download."),
)  # fmt: skip
_RUN_FLAGS = (
    click.option("-c", "--continuous", is_flag=True, default=None, help="Run without asking (warns first)."),
    click.option("-l", "--continuous-limit", type=_whole(1), metavar="N",
                 help="With -c: at most N commands, and 2 N + 3 requests to the model."),
    click.option("--model", metavar="NAME",
                 help="openai, local, local:FILE.gguf, human, demo, replay:RUN, or a model's name."),
    click.option("--gpt3only", is_flag=True, help="The fast model for everything."),
    click.option("--gpt4only", is_flag=True, help="The smart model for everything."),
    click.option("-m", "--use-memory", "memory_backend", metavar="NAME",
                 help="Memory backend: local, postgres, redis or none."),
    click.option("--allow", multiple=True, metavar="RULE",
                 help="Run what fits without a question: COMMAND or COMMAND:PATTERN, such as write_to_file:notes/*."),
    click.option("--sandbox", type=click.Choice(["auto", "bubblewrap", "landlock", "none"]),
                 help="What holds the programs it starts. Default: auto, the strongest that works here."),
    click.option("--require-sandbox", is_flag=True, default=None, help="Stop where no sandbox works."),
    click.option("-b", "--browser-name", metavar="NAME",
                 help="chromium or firefox: read pages through a headless browser."),
    click.option("--allow-downloads", is_flag=True, default=None, help="Let it download files."),
    click.option("--speak", is_flag=True, default=None, help="Say its words to you aloud."),
    click.option("--commands", metavar="NAMES", help="Commands or categories to offer, comma-separated, or all."),
    click.option("--base-url", "openai_base_url", metavar="URL", help="The address of an OpenAI-compatible endpoint."),
    click.option("--budget", type=_Ceiling(), metavar="USD",
                 help="Stop before this is spent; 'none' lifts this limit, and so it does the next two."),
    click.option("--max-tokens", type=_Tokens(min=0), metavar="N", help="Stop before so many tokens are used."),
    click.option("--max-seconds", type=_Ceiling(), metavar="S",
                 help="Stop after so long at work; your time at questions does not count."),
    click.option("--deadline", type=_Moment(), metavar="TIME",
                 help="Stop at this time: 18:00 (the next), 2026-11-23T08:00, or 2h30m from now."),
    click.option("--patience", "outage", type=_whole(1), metavar="S",
                 help="Seconds for which an endpoint that fails is asked again. Default: 600 with -c, else 60."),
    click.option("--json", "json_output", is_flag=True, help="One event a line on stdout, everything else on stderr."),
    click.option("--plain", "plain_output", is_flag=True, default=None, help="No colours, no live lines."),
)  # fmt: skip
_AUTOGPT_FLAGS = (  # taken so that AutoGPT's command lines work; what has no effect is said when the run starts
    click.option("--install-plugin-deps", is_flag=True, help="No effect yet: plugins are not loaded."),
    click.option("--skip-news", is_flag=True, help="No effect: there is no news to skip."),
)


def _keep(ctx: click.Context, flag: click.Parameter, value: Any) -> None:
    if value is not None:
        ctx.obj = {**(ctx.obj or {}), flag.name: value}


_COMMON_FLAGS = (  # taken before and after the name of every subcommand; what they say is in `ctx.obj`
    click.option("--state-dir", metavar="DIR", expose_value=False, callback=_keep,
                 help="Runs and memory. Default: ./.autoagent."),
    click.option("--debug", is_flag=True, default=None, expose_value=False, callback=_keep, help="Show tracebacks."),
)  # fmt: skip


def given_in(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, those of later layers first. A 0 is given: it lifts a limit."""
    return {
        name: value
        for flags in layers
        for name, value in flags.items()
        if value is not None and value is not False and value not in ("", ())
    }


def flags(*groups: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    """The options of some groups as one decorator."""

    def decorate(function: Any) -> Any:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


run_flags = flags(_AGENT_FLAGS, _TASK_FLAGS, _RUN_FLAGS, _AUTOGPT_FLAGS)
resume_flags = flags(_AGENT_FLAGS, _RUN_FLAGS)
common_flags = flags(_COMMON_FLAGS)


def _take_common_flags(command: click.Command) -> None:
    """Add the common flags to a subcommand, and to each of its own, once."""
    if not any(parameter.name == "state_dir" for parameter in command.params):
        common_flags(command)
    if isinstance(command, click.Group):
        for own in command.commands.values():
            _take_common_flags(own)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@run_flags
@common_flags
@click.version_option(__version__)
@click.pass_context
def autoagent(ctx: click.Context, /, **given: Any) -> None:
    """The autonomous agent for the terminal that a person can leave alone.

    Give it a name, a role and up to five goals; it thinks, asks you before every command, and works in its workspace
    until the goals are met. Exit codes: 0 finished, 1 failure, 2 usage, 3 set-up, 4 a limit, 5 an answer was needed,
    6 stopped, 7 budget, 8 stuck, 130 interrupted.
    """
    ctx.obj = {**(ctx.obj or {}), **given}
    if ctx.invoked_subcommand is None:
        from autoagent.subcommands.run import start

        ctx.exit(start(ctx.obj))


def main() -> None:
    """The console script."""
    _open_streams()
    restart_in_utf8_mode()
    use_encoding_of_terminal()
    _leave_out_this_folder()
    sys.exit(_main(sys.argv[1:]))


def _open_streams() -> None:
    """Open to nowhere what whoever started the program had closed: else the next file would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - open to the end


def _leave_out_this_folder() -> None:
    """Take relative and empty entries out of PATH, so that no program is ever taken from the current folder."""
    if (path := os.environ.get("PATH")) is not None:
        absolute = [entry for entry in path.split(os.pathsep) if entry.startswith("/")]
        os.environ["PATH"] = os.pathsep.join(absolute) or os.defpath


def _main(arguments: list[str]) -> int:
    try:
        code = autoagent.main(arguments, prog_name="autoagent", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        shown = StringIO()
        error.show(file=shown)  # what it quotes of the command line is to be shown as everything else
        _tell(shown.getvalue().rstrip("\n"))
        return error.exit_code
    except BrokenPipeError:
        _abandon(sys.stdout)
        return 1
    except (Exception, KeyboardInterrupt) as error:  # the last boundary: nothing but one line reaches the user
        cause = error.__cause__ if isinstance(error, click.Abort) else error
        if cause is None or isinstance(cause, KeyboardInterrupt):
            _tell("Interrupted.")
            return 130
        if "--debug" in arguments or _debug_is_set():
            raise
        return _fail(cause)


def _fail(error: BaseException) -> int:
    """Say in a line why the program cannot go on, without what looks like a secret; its exit code."""
    from autoagent.errors import ForUser, StopRun
    from autoagent.redact import Redactor

    reason = Redactor().mask(str(error))
    if isinstance(error, ForUser):
        _tell(f"autoagent: {reason}")
        return error.exit_code
    if isinstance(error, StopRun):  # before there was a run to end
        _tell(f"autoagent: {reason}")
        return EXIT_CODES[error.outcome.status]
    if isinstance(error, OSError):  # met where nothing else says what it is about
        what = error.filename or ("the current folder" if isinstance(error, FileNotFoundError) else "the output")
        _tell(f"autoagent: {what} cannot be used: {error.strerror}.")
        _abandon(sys.stdout)
        return 1
    _tell(f"autoagent: internal error: {type(error).__name__}: {reason} (--debug shows where)")
    return 1


def _debug_is_set() -> bool:
    """Whether the user's own settings ask for tracebacks, as --debug does."""
    try:
        from autoagent.subcommands.here import look

        return look({}).settings.debug
    except Exception:  # settings that cannot be read ask for nothing, and may be what the error is about
        return False


def _tell(line: str) -> None:
    """A last line for the person; where stderr is gone, nobody is left to read it."""
    from autoagent.printable import escape

    try:
        click.echo(escape(line), err=True)
    except OSError:
        _abandon(sys.stderr)


def _abandon(stream: TextIO) -> None:
    """Let what the stream still holds go nowhere, or Python's flush at exit fails once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
