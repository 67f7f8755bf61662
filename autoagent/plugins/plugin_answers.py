"""A plug-in that answers for the user, from a chat for example (CHAT_MESSAGES_ENABLED)."""

from __future__ import annotations

from autoagent.core.commands import Proposal, Verdict
from autoagent.core.errors import StopRun
from autoagent.core.protocols import Authorizer
from autoagent.core.task import Outcome, Status
from autoagent.plugins.plugin_hooks import PluginHooks

_YES = frozenset({"y", "yes", "yeah", "yep", "ok", "okay", "sure", "alright", "approve", "authorise", "authorize"})
_NO = frozenset({"n", "no", "nope", "stop", "exit", "quit"})


class PluginAuthorizer:
    """Lets a plug-in answer where one call needs nothing but a yes. The guard's warnings are for the user alone."""

    def __init__(self, plugins: PluginHooks, asked: Authorizer) -> None:
        self._plugins = plugins
        self._asked = asked

    def decide(self, proposal: Proposal) -> Verdict:
        """Return the verdict; see protocols.Authorizer."""
        text, who = "", ""
        if not proposal.warning:
            text, who = self._plugins.answered(f"NEXT ACTION: {proposal.call}\nRun it? y, n, or feedback")
        if not text:
            return self._asked.decide(proposal)
        if text.lower() in _YES:
            return Verdict(True, who)
        if text.lower() in _NO:
            raise StopRun(Outcome(Status.STOPPED, f"Stopped by {who}."))
        return Verdict(False, who, f"{who} says: {text}")  # not the user's word, which would reset the standstill count

    def interrupted(self) -> str:
        """Ask the user, after Ctrl-C; see protocols.Authorizer."""
        return self._asked.interrupted()

    def accepts(self, claims: str) -> Verdict:
        """Ask the user; see protocols.Authorizer."""
        return self._asked.accepts(claims)

    def waits_on(self, reason: str) -> bool:
        """Ask the user; see protocols.Authorizer."""
        return self._asked.waits_on(reason)
