"""The loop guard, as a fold over the log: which call need not run again, and which command is not offered for a while.

A repeat that gives nothing new is barred: a change that changes nothing before it runs, a look that shows the same
once it has been taken, as only looking tells. When a run that gets nowhere is to end, standstill.py says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoagent.core.commands import Call, CommandSpec, Proposal, ResultMeta
from autoagent.core.events import Changed, Decided, Event, Feedback, Rejected, Resumed, Returned, Started, Thought
from autoagent.text.fingerprint import fingerprint

QUOTED_CHARACTERS = 200  # of an earlier result, where a repeat is refused


@dataclass(frozen=True, slots=True)
class Earlier:
    """A call that ran: its step, the beginning of its result and the hash
    of it. `outside`: the result came from outside. `ok`: it did not fail.

    The whole text is not kept: a run may read for days.
    """

    step: int
    begins: str
    outside: bool = False
    digest: int = 0
    ok: bool = True


def refusal(earlier: Earlier, failing: str = "") -> str:
    """Tell the model that a barred repeat is done or has failed, and where to go from there.

    `failing`: the goals whose checks fail, so that repeating the call does not help.
    """
    gave = "" if earlier.outside else f"It gave: {earlier.begins} "  # no marks fit in here
    if not earlier.ok:
        return (
            f"it failed in step {earlier.step}, and nothing has changed since, so it would fail again. {gave}"
            "Use it with other arguments, or first another command that mends the cause."
        )
    done = f"it was done already in step {earlier.step}, and nothing has changed since. {gave}"
    return f"{done}{f'{failing} ' if failing else ''}Use it with other arguments, or another command."


def shown_before(earlier: Earlier, failing: str = "") -> str:
    """Refer the model to a result it is shown already, instead of repeating it. `failing` as for `refusal`."""
    if earlier.ok:
        return " ".join(filter(None, (f"[the same as in step {earlier.step}]", failing, "Use another command.")))
    return f"[failed as in step {earlier.step}] Use it with other arguments, or first another command."


class LoopGuard:
    """Add every event in order. Ask `barred` before a call is authorized, `same` after it ran.

    `barred_names`: commands with which the agent insists on a repeat, on a call that failed the same way before, or on
    an end that was put off. They are not offered again until another command has run: this gets a small model, which
    is bound to the offered commands, out of its loop.
    """

    NOT_KEPT = ("_specs",)  # in a checkpoint

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self._results: dict[str, Earlier] = {}
        self.barred_names: set[str] = set()
        self._pending: Call | None = None
        self._insisted = ""  # the newest repeat
        self._newest_change = ""
        self._done_again = False  # the newest call was to change what it had changed already

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case Thought() | Started():
                self._pending = event.call  # as it was asked for, then as it runs
            case Rejected() if event.command:  # its values are not known yet: something else has to come first
                self.barred_names.add(event.command)
            case Decided(allowed=False, by="loop guard") if self._pending:
                self._repeated(self._pending)
                self.barred_names.add(self._pending.name)
                earlier = self._results.get(self._pending.key)
                self._done_again = earlier is not None and earlier.ok
            case Decided(allowed=False, by="guard" | "nobody") if self._pending:
                if self._repeated(self._pending):  # nobody is there to allow it, however often it is asked for
                    self.barred_names.add(self._pending.name)
            case Returned(meta=ResultMeta(repeat=True)) if self._pending:
                self._done_again = False
                self.barred_names.add(self._pending.name)
            case Returned() if self._pending:
                again = self._failed_again(self._pending, event)
                self.barred_names = {self._pending.name} if again else set()
                self._insisted, self._done_again = "", False
                self._returned(self._pending, event)
            case Feedback() | Resumed() | Changed():  # the user intervened, and may have changed anything
                self.barred_names.clear()
                self._done_again, self._newest_change = False, ""
                self._results.clear()

    def offered(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands to offer next, all if none would be left.

        An agent that repeats itself is done or mistaken: it may look, or end the run.
        """
        kept = [spec for spec in specs if spec.name not in self.barred_names]
        if self._done_again:
            kept = [spec for spec in kept if spec.risk == "read"]
        return kept or list(specs)

    def barred(self, proposal: Proposal) -> Earlier | None:
        """Return the earlier run of this call, if it is to change something and its preview no longer shows a
        change, or if it was itself the newest change.
        """
        earlier = self._results.get(proposal.call.key)
        effects = proposal.spec.effects
        if effects is not None and effects.amends and proposal.call.key == self._newest_change:
            return earlier  # such as the same line appended once more
        if proposal.changes or proposal.spec.repeatable or proposal.spec.risk == "read":
            return None
        if earlier and not earlier.ok and proposal.spec.risk == "network":
            return None  # what failed out there may work now
        return earlier

    def same(self, call: Call, text: str) -> Earlier | None:
        """Return the earlier run of this call, if it is a look that has just shown the same text again."""
        spec = self._specs.get(call.name)
        earlier = self._results.get(call.key)
        if earlier is None or spec is None or spec.repeatable or spec.risk != "read":
            return None
        return earlier if earlier.digest == fingerprint(text) else None

    def _repeated(self, call: Call) -> bool:
        """Note a repeat. Whether it is insisted on."""
        key = call.key
        insisted, self._insisted = self._insisted == key, key
        return insisted

    def _failed_again(self, call: Call, event: Returned) -> bool:
        """Return whether the call has failed as it did before, with nothing changed in between.

        An end is put off again in other words where they quote a text from outside.
        """
        earlier = self._results.get(call.key)
        return earlier is not None and not earlier.ok and (event.put_off or earlier.digest == fingerprint(event.text))

    def _returned(self, call: Call, event: Returned) -> None:
        key, digest = call.key, fingerprint(event.text)
        spec = self._specs.get(call.name)
        if (event.ok or event.meta.changed) and (spec is None or spec.risk != "read"):
            self._results.clear()  # the world changed: any result may now be another
            self._newest_change = key if event.ok else ""
        if event.known:
            begins, outside = event.text[:QUOTED_CHARACTERS], bool(event.meta.untrusted)
            ok = event.ok and not event.meta.failed  # a program that failed is a result as well
            self._results[key] = Earlier(event.step, begins, outside, digest, ok)
        else:
            self._results.pop(key, None)
