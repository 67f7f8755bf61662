"""Compute the cost of a picture or transcript from the reported usage and OpenAI's prices as of November 2026.

A model that is not listed here, an answer that says nothing of its use, and another company's prices are not known:
their cost is None, never 0. On a machine of one's own nothing costs anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autoagent.extension import ApiProvider

_PICTURES = re.compile(r"gpt-image-2(\.[56]-(flare|sunburst))?")
_PROMPT, _PICTURE = 5.0, 30.0  # USD per million tokens
_MINUTES = {"gpt-transcribe": 0.0045, "whisper-1": 0.006}  # USD per minute of a recording
_MAX_FIGURE = 1e9  # tokens or seconds of one answer; a larger number is not plausible
_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$")


def of_picture(provider: ApiProvider, model: str, answer: Mapping[str, Any]) -> float | None:
    """Return the cost in USD of a picture drawn from words only."""
    if provider.is_private:
        return 0.0
    usage = _usage(answer)
    prompt, picture = _number(usage.get("input_tokens")), _number(usage.get("output_tokens"))
    if prompt is None or picture is None or not _PICTURES.fullmatch(_SNAPSHOT.sub("", model)):
        return None
    return (prompt * _PROMPT + picture * _PICTURE) / 1e6


def of_transcript(provider: ApiProvider, model: str, answer: Mapping[str, Any]) -> float | None:
    """Return the cost in USD of a transcript."""
    if provider.is_private:
        return 0.0
    seconds, price = _number(_usage(answer).get("seconds")), _MINUTES.get(model)
    return None if seconds is None or price is None else seconds / 60 * price


def elsewhere(provider: ApiProvider) -> float | None:
    """Return the cost in USD for a provider whose prices are unknown."""
    return 0.0 if provider.is_private else None


def _usage(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) else {}


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) and 0 <= value <= _MAX_FIGURE else None
