"""What can be chosen by name, and the model string, which is parsed in one place."""

from __future__ import annotations

import pytest

from autoagent.registry.models import PROVIDERS, parse_model
from autoagent.registry.sandbox import AUTO, KINDS, is_stronger


@pytest.mark.parametrize(
    ("text", "provider", "argument", "harmless"),
    [
        ("", "openai", "", True),
        ("openai", "openai", "", True),
        ("gpt-6.1-sol", "openai", "gpt-6.1-sol", True),
        ("qwen3:8b", "openai", "qwen3:8b", True),  # as Ollama names its models
        ("openai:gpt", "openai", "openai:gpt", True),
        ("local", "local", "", True),
        ("local:a:b.gguf", "local", "a:b.gguf", False),
        ("replay:2026", "replay", "2026", False),
        ("human", "human", "", True),
        ("demo", "demo", "", True),
    ],
)
def test_a_model_is_parsed_into_provider_and_argument(text: str, provider: str, argument: str, harmless: bool) -> None:
    choice = parse_model(text)
    assert (choice.provider.name, choice.argument, choice.is_harmless) == (provider, argument, harmless)


@pytest.mark.parametrize("text", ["human:me", "demo:", "demo:x"])
def test_nothing_stands_behind_a_provider_that_takes_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=f"^nothing may follow {text[:4]}"):
        parse_model(text)


def test_a_sandbox_is_stronger_where_it_holds_no_less_wherever_it_works() -> None:
    names = [AUTO, *(kind.name for kind in KINDS.builtin)]
    assert {(name, than) for name in names for than in names if is_stronger(name, than)} == {
        ("bubblewrap", "auto"),
        ("bubblewrap", "landlock"),
        ("auto", "none"),
        ("bubblewrap", "none"),
        ("landlock", "none"),
    }


def test_what_is_offered_at_the_first_start_needs_nothing_more_to_be_said() -> None:
    assert all(parse_model(provider.name).is_harmless for provider in PROVIDERS.builtin if provider.offered)
