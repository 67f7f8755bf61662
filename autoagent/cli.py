"""The command line: the root command, its flags, the way from every error to one line and an exit code.

Nothing but click is imported before the subcommand is known: `--help` and the first question do not wait for the rest.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO

import click

from autoagent import __version__
from autoagent.subcommands.flags import common_flags, run_flags
from autoagent.terminal.utf8_mode import restart_in_utf8_mode, use_encoding_of_terminal

if TYPE_CHECKING:
    from autoagent.registry.plugins import Plugin

# name -> (its module, what the overview says of it); the command object has the name of the subcommand. Those in none
# of the GROUPS are older names, or parts of `tools` and `setup`.
SUBCOMMANDS = {
    "run": ("run", "Start the agent (the same as no subcommand)."),
    "team": ("team", "Have a team of roles work on an idea."),
    "resume": ("resume", "Go on with a run: where it stopped, from an earlier step, or with a new wish."),
    "fork": ("fork", "Start a new run from a step of another one."),
    "undo": ("undo", "Take the workspace back to what it was before a step."),
    "view": ("view", "Show the runs live in the browser, and answer their questions there."),
    "replay": ("runs", "Show a run again step by step, or verify that its log explains every prompt."),
    "bisect": ("undo", "Find the first step after which a check fails."),
    "runs": ("runs", "List the runs."),
    "show": ("runs", "Show a run from its log."),
    "report": ("runs", "Write a run as a page to look at, in one file."),
    "why": ("why", "Show which memories fed a step, and what it would do without one."),
    "memory": ("memory", "List, search, add to and forget from the long-term memory."),
    "inbox": ("inbox", "List the open questions of all your runs, or answer one."),
    "answer": ("inbox", "Answer an open question, from any terminal."),
    "rules": ("trust", "List, add and remove rules of what runs without a question."),
    "tools": ("tools", "List commands, skills, MCP servers and plug-ins; write an extension."),
    "commands": ("tools", "List the commands, and why some cannot be used here."),
    "new-plugin": ("tools", "Write an extension to begin with."),
    "mcp": ("mcp", "List and allow MCP servers, or serve commands and memory to other agents."),
    "model": ("setup", "List, fetch or remove the embedded model."),
    "fleet": ("fleet", "Run many tasks under one budget."),
    "test": ("test", "Play scenarios: scripted runs and what they should result in."),
    "skills": ("skills", "List skills, or keep how a run was done as one."),
    "migrate": ("setup", "Take over what AutoGPT has left in a folder into this one."),
    "trust": ("trust", "Trust a folder with what it brings, or see what is trusted."),
    "setup": ("setup", "Choose a model, see settings, check what is wrong, install completion."),
    "config": ("setup", "Show the settings and where each comes from."),
    "completion": ("man", "Print or install what your shell completes."),
    "man": ("man", "Print or install the manual pages."),
    "doctor": ("setup", "Check key, endpoint, model, memory and folders, and say how to fix each."),
}

GROUPS = {
    "Run": ("resume", "team", "fleet"),
    "Look": ("runs", "show", "report", "view", "why", "inbox"),
    "Go back": ("undo", "fork"),
    "Memory": ("memory",),
    "Extend": ("tools",),
    "Set up": ("setup", "rules", "trust"),
}
COMMON_FLAGS = ("model", "continuous", "continuous_limit", "skip_reprompt", "workspace", "ai_goals", "newest", "budget",
                "allow", "demo")  # fmt: skip
MORE_FLAGS = ("ai_settings_file", "openai_base_url", "json_output", "version", "help_all", "--help")


class LazyGroup(click.Group):
    """Loads a subcommand's module when it is called, not before."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take a wish, a text with blanks that is no subcommand, out of the arguments, from before or after flags."""
        if not {"--help", "-h", "--help-all"} & set(args):
            _, rest, _ = self.make_parser(ctx).parse_args(list(args))
            if rest and rest[0] not in SUBCOMMANDS and len(rest[0].split()) > 1:
                ctx.obj = {**(ctx.obj or {}), "wish": rest[0]}
                args = [*args[: len(args) - len(rest)], *rest[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if "wish" in (ctx.obj or {}):
            ctx.fail(f"Unexpected argument after the wish: {name!r}. Put quotes around the whole wish.")
        if name in SUBCOMMANDS or name in _added():
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = get_close_matches(name, SUBCOMMANDS, 1)
        meant = f"Did you mean {near[0]!r}?" if near else 'A wish stands in quotes: autoagent "write a poem".'
        raise click.NoSuchCommand(name, f"There is no subcommand {name!r}. {meant}", ctx=ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*SUBCOMMANDS, *_added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in SUBCOMMANDS:
            module = import_module(f"autoagent.subcommands.{SUBCOMMANDS[cmd_name][0]}")
            command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        elif cmd_name in (added := _added()):
            command = added[cmd_name].load()
            if not isinstance(command, click.Command):
                raise added[cmd_name].refuse("cannot be used: it is no click.Command")
        else:
            return None
        _take_common_flags(command)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.meta.get(_ALL):
            super().format_options(ctx, formatter)
            return
        flags = {name: parameter for parameter in self.get_params(ctx) for name in (parameter.name, *parameter.opts)}
        for title, names in (("Common flags", COMMON_FLAGS), ("More flags (--help-all: the others)", MORE_FLAGS)):
            records = (flags[name].get_help_record(ctx) for name in names)
            with formatter.section(title):
                formatter.write_dl([record for record in records if record])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {name for names in GROUPS.values() for name in names}
        rest = [name for name in SUBCOMMANDS if name not in shown]
        others = {"Less common, older names, and parts of tools and setup": rest}
        for title, names in {**GROUPS, **(others if ctx.meta.get(_ALL) else {})}.items():
            with formatter.section(title):
                formatter.write_dl([(name, SUBCOMMANDS[name][1]) for name in names])
        if ctx.meta.get(_ALL) and (added := {name: self.get_command(ctx, name) for name in _added()}):
            with formatter.section("Of extensions"):
                formatter.write_dl([(name, one.get_short_help_str(80)) for name, one in added.items() if one])


def _added() -> dict[str, Plugin]:
    """Return the subcommands of extensions by name. The program's own keep their names."""
    from autoagent.registry.plugins import plugins

    return {plugin.name: plugin for plugin in plugins("subcommands") if plugin.name not in SUBCOMMANDS}


_ALL = "autoagent.help_all"


def _help_all(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


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
    subcommand_metavar="[WISH | SUBCOMMAND ...]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@run_flags
@common_flags
@click.version_option(__version__)
@click.option(
    "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_help_all, help="Every flag and subcommand."
)
@click.pass_context
def autoagent(ctx: click.Context, /, **given: Any) -> None:
    """The autonomous agent for the terminal that a person can leave alone.

    Give it a wish: autoagent "write a poem to poem.txt". It asks before every command.
    """
    ctx.obj = {**(ctx.obj or {}), **given}
    if ctx.invoked_subcommand is None:
        from autoagent.subcommands.run import start

        ctx.exit(start(ctx.obj))


def main() -> None:
    """Run the console script."""
    _open_streams()
    restart_in_utf8_mode()
    use_encoding_of_terminal()
    _leave_out_this_folder()
    code = _main(sys.argv[1:])
    # A Ctrl-C that comes while Python runs the text of a dataclass's methods has it end by the signal, whoever caught
    # that since: any other text that runs to its end takes this back.
    exec("")  # noqa: S102 - nothing
    sys.exit(code)


def _open_streams() -> None:
    """Open standard streams that are closed to nowhere: else the next file would take their numbers."""
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
    except (click.NoSuchOption, click.NoSuchCommand) as error:
        said = error.message
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            from difflib import get_close_matches

            near = get_close_matches(error.option_name, error.possibilities, 1)
            said += f" Did you mean {near[0]}?" if near else ""
        program = error.ctx.command_path if error.ctx else "autoagent"
        _tell(f"autoagent: {said} `{program} --help` lists what there is.")
        return error.exit_code
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
    """Print an error on one line, without anything that looks like a secret. Return its exit code."""
    from autoagent.core.errors import ForUser, StopRun
    from autoagent.text.redaction import Redactor

    reason = Redactor().mask(str(error))
    if isinstance(error, ForUser):
        _tell(f"autoagent: {reason}")
        return error.exit_code
    if isinstance(error, StopRun):  # before there was a run to end
        _tell(f"autoagent: {reason}")
        return error.outcome.status.code
    if isinstance(error, OSError):  # an error that nothing else describes
        what = error.filename or ("the current folder" if isinstance(error, FileNotFoundError) else "the output")
        _tell(f"autoagent: {what} cannot be used: {error.strerror}.")
        _abandon(sys.stdout)
        return 1
    _tell(f"autoagent: internal error: {type(error).__name__}: {reason} (--debug shows where)")
    return 1


def _debug_is_set() -> bool:
    """Return whether the user's own settings ask for tracebacks, as --debug does."""
    try:
        from autoagent.session.session import Session

        return Session.load({}).settings.debug
    except Exception:  # unreadable settings ask for nothing, and may be the cause of the error
        return False


def _tell(line: str) -> None:
    """Print a last line for the person. If stderr is gone, nobody is left to read it."""
    from autoagent.terminal.output import say

    try:
        say(line)
    except OSError:
        _abandon(sys.stderr)


def _abandon(stream: TextIO) -> None:
    """Discard the stream's buffer, or Python's flush at exit fails again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
