"""A chat model behind any OpenAI-compatible endpoint.

The way of asking for commands and the unsupported parameters are found by probing, never from the name, and cached
(`capabilities`). An outdated entry is probed again. Thinking before the answer is seen in answers. For OpenAI's own
models it is also known by name, as they then need other parameters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from autoagent.core import command_schema
from autoagent.core.commands import CommandSpec, command_list
from autoagent.core.errors import ModelError, SetupError
from autoagent.core.model import Asking, Completion, Message, Price, PromptStyle, Usage, style_for, without_calls
from autoagent.core.protocols import Asked, Listener
from autoagent.models import pricing
from autoagent.models.openai import wire
from autoagent.models.openai.capabilities import Capabilities, Capability
from autoagent.models.openai.endpoint import Endpoint
from autoagent.models.openai.refusals import Refused
from autoagent.models.openai.response import ResponseParts, tokens_in
from autoagent.text.tokens import PER_MESSAGE

UNKNOWN_WINDOW = 8192  # tokens; assumed if neither the table nor the server knows the window

_REASONING_ROOM = 16_000  # tokens; reasoning is paid from the reply's limit, so as much is added there and kept free

# What a request can do without, and how servers speak of it when they do not take it.
_OPTIONAL: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"(?<![\w-])({words})(?![\w-])", re.I)
    for name, words in {
        "strict": "strict",
        "parallel_tool_calls": "parallel[_ ]tool[_ ]calls",
        "tool_choice": "tool[_ ]choice",
        "stream_options": "stream[_ ]options|include_usage",
        "stream": "stream|streaming",
        "max_completion_tokens": "max_completion_tokens",
        "max_tokens": "max_tokens",
        "temperature": "temperature",
    }.items()
}
# The same for what carries a way of asking: a model that does not take it is asked in the next way.
_CARRIER: Mapping[Asking, re.Pattern[str]] = {
    "tools": re.compile(r"\b(tools?|functions?|tool[_ -](use|call\w*|choice)|function[_ -]call\w*)\b", re.I),
    "schema": re.compile(r"response[_ ]format|json[_ ]?schema|structured[_ ]output|grammar|\bschema\b", re.I),
}

# The size in a model's name, as its publishers write it: qwen2.5-coder:1.5b, Llama-3.2-1B-Instruct.
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z\d])", re.IGNORECASE)

# Names in a model list that stand for its context length: vLLM, OpenRouter, Groq, Mistral, LM Studio.
_WINDOW_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length", "loaded_context_length")

# The probe is as small as possible: on a small machine every token is felt.
_PROBE_MESSAGES = (Message("user", "Are you ready? Answer with one word, yes or no."),)
_PROBE_TOKENS = 64
_THINKING_PROBE_TOKENS = 2048  # where the first were spent on thinking
_READY = {
    "type": "object",
    "properties": {"ready": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["ready"],
    "additionalProperties": False,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Overrides:
    """The user's settings for a model. They override the table and the server.

    `window` is in tokens. `asking` forces the way of asking. None: probe.
    """

    temperature: float | None = None
    window: int | None = None
    price: Price | None = None
    asking: Asking | None = None
    style: str = ""


_NONE = Overrides()


class OpenAIModel:
    """A chat model of an endpoint. Satisfies protocols.Model.

    `count` counts tokens if the server reports no usage. On a private endpoint the price is 0. `ways` is the cache file
    for capabilities. `listener` hears of retries and silences during a probe.
    """

    def __init__(
        self,
        *,
        name: str,
        endpoint: Endpoint,
        count: Callable[[str], int],
        overrides: Overrides = _NONE,
        ways: Path | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.name = name
        self.price = overrides.price or endpoint.price(name)
        self._endpoint = endpoint
        self._count = count
        self._reasons = pricing.reasons(name)
        self._temperature = None if self._reasons else overrides.temperature
        self._given_window = overrides.window
        self._capabilities = Capabilities(ways)
        self._listener = listener
        self._forced = overrides.asking
        self._wanted_style = overrides.style
        self._promised: Asking | None = None  # the way that the prompts of this process are made for
        self._blind = False  # it was seen to take no images
        self._renewed = False  # it was probed once more in this process
        self._pending_usage = Usage()  # spent on what gave no completion: the probe, answers that were cut short

    @property
    def window(self) -> int:
        """The window as configured, from the table, or from the endpoint's model list (asked once per process); else a
        low guess.

        It excludes the room for hidden reasoning.
        """
        return self._full_window - self.reasoning_room

    @property
    def reasoning_room(self) -> int:
        """Tokens of the window that are kept for the reasoning, and added to the limit of a reply."""
        if self._reasons:
            return min(_REASONING_ROOM, self._full_window // 2)
        return min(_REASONING_ROOM, self._full_window // 4) if self._known.thinks else 0

    @cached_property
    def _full_window(self) -> int:
        if self._given_window:
            return self._given_window
        known = pricing.known(self.name)
        return known.window if known else self._listed_window()

    @cached_property
    def style(self) -> PromptStyle:
        """The style for the model's size, as far as its endpoint or its name tells it, unless one is set."""
        return style_for(self._parameters(), self._wanted_style)

    @property
    def asking(self) -> Asking:
        """Probed at the first look, once per endpoint and model."""
        return self._asking(self._listener)

    def complete(self, messages: Sequence[Message], **asked: Unpack[Asked]) -> Completion:
        """See protocols.Model. All tool calls of the answer are returned; which of them may run is not decided here."""
        commands, schema, listener = asked.get("commands", ()), asked.get("schema"), asked.get("listener")
        asking = self._asking(listener) if commands or schema else "text"
        if not commands and asking != "schema":
            asking = "text"
        heard = listener.text if listener else _unheard
        most = asked["max_tokens"] + self.reasoning_room
        first: Refused | None = None
        found: list[str] = []
        while True:
            sent, how = self._adapted(messages, asking, commands), self._asked(asking, commands, schema)
            try:
                answer, retries = self._ask(sent, how, min(most, asked.get("at_most") or most), heard, listener)
            except Refused as refusal:
                first = first or refusal
                other = self._other_way(asking, first, listener)
                found.append(f"{first}; {_from_here_on(other)}")
            else:
                if not self._disobeys(asking, answer) or (other := self._renewed_way(listener)) == asking:
                    break
                self._pending_usage += self._usage(sent, how, answer)
                what = f"{self._endpoint.host} no longer obeys the way it is asked ({asking})"
                found.append(f"{what}; {_from_here_on(other)}")
            asking = other
        if commands and asking != self._known.asking and not self._forced:
            self._note(asking=asking)
        usage = self._usage(sent, how, answer)
        return Completion(answer.text, usage, answer.calls, answer.truncated, (*retries, *found))

    def take_usage(self) -> Usage:
        """See protocols.Model."""
        usage, self._pending_usage = self._pending_usage, Usage()
        return usage

    def _asking(self, listener: Listener | None) -> Asking:
        asking = self._forced or self._known.asking
        if asking is None:
            asking = self._probe(listener)
            self._note(asking=asking)
        if self._promised is None:
            self._promised = asking
        return asking

    def _probe(self, listener: Listener | None) -> Asking:
        """Find the best way of asking that this model obeys.

        A refusal that does not mention the way of asking still counts against it if the same request passes without it.
        """
        is_there = False
        for asking, (asked, obeyed) in _PROBES.items():
            try:
                answer = self._tried(asked, listener)
            except Refused as refusal:
                if _CARRIER[asking].search(refusal.said):
                    continue
                if not is_there:
                    self._plainly(refusal, listener)
                    is_there = True
                    with contextlib.suppress(Refused):  # it may have been a fault that has passed
                        if obeyed(self._tried(asked, listener)):
                            return asking
                continue
            if obeyed(answer):
                return asking
        return "text"

    def _plainly(self, refusal: Refused, listener: Listener | None) -> None:
        """Ask for nothing but text. Raises the refusal where that is refused as well: the fault lies elsewhere."""
        try:
            self._try({}, _PROBE_TOKENS, listener)
        except Refused:
            raise refusal from None

    def _tried(self, asked: Mapping[str, Any], listener: Listener | None) -> ResponseParts:
        answer = self._try(asked, _PROBE_TOKENS, listener)
        if answer.truncated and (answer.thought or not answer.text):
            answer = self._try(asked, _THINKING_PROBE_TOKENS, listener)
        return answer

    def _renewed_way(self, listener: Listener | None) -> Asking:
        """Probe the way again: the server may have been restarted with other abilities."""
        self._renewed = True
        kept = self._known
        self._note(asking=None, without=())
        try:
            found = self._probe(listener)
        except BaseException:  # Ctrl-C too: what was known is still known
            self._note(asking=kept.asking, without=kept.without)
            raise
        self._note(asking=found)
        return found

    def _other_way(self, asking: Asking, refusal: Refused, listener: Listener | None) -> Asking:
        """Return the way to try after a refusal: as probed once
        more, then plain text. Raises the refusal if none is left.
        """
        if self._forced and asking != "text":
            text = f"{refusal}; AUTOAGENT_ASKING={asking} allows no other way: set another one, or leave it out"
            raise Refused(text, refusal.param, refusal.said) from refusal
        if asking == "text":
            raise refusal
        if not self._renewed and (found := self._renewed_way(listener)) != asking:
            return found
        return "text"

    def _disobeys(self, asking: Asking, answer: ResponseParts) -> bool:
        """Return whether the server seems to accept tools or a schema silently and without effect."""
        if asking == "text" or self._forced or self._renewed or answer.truncated or "{" in answer.text:
            return False
        return not answer.calls

    def _adapted(
        self, messages: Sequence[Message], asking: Asking, commands: Sequence[CommandSpec]
    ) -> Sequence[Message]:
        """Adapt the messages to another way of asking than theirs: list the commands, describe the form of a reply."""
        if not commands or asking == self._promised:
            return messages
        *before, last = without_calls(messages)
        listed = [] if asking == "tools" or self._promised != "tools" else [command_list(commands)]
        added = [*listed, *([command_schema.TEXT_FORM] if asking == "text" else [])]
        return [*before, dataclasses.replace(last, content="\n\n".join([last.content, *added]))]

    def _try(self, asked: Mapping[str, Any], max_tokens: int, listener: Listener | None) -> ResponseParts:
        answer, _ = self._ask(_PROBE_MESSAGES, asked, max_tokens + self.reasoning_room, _unheard, listener)
        self._pending_usage += self._usage(_PROBE_MESSAGES, asked, answer)
        return answer

    def _ask(
        self,
        messages: Sequence[Message],
        asked: Mapping[str, Any],
        max_tokens: int,
        heard: Callable[[str], None],
        listener: Listener | None,
    ) -> tuple[ResponseParts, tuple[str, ...]]:
        """Return an answer and the reasons for retries. Optional parts that were refused are dropped for good."""
        answer = ResponseParts()

        def read(content_type: str, chunks: Iterable[bytes]) -> ResponseParts:
            answer.read(content_type, chunks, heard)
            return answer

        def given_up() -> None:
            nonlocal answer
            self._pending_usage += self._usage(messages, asked, answer)
            answer = ResponseParts()

        without, blind = (*self._known.without, *(wire.IMAGES,) * self._blind), ""
        while True:
            body = self._body(messages, asked, max_tokens, without)
            try:
                answer, retries = self._endpoint.post(
                    "/chat/completions", body, read, listener, known=self._known.asking is not None, given_up=given_up
                )
            except Refused as refusal:
                name = _refused_parameter(refusal, body) or wire.refused(refusal.said, messages, without)
                if name is None:
                    raise
                without = (*without, name)
                if name == wire.IMAGES:
                    blind = f"{self.name} takes no images ({refusal}); it is asked without them"
                continue
            self._blind = self._blind or bool(blind)
            lasting = tuple(name for name in without if name != wire.IMAGES)  # another run says it again
            if lasting != self._known.without:
                self._note(without=lasting)  # only now: leaving them out did help
            if answer.thought and not self._known.thinks:
                self._note(thinks=True)
            return answer, (*retries, *filter(None, (blind,)))

    def _body(
        self, messages: Sequence[Message], asked: Mapping[str, Any], max_tokens: int, without: Collection[str]
    ) -> dict[str, Any]:
        limits = ["max_tokens", "max_completion_tokens"]
        limit = next((name for name in (reversed(limits) if self._reasons else limits) if name not in without), None)
        body: dict[str, Any] = {
            "model": self.name,
            "messages": wire.written(messages, without if "tools" in asked else (*without, wire.TOOL_MESSAGES)),
            "stream": True,
            "stream_options": {"include_usage": True},
            **asked,
        }
        if limit:
            body[limit] = max_tokens
        if self._temperature is not None:
            body["temperature"] = self._temperature
        if "stream" in without:
            del body["stream_options"]
        if "strict" in without and "response_format" in body:
            bound = {key: value for key, value in asked["response_format"]["json_schema"].items() if key != "strict"}
            body["response_format"] = {"type": "json_schema", "json_schema": bound}
        return {name: value for name, value in body.items() if name not in without}

    def _usage(self, messages: Sequence[Message], asked: Mapping[str, Any], answer: ResponseParts) -> Usage:
        """Return the usage reported by the server, with our own count for missing or wrong figures.

        Tool definitions count as part of a prompt. A schema does not, as it only bounds sampling.
        """
        said = answer.usage or {}
        prompt, completion = tokens_in(said.get("prompt_tokens")), tokens_in(said.get("completion_tokens"))
        if not prompt:  # no prompt has no tokens
            prompt = sum(self._count(message.content) + PER_MESSAGE for message in messages)
            prompt += sum(self._count(call.name + call.arguments) for message in messages for call in message.calls)
            prompt += self._count(json.dumps(asked["tools"])) if "tools" in asked else 0
        if completion is None:
            completion = self._count(answer.text) + sum(self._count(c.name + c.arguments) for c in answer.calls)
            completion += self._count(answer.reasoning)
        details = said.get("prompt_tokens_details")
        cached = min(prompt, tokens_in(details.get("cached_tokens")) or 0) if isinstance(details, dict) else 0
        return Usage(prompt, completion, cached, pricing.cost(self.price, prompt, completion, cached))

    @cached_property
    def _listed(self) -> Mapping[str, Any] | None:
        """The model's entry in the endpoint's list, asked for once a process, or None if there is no list."""
        try:
            every = self._endpoint.models()
        except (ModelError, SetupError):  # the list is optional; real problems show at the first completion
            return None
        # a server of one model may answer to any name
        return next((m for m in every if m["id"] == self.name or len(every) == 1), {})

    def _parameters(self) -> float | None:
        """Return how many parameters the model has, by its name or by what llama.cpp lists, or None if unknown."""
        if named := _SIZE.search(self.name):
            return float(named[1]) * 1e9
        if pricing.known(self.name) or self._given_window:
            return None
        meta = (self._listed or {}).get("meta")
        return tokens_in(meta.get("n_params")) if isinstance(meta, dict) else None

    def _listed_window(self) -> int:
        if (listed := self._listed) is None:
            return self._known.window or UNKNOWN_WINDOW
        meta = listed.get("meta")  # llama.cpp
        sizes = [listed.get(key) for key in _WINDOW_KEYS] + ([meta.get("n_ctx")] if isinstance(meta, dict) else [])
        window = next((size for size in map(tokens_in, sizes) if size), UNKNOWN_WINDOW)
        if window != self._known.window:
            self._note(window=window)
        return window

    def _asked(
        self, asking: Asking, commands: Sequence[CommandSpec], schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the parameters that ask for one of these commands, or for an answer that fits the schema."""
        thoughts = command_schema.THOUGHTS if self.style.thinks else ()
        if asking == "tools" and commands:
            return _with_tools(command_schema.tools(commands, thoughts))
        if asking == "schema" and commands:
            return _with_schema("reply", _strict(command_schema.reply(commands, thoughts)))
        return _with_schema("answer", _strict(schema)) if asking == "schema" and schema else {}

    @property
    def _known(self) -> Capability:
        return self._capabilities.get(self._endpoint.base_url, self.name)

    def _note(self, **found: Any) -> None:
        self._capabilities.put(self._endpoint.base_url, self.name, dataclasses.replace(self._known, **found))


def _from_here_on(asking: Asking) -> str:
    return f"from here on it is asked by {asking} (AUTOAGENT_ASKING sets a way)"


def _with_tools(tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}


def _with_schema(name: str, bound: dict[str, Any]) -> dict[str, Any]:
    described = {"name": name, "strict": True, "schema": bound}
    return {"response_format": {"type": "json_schema", "json_schema": described}}


def _strict(node: Any) -> Any:
    """Return the schema for strict decoding: every property is required, and optional values may be null."""
    if isinstance(node, list):
        return [_strict(part) for part in node]
    if not isinstance(node, dict):
        return node
    made = {key: _strict(value) for key, value in node.items()}
    if made.get("type") == "object" and "properties" in made:
        optional = set(made["properties"]) - set(made["required"])
        for name in optional:
            made["properties"][name] = {"anyOf": [made["properties"][name], {"type": "null"}]}
        made["required"] = list(made["properties"])
    return made


def _says_ready(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and "ready" in value


_PROBES: Mapping[Asking, tuple[dict[str, Any], Callable[[ResponseParts], bool]]] = {  # the best way first
    "tools": (
        _with_tools(
            [{"type": "function", "function": {"name": "answer", "description": "Answer", "parameters": _READY}}]
        ),
        lambda answer: any(call.name == "answer" and _says_ready(call.arguments) for call in answer.calls),
    ),
    "schema": (_with_schema("probe", _READY), lambda answer: _says_ready(answer.text)),
}


def _refused_parameter(refusal: Refused, body: Mapping[str, Any]) -> str | None:
    """Return the optional parameter that a refusal names, or mentions first."""
    present = {name for name in _OPTIONAL if name in body}
    if "strict" in body.get("response_format", {}).get("json_schema", {}):
        present.add("strict")
    if refusal.param in present:
        return refusal.param
    mentions = {name: match.start() for name in present if (match := _OPTIONAL[name].search(refusal.said))}
    return min(mentions, key=mentions.__getitem__) if mentions else None


def _unheard(*_: Any) -> None:
    """Ignore the call."""
