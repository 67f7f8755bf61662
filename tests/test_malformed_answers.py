"""Whatever an endpoint or a provider answers, its reader gives typed parts or one of our errors: nothing else.

The answers are the usual ones in which anything may be anything else: a value of another type, one that is nested too
deeply, a number of hundreds of digits, half a character, or bytes that are no JSON at all.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from typing import Any

import pytest
from autoagent_media.charges import of_picture, of_transcript
from autoagent_media.images import decoded, draw_openai, draw_web_ui
from autoagent_media.speech import ElevenLabsVoice
from autoagent_media.transcription import Recording, hear_openai, text_of
from fuzzing import FEW, MANY
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_answers import Raw, RawServer

from autoagent.core.errors import CommandError, ForUser, ReplyError
from autoagent.core.model import Message
from autoagent.models.openai.chat import OpenAIModel
from autoagent.models.openai.embeddings import OpenAIEmbedder
from autoagent.models.openai.endpoint import Endpoint, RequestTimeouts
from autoagent.models.openai.retry import RetryPolicy
from autoagent.reply.parser import parse, written
from autoagent.services.api_client import ApiProvider
from autoagent.settings import all_settings

HELLO = (Message("user", "Say hello."),)

# Written into the JSON as they stand: no value of Python's gives them.
RAW_VALUES = {
    "@deep list": "[" * 100_000 + "]" * 100_000, "@deep object": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "@less deep": '{"a":[' * 400 + "1" + "]}" * 400, "@digits": "1" + "0" * 400, "@more digits": "9" * 5_000,
    "@infinite": "1e999", "@tiny": "-1e-320", "@half": '"\\ud800"', "@cut": '{"a": [1, ',
}  # fmt: skip

NAMES = """arguments choices code content data delta embedding error finish_reason function
    id index message name param prompt_tokens text tool_calls type usage"""
_names = st.sampled_from(NAMES.split())
_words = st.sampled_from([*RAW_VALUES, "", "stop", "error", "{}", '{"a": 1}', "[DONE]"])
_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _words
anything = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def like(usual: Any) -> st.SearchStrategy[Any]:
    """The usual value, in which any part may be missing, or anything else."""
    if isinstance(usual, dict):
        same = st.fixed_dictionaries({}, optional={name: like(value) for name, value in usual.items()})
        return same | same | same | anything
    if isinstance(usual, list):
        same_list = st.lists(st.one_of([like(value) for value in usual]), max_size=4)
        return same_list | same_list | same_list | anything
    return st.just(usual) | st.just(usual) | st.just(usual) | st.sampled_from(list(RAW_VALUES)) | anything


def encoded(value: Any) -> bytes:
    """The value as JSON, with the raw values in the place of their names."""
    text = json.dumps(value)
    for name, raw in RAW_VALUES.items():
        text = text.replace(f'"{name}"', raw, 2)  # more of them would only be longer
    return text.encode()


CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "do_nothing", "arguments": '{"a": 1}'}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
SAID = {
    "role": "assistant",
    "content": [{"type": "text", "text": "Hi."}, {"type": "thinking", "thinking": [{"text": "Hm."}]}],
    "refusal": None,
    "reasoning": "Hm.",
    "reasoning_content": "Hm.",
    "tool_calls": [CALL, {**CALL, "index": None}],
    "function_call": {"name": "do_nothing", "arguments": {"a": 1}},
}
ERROR = {"message": "Something is wrong.", "code": 500, "param": "tools", "type": "server_error"}
WHOLE = {"choices": [{"index": 0, "message": SAID, "finish_reason": "stop"}], "usage": USAGE, "error": None}
CHUNK = {"choices": [{"index": 0, "delta": SAID, "finish_reason": "stop"}], "usage": USAGE, "error": None}
LAST = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

JSON = ("application/json", "text/json; charset=utf-16", "application/x-ndjson")
STREAM = ("text/event-stream", "", "text/html")


def body_of(value: Any) -> st.SearchStrategy[bytes]:
    return st.builds(encoded, like(value)) | st.builds(encoded, like(value)) | st.binary(max_size=50)


def events_of(chunks: list[bytes]) -> bytes:
    return b"".join(b"data: %s\n\n" % chunk for chunk in chunks)


whole_answers = st.builds(Raw, body_of(WHOLE), media_type=st.sampled_from(JSON))
streams = st.builds(
    lambda chunks, ended, media_type: Raw(events_of([*chunks, *([encoded(LAST)] if ended else [])]), 200, media_type),
    st.lists(body_of(CHUNK), max_size=4),
    st.booleans(),
    st.sampled_from(STREAM),
)
refusals = st.builds(
    Raw,
    body_of({"error": ERROR}) | body_of(ERROR),
    status=st.sampled_from([301, 307, 308, 400, 401, 402, 404, 413, 422, 429, 500, 501, 503, 599]),
    headers=st.dictionaries(
        st.sampled_from(["Location", "Retry-After", "x-should-retry", "Content-Encoding"]),
        st.sampled_from(["0", "true", "1e400", "gzip", "/v1", "http://[", "//", "http://127.0.0.1:99999/", "\u00e9"]),
        max_size=2,
    ),
)
lists_of_models = st.builds(
    Raw, body_of({"object": "list", "data": [{"id": "m", "max_model_len": 4096, "meta": {"n_ctx": 4096}}, {"id": "n"}]})
)
EMBEDDING = {"object": "embedding", "index": 0, "embedding": [0.5, 1, -2.0, 1e300]}
embedded = st.builds(Raw, body_of({"data": [EMBEDDING, {**EMBEDDING, "index": 1}], "usage": {"prompt_tokens": 2}})) | (
    st.lists(st.integers() | st.floats() | st.sampled_from(list(RAW_VALUES)), max_size=4).map(
        lambda values: Raw(encoded({"data": [{"embedding": values}] * 2}))
    )
)
PICTURE = "iVBORw0KGgo="
DRAWN = {"data": [{"b64_json": PICTURE}], "images": [PICTURE], "usage": {"input_tokens": 3, "output_tokens": 1.5}}
drawings = st.builds(Raw, body_of(DRAWN))
transcripts = st.builds(Raw, body_of({"text": "Hello.", "usage": {"type": "duration", "seconds": 3}}))


@pytest.fixture(scope="module")
def raw() -> Iterator[RawServer]:
    with RawServer() as server:
        yield server


@cache
def endpoint_of(server: RawServer) -> Endpoint:
    """One for all answers: a client is slow to make. It tries three times, and waits for nothing in between."""
    return Endpoint(
        api_key="sk-test-1234567890abcdef",
        base_url=server.base_url,
        timeouts=RequestTimeouts(connect=2.0, silence=5.0, total=10.0),
        policy=RetryPolicy(patience=2.0, first_patience=2.0, sleep=lambda seconds: None, timer=count(0.0).__next__),
    )


def chat(raw: RawServer) -> None:
    done = OpenAIModel(name="m", endpoint=endpoint_of(raw), count=len).complete(HELLO, max_tokens=9)
    for text in (done.text, *(part for call in done.calls for part in (call.name, call.arguments))):
        text.encode()
    usage = done.usage
    assert 0 <= usage.cached <= usage.prompt <= 10**9 and 0 <= usage.completion <= 10**9
    assert usage.cost is not None and math.isfinite(usage.cost)
    written(done).encode()
    try:
        reply = parse(done, lambda call: call, "1")
    except ReplyError as error:
        str(error).encode()
    else:
        json.dumps([reply.call.args, reply.text, reply.more], ensure_ascii=False).encode()


def probe(raw: RawServer) -> None:
    assert OpenAIModel(name="m", endpoint=endpoint_of(raw), count=len).asking in ("tools", "schema", "text")


def listed(raw: RawServer) -> None:
    at = endpoint_of(raw)
    assert all(isinstance(model["id"], str) for model in at.models())
    window = OpenAIModel(name="m", endpoint=at, count=len).window
    assert isinstance(window, int) and 0 < window <= 10**9


def embeddings(raw: RawServer) -> None:
    vectors, usage = OpenAIEmbedder(model="m", endpoint=endpoint_of(raw), count=len).embed(["one", "two"])
    assert [len(vector) % 4 for vector in vectors] == [0, 0]
    for vector in vectors:
        values = struct.unpack(f"<{len(vector) // 4}f", vector)
        assert math.isclose(math.hypot(*values), 1.0, abs_tol=1e-3)
    assert usage.prompt >= 0 and usage.cost == 0.0


def provider_of(raw: RawServer) -> ApiProvider:
    return ApiProvider(name="The provider", url=raw.base_url, url_variable="URL")


def pictures(raw: RawServer) -> None:
    for draw in (draw_openai, draw_web_ui):
        sent, _ = draw(provider_of(raw), partial(getattr, all_settings()()), "a cat")
        assert isinstance(decoded("The server", sent), bytes)


def transcript(raw: RawServer) -> None:
    recording = Recording(b"RIFF", "audio/wav", ".wav")
    sent, _ = hear_openai(provider_of(raw), partial(getattr, all_settings()()), recording)
    text_of("The server", sent).encode()


def voices(raw: RawServer) -> None:
    with ElevenLabsVoice(provider_of(raw), players=(("true",),)).utter("Hello."):
        """The sound is in a file."""


def charges_elsewhere(raw: RawServer) -> None:
    """The figures of an answer, as if it came from a server that is not free."""
    far = ApiProvider(name="The provider", url="https://api.openai.com/v1", url_variable="URL")
    answer = provider_of(raw).post("/x").fields()
    for cost in (of_picture(far, "gpt-image-2", answer), of_transcript(far, "whisper-1", answer)):
        assert cost is None or (math.isfinite(cost) and cost >= 0)


OURS = (ForUser,)
EDGES: dict[str, tuple[st.SearchStrategy[Raw], Callable[[RawServer], None], tuple[type[Exception], ...]]] = {
    "chat in one piece": (whole_answers, chat, OURS),
    "chat as a stream": (streams, chat, OURS),
    "a refusal": (refusals, chat, OURS),
    "the probe": (whole_answers | streams | refusals, probe, OURS),
    "the list of models": (lists_of_models | refusals, listed, OURS),
    "embeddings": (embedded | refusals, embeddings, OURS),
    "pictures": (drawings | refusals, pictures, (CommandError,)),
    "a transcript": (transcripts | refusals, transcript, (CommandError,)),
    "voices": (body_of({"voices": [{"voice_id": "v1"}]}).map(Raw) | refusals, voices, (CommandError,)),
    "what a provider charges": (drawings | transcripts, charges_elsewhere, (CommandError,)),
}


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow, id="many")])
@pytest.mark.parametrize("edge", EDGES)
def test_whatever_is_answered_is_read_or_refused(raw: RawServer, edge: str, examples: int) -> None:
    answers, read, errors = EDGES[edge]

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(answers)
    def each(answer: Raw) -> None:
        raw.answer = answer
        try:
            read(raw)
        except errors as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 1000

    each()
