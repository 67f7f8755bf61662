"""Decide on commands without asking: allow them in continuous mode or by a rule, and refuse them if deciding fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoagent.core.commands import Proposal, Verdict
from autoagent.core.errors import StopRun
from autoagent.core.protocols import Authorizer
from autoagent.core.task import Outcome, Status
from autoagent.safety.rules import Rulebook

NOBODY = "nobody"  # Verdict.by of a call that nobody decided on in time


class ContinuousAuthorizer:
    """Allow every command that carries no warning. `ask` decides on others, and after Ctrl-C.

    Without `ask`, these are refused, and Ctrl-C ends the run.
    """

    def __init__(self, ask: Authorizer | None = None) -> None:
        self._ask = ask

    def decide(self, proposal: Proposal) -> Verdict:
        if not proposal.warning:
            return Verdict(True, "continuous mode")
        if self._ask is not None:
            return self._ask.decide(proposal)
        reason = f"{proposal.warning} Nobody is here to allow it. Go on without it, with what you have."
        return Verdict(False, "guard", reason)

    def interrupted(self) -> str:
        if self._ask is None:
            raise stop_error(Status.INTERRUPTED)
        return self._ask.interrupted()

    def waits_on(self, reason: str) -> bool:
        return False  # nobody is there who could grant more time

    def accepts(self, claims: str) -> Verdict:
        return Verdict(False, "continuous mode")


class AuthorizerWrapper:
    """Wrap another authorizer, which answers whatever a subclass does not. So a subclass satisfies Authorizer."""

    def __init__(self, inner: Authorizer) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self._inner, name)


class RuleAuthorizer(AuthorizerWrapper):
    """Allow calls that match a rule, even despite a warning. Leave all others to `inner`."""

    def __init__(self, rulebook: Rulebook, inner: Authorizer) -> None:
        super().__init__(inner)
        self._rulebook = rulebook

    def decide(self, proposal: Proposal) -> Verdict:
        self._rulebook.note(proposal.call, proposal.agent)
        rule = self._rulebook.find_rule(proposal.call)
        # a wildcard does not allow a guarded file: the rule has to name it
        if rule is not None and (not proposal.guarded or proposal.guarded == (rule.pattern,)):
            return Verdict(True, f"rule {rule}")
        return self._inner.decide(proposal)


class FailClosedAuthorizer(AuthorizerWrapper):
    """Refuse if `inner` fails, so that decide raises only StopRun and KeyboardInterrupt."""

    def decide(self, proposal: Proposal) -> Verdict:
        try:
            return self._inner.decide(proposal)
        except Exception as error:  # whatever failed, nobody has allowed the call
            reason = f"Whether this may run could not be decided ({type(error).__name__}: {error})."
            return Verdict(False, "fault", reason)


_REASONS: Mapping[Status, str] = {
    Status.STOPPED: "Ended by the user.",
    Status.INTERRUPTED: "Ended by Ctrl-C.",
    Status.UNANSWERED: "A question was asked and nobody could answer it; pass -c to run without questions.",
}


def stop_error(status: Status) -> StopRun:
    """Return the error that ends the run with this status."""
    return StopRun(Outcome(status, _REASONS[status]))
