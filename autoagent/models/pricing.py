"""Look up prices and context lengths of hosted models by name, and whether they reason.

A model that is not listed has an unknown price, never 0. OpenAI's prices are from its list of November 2026 (standard
processing, no discontinued models), those of other makers from February 2026. Open weights are not listed, as their
price depends on the host. Not covered: the surcharge for writing to the prompt cache, and long prompts. Newer models
cost double from 200,000 or 272,000 tokens on, so their window ends there.
"""

from __future__ import annotations

import re

from autoagent.core.frozen import dataclass
from autoagent.core.model import Price


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model's price and its context length, for prompt and reply together, in tokens."""

    price: Price
    window: int


# name: prompt, completion, cached (USD per million tokens), window
_TABLE: dict[str, tuple[float, float, float, int]] = {
    "gpt-6-astra": (10.0, 50.0, 1.0, 272_000),             "gpt-6.1-sol": (2.0, 10.0, 0.1, 272_000),
    "gpt-6-sol": (2.0, 10.0, 0.2, 272_000),                "gpt-6-luna": (0.1, 0.5, 0.01, 272_000),
    "gpt-5.6-sol": (4.0, 20.0, 0.4, 272_000),              "gpt-5.6-terra": (2.0, 12.0, 0.2, 272_000),
    "gpt-5.6-luna": (0.2, 1.2, 0.02, 272_000),             "gpt-5.5": (5.0, 30.0, 0.5, 272_000),
    "gpt-5.4": (2.5, 15.0, 0.25, 272_000),                 "gpt-5.4-mini": (0.75, 4.5, 0.075, 400_000),
    "gpt-5.4-nano": (0.2, 1.25, 0.02, 400_000),            "gpt-5.2": (1.75, 14.0, 0.175, 400_000),
    "gpt-5.1": (1.25, 10.0, 0.125, 400_000),               "gpt-5": (1.25, 10.0, 0.125, 400_000),
    "gpt-5-mini": (0.25, 2.0, 0.025, 400_000),             "gpt-5-nano": (0.05, 0.4, 0.005, 400_000),
    "gpt-4.1": (2.0, 8.0, 0.5, 1_047_576),                 "gpt-4.1-mini": (0.4, 1.6, 0.1, 1_047_576),
    "gpt-4o": (2.5, 10.0, 1.25, 128_000),                  "gpt-4o-mini": (0.15, 0.6, 0.075, 128_000),
    "o3": (2.0, 8.0, 0.5, 200_000),                        "claude-opus-4-6": (5.0, 25.0, 0.5, 200_000),
    "claude-opus-4-5": (5.0, 25.0, 0.5, 200_000),          "claude-opus-4-1": (15.0, 75.0, 1.5, 200_000),
    "claude-sonnet-4-5": (3.0, 15.0, 0.3, 200_000),        "claude-sonnet-4": (3.0, 15.0, 0.3, 200_000),
    "claude-haiku-4-5": (1.0, 5.0, 0.1, 200_000),          "gemini-3-pro-preview": (2.0, 12.0, 0.2, 200_000),
    "gemini-3-flash-preview": (0.5, 3.0, 0.05, 1_048_576), "gemini-2.5-pro": (1.25, 10.0, 0.125, 200_000),
    "gemini-2.5-flash": (0.3, 2.5, 0.03, 1_048_576),       "gemini-2.5-flash-lite": (0.1, 0.4, 0.01, 1_048_576),
    "mistral-large-2512": (0.5, 1.5, 0.5, 256_000),        "mistral-medium-latest": (0.4, 2.0, 0.4, 131_072),
    "mistral-small-latest": (0.1, 0.3, 0.1, 32_000),       "codestral-2508": (0.3, 0.9, 0.3, 256_000),
    "deepseek-chat": (0.28, 0.42, 0.028, 128_000),         "deepseek-reasoner": (0.28, 0.42, 0.028, 128_000),
    "grok-4": (3.0, 15.0, 3.0, 256_000),                   "grok-4-1-fast": (0.2, 0.5, 0.05, 2_000_000),
    "grok-code-fast-1": (0.2, 1.5, 0.02, 256_000),         "text-embedding-3-small": (0.02, 0.0, 0.02, 8_191),
    "text-embedding-3-large": (0.13, 0.0, 0.13, 8_191),    "text-embedding-ada-002": (0.1, 0.0, 0.1, 8_191),
}  # fmt: skip

_REASONING = re.compile(r"(o\d|gpt-[5-9])(?!.*-chat)")
_SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")


def chat_model_names() -> list[str]:
    """Return the names of the chat models in the table, without embedders."""
    return [name for name, row in _TABLE.items() if row[1]]


def find_model(model: str) -> KnownModel | None:
    """Return a model's entry, also for dated snapshots, vendor prefixes (`openai/gpt-5`) and dots for dashes."""
    name = _SNAPSHOT.sub("", model.rpartition("/")[2].lower())
    row = _TABLE.get(name) or _TABLE.get(name.replace(".", "-"))
    return KnownModel(Price(*row[:3]), row[3]) if row else None


def is_reasoning_model(model: str) -> bool:
    """Return whether a model thinks before it answers. It then takes `max_completion_tokens` and no temperature."""
    return _REASONING.match(model.rpartition("/")[2].lower()) is not None


def cost_of(price: Price | None, prompt: int, completion: int, cached: int) -> float | None:
    """Return the cost in USD, or None without a price. `cached` tokens are part of the prompt."""
    if price is None:
        return None
    return ((prompt - cached) * price.prompt + cached * price.cached + completion * price.completion) / 1e6
