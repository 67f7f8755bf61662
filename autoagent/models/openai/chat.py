"""Ask a chat model behind any OpenAI-compatible endpoint.

Whether a model takes tools or a schema, and which parameters it rejects, is found by probing, never from its name. The
result is cached (`capabilities`), and an outdated entry is probed again. Whether it thinks first is detected in its
answers. OpenAI's own thinking models are also known by name, as they need other parameters.
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
from autoagent.core.model import Asking, Completion, Message, PromptStyle, Usage, style_for, without_calls
from autoagent.core.protocols import Listener, RequestOptions
from autoagent.models import pricing
from autoagent.models.openai import capabilities, wire
from autoagent.models.openai.capabilities import Capability
from autoagent.models.openai.endpoint import Endpoint
from autoagent.models.openai.refusals import Refused
from autoagent.models.openai.response import ResponseParts, tokens_in
from autoagent.text.tokens import TOKENS_PER_MESSAGE

UNKNOWN_WINDOW = 8192  # tokens, if neither the table nor the server knows the window

_REASONING_ROOM = 16_000  # tokens added to a reply's limit, as reasoning counts towards it

# Ways of asking, and how servers without support name them in errors. An unsupported way is replaced by the next.
_REFUSAL_PATTERNS: Mapping[Asking, re.Pattern[str]] = {
    "tools": re.compile(r"\b(tools?|functions?|tool[_ -](use|call\w*|choice)|function[_ -]call\w*)\b", re.I),
    "schema": re.compile(r"response[_ ]format|json[_ ]?schema|structured[_ ]output|grammar|\bschema\b", re.I),
}

# The size in a model's name, as in qwen2.5-coder:1.5b, Llama-3.2-1B-Instruct.
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z\d])", re.IGNORECASE)

# Names of the context length in model lists: vLLM, OpenRouter, Groq, Mistral, LM Studio.
_WINDOW_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length", "loaded_context_length")

# The probe is minimal, since every token counts on a small machine.
_PROBE_MESSAGES = (Message("user", "Are you ready? Answer with one word, yes or no."),)
_PROBE_TOKENS = 64
_THINKING_PROBE_TOKENS = 2048  # if thinking used up the first limit
_READY = command_schema.object_schema({"ready": {"type": "string", "enum": ["yes", "no"]}})


@dataclasses.dataclass(frozen=True, slots=True)
class Overrides:
    """The user's settings for a model, which override the table and the server.

    `window` is in tokens. `asking` forces the way of asking, or is None to probe.
    """

    temperature: float | None = None
    window: int | None = None
    asking: Asking | None = None
    style: str = ""


class OpenAIModel:
    """Ask a chat model of an endpoint. Satisfies protocols.Model.

    `count` counts tokens if the server reports no usage. On a private endpoint the price is 0. `cache` is the file
    for the model's capabilities. `listener` is notified of retries and silences during a probe.
    """

    def __init__(
        self,
        *,
        name: str,
        endpoint: Endpoint,
        count: Callable[[str], int],
        overrides: Overrides | None = None,
        cache: Path | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._overrides = overrides or Overrides()
        self.name = name
        self.price = endpoint.price(name)
        self._endpoint = endpoint
        self._count = count
        self._is_reasoning = pricing.is_reasoning_model(name)
        self._temperature = None if self._is_reasoning else self._overrides.temperature
        self._cache = cache
        self._listener = listener
        self._prompt_asking: Asking | None = None  # the way of asking that this process's prompts assume
        self._rejects_images = False  # until the model has rejected one
        self._was_reprobed = False  # whether this process has probed again
        self._pending_usage = Usage()  # of probes and interrupted answers, which no completion reports

    @property
    def window(self) -> int:
        """Return the window by settings, table or server, or a low guess, minus the room for reasoning."""
        return self._full_window - self.reasoning_room

    @property
    def reasoning_room(self) -> int:
        """Return the tokens reserved for reasoning, which are added to the limit of a reply."""
        if self._is_reasoning:
            return min(_REASONING_ROOM, self._full_window // 2)
        return min(_REASONING_ROOM, self._full_window // 4) if self._capability.thinks else 0

    @cached_property
    def _full_window(self) -> int:
        if self._overrides.window:
            return self._overrides.window
        if listed := pricing.find_model(self.name):
            return listed.window
        if (entry := self._list_entry) is None:
            return self._capability.window or UNKNOWN_WINDOW
        meta = entry.get("meta")  # llama.cpp
        sizes = [entry.get(key) for key in _WINDOW_KEYS] + ([meta.get("n_ctx")] if isinstance(meta, dict) else [])
        window = next((size for size in map(tokens_in, sizes) if size), UNKNOWN_WINDOW)
        if window != self._capability.window:
            self._update_capability(window=window)
        return window

    @cached_property
    def style(self) -> PromptStyle:
        """Return the configured style, or the style for the model's size as given by name or llama.cpp's list."""
        parameters = None
        if match := _SIZE.search(self.name):
            parameters = float(match[1]) * 1e9
        elif not (pricing.find_model(self.name) or self._overrides.window):
            meta = (self._list_entry or {}).get("meta")
            count = meta.get("n_params") if isinstance(meta, dict) else None
            parameters = count if isinstance(count, int | float) else None  # as it is: a float may not hold it
        return style_for(parameters, self._overrides.style)

    @property
    def asking(self) -> Asking:
        """Return the way of asking, probed once per endpoint and model."""
        return self._asking(self._listener)

    def complete(self, messages: Sequence[Message], **options: Unpack[RequestOptions]) -> Completion:
        """Complete a prompt. Return all tool calls of the answer, to be authorized later."""
        commands, schema, listener = options.get("commands", ()), options.get("schema"), options.get("listener")
        asking = self._asking(listener) if commands or schema else "text"
        if not commands and asking == "tools":
            asking = "text"
        max_reply = options["max_tokens"] + self.reasoning_room
        max_reply = min(max_reply, options.get("at_most") or max_reply)
        first_refusal: Refused | None = None
        changes: list[str] = []  # of the way of asking
        while True:
            sent = self._adapt(messages, asking, commands)
            parameters = self._request_parameters(asking, commands, schema)
            if self._temperature is not None and "temperature" in options:
                parameters = {**parameters, "temperature": options["temperature"]}
            try:
                answer, retries = self._ask(sent, parameters, max_reply, listener, streams_text=True)
            except Refused as refusal:
                first_refusal = first_refusal or refusal
                fallback, reason = self._fallback(asking, first_refusal, listener), str(first_refusal)
            else:
                # Some servers silently ignore tools or a schema.
                obeys = asking == "text" or answer.calls or "{" in answer.text or answer.truncated
                if obeys or self._overrides.asking or self._was_reprobed:
                    break
                if (fallback := self._reprobe(listener)) == asking:
                    break
                self._pending_usage += self._usage(sent, parameters, answer)
                reason = f"{self._endpoint.host} no longer answers requests made by {asking}"
            changes.append(f"{reason}; from now on it is asked by {fallback} (AUTOAGENT_ASKING overrides this)")
            asking = fallback
        if commands and asking != self._capability.asking and not self._overrides.asking:
            self._update_capability(asking=asking)
        usage = self._usage(sent, parameters, answer)
        return Completion(answer.text, usage, answer.calls, answer.truncated, (*retries, *changes))

    def take_usage(self) -> Usage:
        usage, self._pending_usage = self._pending_usage, Usage()
        return usage

    def _asking(self, listener: Listener | None) -> Asking:
        asking = self._overrides.asking or self._capability.asking
        if asking is None:
            asking = self._probe(listener)
            self._update_capability(asking=asking)
        if self._prompt_asking is None:
            self._prompt_asking = asking
        return asking

    def _probe(self, listener: Listener | None) -> Asking:
        """Find the best way of asking that this model supports.

        A refusal that does not mention the way of asking still rules it out if the same request passes without it.
        """
        takes_text = False
        for asking, (parameters, obeys) in _PROBES.items():
            is_supported = False
            try:
                is_supported = obeys(self._answer_to_probe(parameters, listener))
            except Refused as refusal:
                if takes_text or _REFUSAL_PATTERNS[asking].search(refusal.text):
                    continue
                try:
                    self._answer_to_probe({}, listener)
                except Refused:  # plain text is rejected too, so the fault lies elsewhere
                    raise refusal from None
                takes_text = True
                with contextlib.suppress(Refused):  # the fault may have been temporary
                    is_supported = obeys(self._answer_to_probe(parameters, listener))
            if is_supported:
                return asking
        return "text"

    def _answer_to_probe(self, parameters: Mapping[str, Any], listener: Listener | None) -> ResponseParts:
        """Return the answer to a probe. Ask again with a higher limit if thinking used up the first."""
        for limit in (_PROBE_TOKENS, _THINKING_PROBE_TOKENS):
            answer, _ = self._ask(_PROBE_MESSAGES, parameters, limit + self.reasoning_room, listener)
            self._pending_usage += self._usage(_PROBE_MESSAGES, parameters, answer)
            if not parameters or not (answer.truncated and (answer.has_thought or not answer.text)):
                break
        return answer

    def _reprobe(self, listener: Listener | None) -> Asking:
        """Probe again, since the server may have been restarted with other capabilities."""
        self._was_reprobed = True
        old = self._capability
        self._update_capability(asking=None, without=())
        try:
            asking = self._probe(listener)
        except BaseException:  # Ctrl-C too: restore the earlier result
            self._update_capability(asking=old.asking, without=old.without)
            raise
        self._update_capability(asking=asking)
        return asking

    def _fallback(self, asking: Asking, refusal: Refused, listener: Listener | None) -> Asking:
        """Return the way to try after a refusal: a new probe's, then plain text. Raises the refusal if none is left."""
        if self._overrides.asking and asking != "text":
            text = f"{refusal}; AUTOAGENT_ASKING={asking} allows no other way: change it, or unset it"
            raise Refused(text, refusal.param, refusal.text) from refusal
        if asking == "text":
            raise refusal
        if not self._was_reprobed and (new_asking := self._reprobe(listener)) != asking:
            return new_asking
        return "text"

    def _adapt(self, messages: Sequence[Message], asking: Asking, commands: Sequence[CommandSpec]) -> Sequence[Message]:
        """Adapt messages to another way of asking: list the commands, and describe the form of a reply."""
        if not commands or asking == self._prompt_asking:
            return messages
        *before, last = without_calls(messages)
        parts = [last.content]
        if self._prompt_asking == "tools":
            parts.append(command_list(commands))
        if asking == "text":
            parts.append(command_schema.TEXT_FORM)
        return [*before, dataclasses.replace(last, content="\n\n".join(parts))]

    def _ask(
        self,
        messages: Sequence[Message],
        parameters: Mapping[str, Any],
        max_tokens: int,
        listener: Listener | None,
        *,
        streams_text: bool = False,
    ) -> tuple[ResponseParts, tuple[str, ...]]:
        """Return the answer and the reasons for retries. Optional parts that were rejected are omitted from then on.

        With `streams_text`, the listener receives the text.
        """
        on_text = listener.text if streams_text and listener else lambda text: None
        answer = ResponseParts(on_text)

        def read(content_type: str, chunks: Iterable[bytes]) -> ResponseParts:
            answer.read(content_type, chunks)
            return answer

        def give_up() -> None:
            nonlocal answer
            self._pending_usage += self._usage(messages, parameters, answer)
            answer = ResponseParts(on_text)

        without = [*self._capability.without, *([wire.IMAGES] if self._rejects_images else [])]
        is_known = self._capability.asking is not None
        notes: list[str] = []
        while True:
            body = self._body(messages, parameters, max_tokens, without)
            try:
                answer, retries = self._endpoint.post(
                    "/chat/completions", body, read, listener, is_known=is_known, on_charge=give_up
                )
                break
            except Refused as refusal:
                name = wire.refused_parameter(refusal, body) or wire.refused_feature(refusal.text, messages, without)
                if name is None:
                    raise
                without.append(name)
                if name == wire.IMAGES:
                    notes.append(f"{self.name} takes no images ({refusal}); they are left out")
        self._rejects_images = wire.IMAGES in without
        # Image support is probed anew in each run.
        exclusions = tuple(name for name in without if name != wire.IMAGES)
        if exclusions != self._capability.without:
            self._update_capability(without=exclusions)  # only now it is certain that omitting them helped
        if answer.has_thought and not self._capability.thinks:
            self._update_capability(thinks=True)
        return answer, (*retries, *notes)

    def _body(
        self, messages: Sequence[Message], parameters: Mapping[str, Any], max_tokens: int, excluded: Collection[str]
    ) -> dict[str, Any]:
        limits = ["max_tokens", "max_completion_tokens"]
        order = reversed(limits) if self._is_reasoning else limits
        limit = next((name for name in order if name not in excluded), None)
        body: dict[str, Any] = {
            "model": self.name,
            "messages": wire.encode_messages(
                messages, excluded if "tools" in parameters else (*excluded, wire.TOOL_MESSAGES)
            ),
            "stream": True,
            "stream_options": {"include_usage": True},
            **parameters,
        }
        if limit:
            body[limit] = max_tokens
        if self._temperature is not None:
            body.setdefault("temperature", self._temperature)
        if "stream" in excluded:
            del body["stream_options"]
        if "strict" in excluded and "response_format" in body:
            json_schema = dict(parameters["response_format"]["json_schema"])
            del json_schema["strict"]
            body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        return {name: value for name, value in body.items() if name not in excluded}

    def _usage(self, messages: Sequence[Message], parameters: Mapping[str, Any], answer: ResponseParts) -> Usage:
        """Return the server's usage, with our own count in place of missing or wrong numbers.

        Tool definitions count as part of the prompt. A schema does not, as it only constrains sampling.
        """
        reported = answer.usage or {}
        prompt, completion = tokens_in(reported.get("prompt_tokens")), tokens_in(reported.get("completion_tokens"))
        if not prompt:  # a prompt always has tokens
            prompt = sum(self._count(message.content) + TOKENS_PER_MESSAGE for message in messages)
            prompt += sum(self._count(call.name + call.arguments) for message in messages for call in message.calls)
            prompt += self._count(json.dumps(parameters["tools"])) if "tools" in parameters else 0
        if completion is None:
            completion = self._count(answer.text) + sum(self._count(c.name + c.arguments) for c in answer.calls)
            completion += self._count(answer.reasoning)
        details = reported.get("prompt_tokens_details")
        cached_tokens = min(prompt, tokens_in(details.get("cached_tokens")) or 0) if isinstance(details, dict) else 0
        return Usage(prompt, completion, cached_tokens, pricing.cost_of(self.price, prompt, completion, cached_tokens))

    @cached_property
    def _list_entry(self) -> Mapping[str, Any] | None:
        """Return the model's entry in the endpoint's list, or None without a list. Requested once."""
        try:
            entries = self._endpoint.models()
        except (ModelError, SetupError):  # the list is optional; real problems appear at the first completion
            return None
        # a server of one model may answer to any name
        return next((m for m in entries if m["id"] == self.name or len(entries) == 1), {})

    def _request_parameters(
        self, asking: Asking, commands: Sequence[CommandSpec], schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the parameters that request one of these commands, or an answer matching the schema."""
        thoughts = command_schema.THOUGHTS if self.style.thinks else ()
        if asking == "tools" and commands:
            return wire.tool_parameters(command_schema.tools(commands, thoughts))
        if asking == "schema" and commands:
            return wire.schema_parameters("reply", wire.strict_schema(command_schema.reply(commands, thoughts)))
        return wire.schema_parameters("answer", wire.strict_schema(schema)) if asking == "schema" and schema else {}

    @cached_property
    def _capability(self) -> Capability:
        return capabilities.load(self._cache, self._endpoint.base_url, self.name)

    def _update_capability(self, **changes: Any) -> None:
        self._capability = dataclasses.replace(self._capability, **changes)
        capabilities.save(self._cache, self._endpoint.base_url, self.name, self._capability)


def _says_ready(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and "ready" in value


_ANSWER = {"type": "function", "function": {"name": "answer", "description": "Answer", "parameters": _READY}}
_PROBES: Mapping[Asking, tuple[dict[str, Any], Callable[[ResponseParts], bool]]] = {  # the best way first
    "tools": (
        wire.tool_parameters([_ANSWER]),
        lambda answer: any(call.name == "answer" and _says_ready(call.arguments) for call in answer.calls),
    ),
    "schema": (wire.schema_parameters("probe", _READY), lambda answer: _says_ready(answer.text)),
}
