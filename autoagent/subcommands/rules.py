"""`autoagent rules`: calls that run without a question."""

from __future__ import annotations

import click

from autoagent.core.errors import StateError
from autoagent.safety.rules import Rule, checked
from autoagent.session.build import saved_rules, tell_old_rules
from autoagent.session.session import Session
from autoagent.subcommands.flags import command_names
from autoagent.terminal.output import echo, echo_list
from autoagent.text.sanitize import escape


@click.group("rules")
def rules() -> None:
    """Rules for calls that run without a question, even despite a warning: COMMAND or COMMAND:PATTERN.

    The pattern is matched with the command's first argument, * stands for any text: write_to_file:notes/*,
    execute_shell:git status, browse_website:https://docs.python.org/*. What * never matches:
    docs/security.md.
    """


@rules.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects; `origin`: saved or settings.")
@click.pass_context
def list_rules(ctx: click.Context, as_json: bool) -> None:
    """List the rules, those of the settings first."""
    settings = Session.read(ctx.obj).settings
    saved = saved_rules()
    tell_old_rules(settings, lambda line: echo(escape(line), err=True))
    found = [("settings", Rule.parse(text)) for text in settings.allow]
    found += [("saved", rule) for rule in saved.load()]
    echo_list(
        found,
        as_json,
        lambda one: {"rule": str(one[1]), "command": one[1].command, "pattern": one[1].pattern, "origin": one[0]},
        lambda one: f"{one[0]:8}  {one[1]}",
        f"There are no rules for this folder in {saved.path}: every command is asked about.",
    )


@rules.command("add")
@click.argument("rule", shell_complete=command_names)
def add(rule: str) -> None:
    """Save RULE: calls that it matches run without a question from the next run on."""
    from autoagent.commands.selection import all_commands

    parsed = checked(Rule.parse(rule), [command.spec for command in all_commands()])
    new = saved_rules().add(parsed)
    echo(f"Saved the rule {parsed}." if new else f"The rule {parsed} is there already.")


@rules.command("remove")
@click.argument("rule")
def remove(rule: str) -> None:
    """Revoke RULE, as `autoagent rules list` shows it."""
    saved = saved_rules()
    if not saved.remove(Rule.parse(rule)):
        raise StateError(f"There is no saved rule {rule!r}; `autoagent rules list` lists them.")
    echo(f"Revoked the rule {Rule.parse(rule)}.")
