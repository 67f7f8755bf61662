"""Reserve each call of a model in the fleet's budget, and send each request when its turn comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Unpack

from autoagent.core.model import Asking, Completion, Message, Usage
from autoagent.core.protocols import Model, RequestOptions
from autoagent.fleet.head_connection import HeadConnection
from autoagent.models.openai.retry import Fault
from autoagent.text.tokens import IMAGE_TOKENS, TOKENS_PER_MESSAGE, counter

PROBE_TOKENS = 4_000  # for the few small requests that find out how to ask a model


class MeteredModel:
    """Wrap a model, to reserve each call in the fleet's budget beforehand and settle it afterwards."""

    def __init__(self, model: Model, head: HeadConnection) -> None:
        self._model = model
        self._head = head
        self._count = counter(model.name)
        self._has_probed = False
        self._probe_usage = Usage()  # until it is taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def asking(self) -> Asking:
        """Return how to ask the model for commands. The first access may send requests to find out."""
        if self._has_probed:
            return self._model.asking
        grant = self._reserve(PROBE_TOKENS, PROBE_TOKENS, lambda: None)
        usage = None
        try:
            asking = self._model.asking
            self._has_probed = True
            usage = self._model.take_usage()
            self._probe_usage += usage
            return asking
        finally:
            if usage == Usage():  # nothing that the run would log
                self._head.tell("settle", n=grant["n"], usd=0.0, prompt=0, completion=0)
            else:  # the cost is known once the run logs it
                self._head.tell("unsettled", n=grant["n"])

    def take_usage(self) -> Usage:
        """See protocols.Model."""
        usage, self._probe_usage = self._probe_usage + self._model.take_usage(), Usage()
        return usage

    def complete(self, messages: Sequence[Message], **options: Unpack[RequestOptions]) -> Completion:
        """See protocols.Model. Raises StopRun if the fleet's budget does not cover the call."""
        listener, at_most = options.get("listener"), options.get("at_most")
        max_reply = options["max_tokens"] + self._model.reasoning_room
        on_wait = listener.check_time_left if listener else lambda: None
        count = self._count
        prompt = sum(count(m.content) + TOKENS_PER_MESSAGE + IMAGE_TOKENS * len(m.images) for m in messages)
        prompt += sum(count(call.name + call.arguments) for message in messages for call in message.calls)
        prompt += sum(count(json.dumps(asdict(spec), default=str)) for spec in options.get("commands", ()))
        grant = self._reserve(prompt, min(max_reply, at_most or max_reply), on_wait)
        options["at_most"] = min((limit for limit in (at_most, grant["at_most"]) if limit), default=None)
        try:
            completion = self._model.complete(messages, **options)
        except BaseException:  # Ctrl-C too
            self._head.tell("unsettled", n=grant["n"])
            raise
        usage = completion.usage
        self._head.tell("settle", n=grant["n"], usd=usage.cost or 0.0, prompt=usage.prompt, completion=usage.completion)
        return completion

    def _reserve(self, prompt: int, max_reply: int, on_wait: Callable[[], object]) -> dict[str, Any]:
        price = self._model.price
        prices = [price.prompt, price.completion, price.cached] if price else None
        return self._head.ask("call", on_wait, model=self._model.name, prompt=prompt, max_reply=max_reply, price=prices)


def send_in_turn(head: HeadConnection, on_wait: Callable[[], object], send: Callable[[], Any]) -> Any:
    """Send a request when its turn comes. Tell the head if the server asks for fewer requests."""
    head.ask("turn", on_wait)
    try:
        return send()
    except Fault as fault:
        if fault.after is not None:
            head.tell("slow", seconds=fault.after)
        raise
