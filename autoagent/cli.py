"""Define the root command and its flags, and turn every error into one line and an exit code.

Only click is imported before the subcommand is known, so that `--help` and the first question appear at once.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from autoagent import __version__
from autoagent.subcommands.flags import common_flags, is_task, run_flags, serve_flags
from autoagent.terminal.utf8_mode import restart_in_utf8_mode, use_encoding_of_terminal

if TYPE_CHECKING:
    from autoagent.registry.plugins import Plugin

# name -> (module, line in the overview). The command object has the name of the subcommand. Names outside GROUPS are
# former names, or parts of `tools` and `setup`.
SUBCOMMANDS = {
    "run": ("run", "Start the agent (the same as no subcommand)."),
    "team": ("team", "Let a team of roles work on an idea."),
    "resume": ("resume", "Continue a run: where it stopped, from an earlier step, or with a new task."),
    "fork": ("resume", "Start a new run from a step of another."),
    "undo": ("undo", "Restore the workspace to its state before a step."),
    "view": ("view", "Show the runs live in the browser, and answer their questions there."),
    "replay": ("runs", "Show a run again step by step, or verify that its log explains every prompt."),
    "bisect": ("undo", "Find the first step after which a check fails."),
    "runs": ("runs", "List the runs."),
    "show": ("runs", "Show a run from its log."),
    "report": ("runs", "Write a run as one HTML file."),
    "why": ("why", "Show which memories fed a step, and what it would do without one."),
    "memory": ("memory", "List, search, add to and forget from the long-term memory."),
    "inbox": ("inbox", "List the open questions of all your runs, or answer one."),
    "answer": ("inbox", "Answer an open question, from any terminal."),
    "rules": ("trust", "List, add and remove rules for what runs without a question."),
    "tools": ("tools", "List commands, skills, MCP servers and plug-ins; write an extension."),
    "commands": ("tools", "List the commands, and why some cannot be used here."),
    "new-plugin": ("tools", "Write a first extension."),
    "model": ("setup", "List, fetch or remove the embedded model."),
    "fleet": ("fleet", "Run many tasks under one budget."),
    "test": ("test", "Play scenarios: scripted runs with their expected results."),
    "skills": ("skills", "List skills, or turn a finished run into one."),
    "migrate": ("setup", "Move the contents of an AutoGPT folder into this one."),
    "trust": ("trust", "Trust a folder's settings and programs, or show what is trusted."),
    "setup": ("setup", "Choose a model, see settings, check what is wrong, install completion."),
    "config": ("setup", "Show the settings and where each comes from."),
    "completion": ("man", "Print or install shell completion."),
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
    """Load a subcommand's module only when it is called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take a wish out of the arguments: a text with spaces, before or after flags, that is not a subcommand."""
        if not {"--help", "-h", "--help-all"} & set(args):
            _, rest, _ = self.make_parser(ctx).parse_args(list(args))
            if rest and rest[0] not in SUBCOMMANDS and is_task(rest[0]):
                ctx.obj = {**(ctx.obj or {}), "wish": rest[0]}
                args = [*args[: len(args) - len(rest)], *rest[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if "wish" in (ctx.obj or {}):
            ctx.fail(f"Unexpected argument after the task: {name!r}. Put the whole task in quotes.")
        if name in SUBCOMMANDS or name in _extension_subcommands():
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        matches = get_close_matches(name, SUBCOMMANDS, 1)
        hint = f"Did you mean {matches[0]!r}?" if matches else 'Put a task in quotes: autoagent "write a poem".'
        raise click.NoSuchCommand(name, f"There is no subcommand {name!r}. {hint}", ctx=ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*SUBCOMMANDS, *_extension_subcommands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in SUBCOMMANDS:
            module = import_module(f"autoagent.subcommands.{SUBCOMMANDS[cmd_name][0]}")
            command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        elif cmd_name in (plugins := _extension_subcommands()):
            command = plugins[cmd_name].load()
            if not isinstance(command, click.Command):
                raise plugins[cmd_name].refuse("cannot be used: it is not a click.Command")
        else:
            return None
        _add_common_flags(command)
        return command

    def usable_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand for a list of all, or None if its extension cannot be used; `doctor` names that one."""
        from autoagent.core.errors import SetupError

        try:
            return self.get_command(ctx, cmd_name)
        except SetupError:
            return None

    def get_help(self, ctx: click.Context) -> str:
        """Tell click the width of the terminal, since click itself would import shutil and compression modules."""
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (OSError, ValueError):  # no terminal
            columns = 80
        ctx.terminal_width = max(min(columns or 80, ctx.max_content_width or 80) - 2, 50)
        return super().get_help(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.meta.get(_SHOW_ALL):
            super().format_options(ctx, formatter)
            return
        flags = {name: parameter for parameter in self.get_params(ctx) for name in (parameter.name, *parameter.opts)}
        for title, names in (("Common flags", COMMON_FLAGS), ("More flags (--help-all lists the rest)", MORE_FLAGS)):
            records = (flags[name].get_help_record(ctx) for name in names)
            with formatter.section(title):
                formatter.write_dl([record for record in records if record])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {title: [(name, SUBCOMMANDS[name][1]) for name in names] for title, names in GROUPS.items()}
        if ctx.meta.get(_SHOW_ALL):
            grouped = {name for names in GROUPS.values() for name in names}
            others = [(name, summary) for name, (_, summary) in SUBCOMMANDS.items() if name not in grouped]
            sections["Less common, older names, and parts of tools and setup"] = others
            commands = ((name, self.usable_command(ctx, name)) for name in _extension_subcommands())
            sections["From extensions"] = [
                (name, command.get_short_help_str(80)) for name, command in commands if command
            ]
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _extension_subcommands() -> dict[str, Plugin]:
    """Return the subcommands of extensions by name, except those with the name of a built-in one."""
    from autoagent.registry.plugins import plugins

    return {plugin.name: plugin for plugin in plugins("subcommands") if plugin.name not in SUBCOMMANDS}


_SHOW_ALL = "autoagent.help_all"


def _print_help_all(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_SHOW_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _is_json_before() -> bool:
    """Return whether --json stands before the subcommand."""
    return bool(click.get_current_context().find_root().params.get("json_output"))


def _add_common_flags(command: click.Command) -> None:
    """Add the common flags to a subcommand and its own subcommands, once. If it serves, add the flags of a run, too."""
    if getattr(command, "serves", False) and not any(parameter.name == "continuous" for parameter in command.params):
        old_count = len(command.params)
        serve_flags(command)
        command.params[old_count:] = reversed(command.params[old_count:])  # decorators run from the last to the first
    if not any(parameter.name == "state_dir" for parameter in command.params):
        common_flags(command)
    for parameter in command.params:
        if parameter.name == "as_json":
            parameter.default = _is_json_before
    if isinstance(command, click.Group):
        for child in command.commands.values():
            _add_common_flags(child)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="[TASK | SUBCOMMAND ...]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@run_flags
@common_flags
@click.version_option(__version__)
@click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_help_all,
    help="Every flag and subcommand.",
)
@click.pass_context
def autoagent(ctx: click.Context, /, **flags: Any) -> None:
    """The autonomous agent for the terminal that you can leave unattended.

    Give it a task: autoagent "write a poem to poem.txt". It asks before every command.
    """
    ctx.obj = {**(ctx.obj or {}), **flags}
    if ctx.invoked_subcommand is None:
        from autoagent.subcommands.run import start

        ctx.exit(start(ctx.obj))


def main() -> None:
    """Run the console script."""
    _open_missing_streams()
    restart_in_utf8_mode()
    use_encoding_of_terminal()
    _clean_path()
    code = _main(sys.argv[1:])
    # Python compiles a dataclass's methods with exec. If Ctrl-C arrives during that, the interpreter exits by the
    # signal even though the exception was handled; running any other code object to its end resets this.
    exec("")  # noqa: S102 - an empty text
    sys.exit(code)


def _open_missing_streams() -> None:
    """Open closed standard streams on /dev/null, so that no other file takes their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - open to the end


def _clean_path() -> None:
    """Remove relative and empty entries from PATH, so that no program is run from the current folder."""
    if (path := os.environ.get("PATH")) is not None:
        absolute = [entry for entry in path.split(os.pathsep) if entry.startswith("/")]
        os.environ["PATH"] = os.pathsep.join(absolute) or os.defpath


def _main(arguments: list[str]) -> int:
    try:
        code = autoagent.main(arguments, prog_name="autoagent", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (click.NoSuchOption, click.NoSuchCommand) as error:
        message = error.message
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            from difflib import get_close_matches

            matches = get_close_matches(error.option_name, error.possibilities, 1)
            message += f" Did you mean {matches[0]}?" if matches else ""
        program = error.ctx.command_path if error.ctx else "autoagent"
        _print_error(f"autoagent: {message} See `{program} --help`.")
        return error.exit_code
    except click.ClickException as error:
        buffer = StringIO()
        error.show(file=buffer)  # escape what the message quotes from the command line
        _print_error(buffer.getvalue().rstrip("\n"))
        return error.exit_code
    except BrokenPipeError:
        from autoagent.terminal.output import discard_buffer

        discard_buffer(sys.stdout)
        return 1
    except SystemExit:
        raise
    except BaseException as error:  # the last handler: the user sees one line, even for Ctrl-C and StopRun
        cause = error.__cause__ if isinstance(error, click.Abort) else error
        if cause is None or isinstance(cause, KeyboardInterrupt):
            _print_error("Interrupted.")
            return 130
        if "--debug" in arguments or _is_debug_set():
            raise
        return _fail(cause)


def _fail(error: BaseException) -> int:
    """Print an error on one line with secrets masked, and return its exit code."""
    from autoagent.core.errors import ForUser, StopRun
    from autoagent.terminal.output import discard_buffer
    from autoagent.text.redaction import Redactor

    reason = Redactor().mask(str(error))
    if isinstance(error, ForUser | StopRun):  # StopRun: raised before a run began
        _print_error(f"autoagent: {reason}")
        return error.exit_code if isinstance(error, ForUser) else error.outcome.status.code
    if isinstance(error, OSError):  # no other handler has described it
        subject = error.filename or ("the current folder" if isinstance(error, FileNotFoundError) else "the output")
        _print_error(f"autoagent: {subject} cannot be used: {error.strerror}.")
        discard_buffer(sys.stdout)
        return 1
    _print_error(f"autoagent: internal error: {type(error).__name__}: {reason} (--debug shows where)")
    return 1


def _is_debug_set() -> bool:
    """Return whether the user's settings ask for tracebacks, as --debug does."""
    try:
        from autoagent.session.session import Session

        return Session.load({}).settings.debug
    except Exception:  # unreadable settings, which may be the cause of the error
        return False


def _print_error(line: str) -> None:
    """Print a line on stderr, ignoring a closed stream."""
    from autoagent.terminal.output import discard_buffer, say

    try:
        say(line)
    except OSError:
        discard_buffer(sys.stderr)
