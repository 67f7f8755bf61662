"""Open an endpoint, its models and its embedders from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from autoagent.core.errors import ModelError, SetupError
from autoagent.models.openai.endpoint import Endpoint
from autoagent.models.openai.retry import RetryPolicy
from autoagent.registry.models import ModelSettings
from autoagent.registry.registrations import HOST_HOOKS
from autoagent.settings import EMBEDDER
from autoagent.text.tokens import counter

if TYPE_CHECKING:
    from autoagent.core.model import Asking
    from autoagent.models.openai.chat import OpenAIModel
    from autoagent.models.openai.embeddings import OpenAIEmbedder
    from autoagent.registry.embedders import EmbedderOpening
    from autoagent.registry.models import ModelOpening

UNATTENDED_PATIENCE = 600.0  # seconds of retrying a failing endpoint without a user
ATTENDED_PATIENCE = 60.0  # seconds of retrying before the user is asked whether to wait
EMBEDDING_SILENCE = 10.0  # seconds that a step waits for a silent embedder


def open_endpoint(settings: ModelSettings, policy: RetryPolicy | None = None, silence: float = 0.0) -> Endpoint:
    """Open the configured endpoint. Raises SettingsError, SetupError.

    A `policy` replaces the configured patience. `silence` applies if none is configured.
    """
    if policy is None and settings.patience:
        policy = RetryPolicy(patience=settings.patience, first_patience=settings.patience)
    return Endpoint(
        api_key=settings.api_key,
        base_url=settings.base_url,
        organization=settings.organization,
        silence=settings.silence or silence,
        policy=policy or RetryPolicy(patience=UNATTENDED_PATIENCE if settings.continuous else ATTENDED_PATIENCE),
        request_hook=HOST_HOOKS.get("request"),
    )


def open_model(opening: ModelOpening) -> OpenAIModel:
    """Open the endpoint's model named by the argument, or SMART_LLM. Raises as `open_endpoint`."""
    from autoagent.models.openai.chat import OpenAIModel, Overrides

    settings = opening.settings
    name = opening.argument or settings.smart
    fast_window = settings.fast_window if name == settings.fast else 0
    return OpenAIModel(
        name=name,
        endpoint=open_endpoint(settings),
        count=counter(name),
        overrides=Overrides(
            temperature=settings.temperature,
            window=fast_window or settings.window or None,
            asking=cast("Asking", settings.asking) if settings.asking else None,
            style=settings.style,
        ),
        cache=settings.state_dir / "models.json",
        listener=opening.listener,
    )


def model_names(settings: ModelSettings) -> list[str]:
    """Return the names that the endpoint lists, or []. Raises as `open_endpoint`."""
    endpoint = open_endpoint(settings)
    try:
        return sorted(str(model["id"]) for model in endpoint.models())
    except (ModelError, SetupError):
        return []


def open_embedder(opening: EmbedderOpening) -> OpenAIEmbedder:
    """Open the endpoint's embedder named by the argument, or OpenAI's default. Raises as `open_endpoint`."""
    from autoagent.models.openai.embeddings import OpenAIEmbedder

    settings = opening.settings
    # A skipped text is embedded later, and found by its words.
    no_retries = RetryPolicy(patience=0.0, first_patience=0.0)
    model, endpoint = opening.argument or EMBEDDER, open_endpoint(settings, no_retries)
    quick_endpoint = open_endpoint(settings, no_retries, EMBEDDING_SILENCE)
    return OpenAIEmbedder(
        model=model, endpoint=endpoint, count=counter(model), listener=opening.listener, quick_endpoint=quick_endpoint
    )
