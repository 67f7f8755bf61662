"""Ask for the user's consent to commands offered by sources outside the program, such as servers.

No such command reaches the agent before a person has seen its name, texts and arguments. A changed command is asked
about again. All of them count as undeclared: each call is asked about, and each result is untrusted and private.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from autoagent.core.commands import CommandSpec, Risk, source_in
from autoagent.core.errors import SettingsError
from autoagent.registry.parts import Offer, OfferedCommand, Place, UntrustedValue
from autoagent.session.trust import Trusted
from autoagent.terminal.output import echo
from autoagent.text.wrapping import wrap

if TYPE_CHECKING:
    from autoagent.commands.registry import Command


def allowed_commands(place: Place, offer: Offer, warn: Callable[[str], None]) -> list[Command]:
    """Return the allowed commands of an offer. Ask about the others if somebody can be asked.

    Raises SettingsError if the answer cannot be saved, and ValueError for a name that no offered command can have.
    """
    commands = [(offered, _as_undeclared(offered.command)) for offered in offer.commands]
    new = waiting(place, offer)
    if new and sys.stdin.isatty():
        try:
            if _ask_permission(place, offer, new):
                Trusted(place.user_state).add(offer.folder, [_trust_value(offer, offered) for offered in new])
                new = ()
        except EOFError:
            warn("The input has ended; nothing new is offered.")
    elif new:
        names = ", ".join(offered.name for offered in new)
        warn(f"Left out of the {offer.source} until you allow it (`{offer.allowed_by}`): {names}.")
    return [command for offered, command in commands if offered not in new]


def allow_at_once(place: Place, offer: Offer) -> tuple[int, bool]:
    """Show all commands that need permission, and allow them, asking first at a terminal.

    Return how many needed it, and whether they have it now. Raises SettingsError if the input has ended, or the answer
    cannot be saved.
    """
    new, is_allowed = waiting(place, offer), True
    try:
        if new and sys.stdin.isatty():
            is_allowed = _ask_permission(place, offer, new)
        else:  # the command line itself is the permission
            for line in _describe(place, offer, new):
                echo(line)
    except EOFError:
        raise SettingsError("The input has ended; nothing is allowed.") from None
    if new and is_allowed:
        Trusted(place.user_state).add(offer.folder, [_trust_value(offer, offered) for offered in new])
    return len(new), is_allowed


def waiting(place: Place, offer: Offer) -> Sequence[OfferedCommand]:
    """Return the commands of an offer that the user has not allowed in their present form."""
    trusted = Trusted(place.user_state)
    return tuple(new for new in offer.commands if not trusted.holds(offer.folder, _trust_value(offer, new).mark))


def _trust_value(offer: Offer, offered: OfferedCommand) -> UntrustedValue:
    return UntrustedValue(file=offer.source, name=offered.name, value=f"{offer.written}\0{offered.told}", about="")


def _as_undeclared(command: Command) -> Command:
    """Return the command stripped of its own claims, except its texts, its arguments and that it only reads.

    Raises ValueError for a name that could pass for a command of another source, or of the program.
    """
    from autoagent.commands.registry import Command

    spec = command.spec
    if not source_in(spec.name):
        raise ValueError(f"{spec.name!r} is not the name of an offered command")
    risk: Risk = "network" if spec.risk == "network" else "irreversible"
    undeclared = CommandSpec(
        spec.name, spec.label, source_in(spec.name), risk, spec.parameters, repeatable=True, always_offered=True
    )
    return Command(undeclared, command.function)


def _describe(place: Place, offer: Offer, new: Sequence[OfferedCommand]) -> Iterator[str]:
    """Yield lines with all that the agent would be told, noting changes since it was allowed."""
    known = Trusted(place.user_state).names(offer.folder)
    for offered in new:
        spec = offered.command.spec
        changed = "  CHANGED since you allowed it" if _trust_value(offer, offered).location in known else ""
        yield f"  {spec.signature()}{changed}"
        yield f"      {spec.label}"
        for parameter in spec.parameters:
            yield f"      - {parameter.name}: {json.dumps(parameter.schema, ensure_ascii=False)}"
        if offered.remark:
            yield f"      ({offered.remark})"


def _ask_permission(place: Place, offer: Offer, new: Sequence[OfferedCommand]) -> bool:
    """Show the new commands to a person at the terminal, and ask. Raises EOFError if there is no answer."""
    from autoagent.terminal.answers import ClickTerminal

    terminal = ClickTerminal()
    terminal.say(f"The {offer.source} ({offer.file}) offers something new:")
    for line in _describe(place, offer, new):
        echo(wrap(line, shutil.get_terminal_size().columns, indent=6), err=True)
    return terminal.decide("Offer it to the agent, until it changes? Each call is still asked about. y = yes, n = no:")
