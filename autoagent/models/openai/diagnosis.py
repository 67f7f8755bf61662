"""Report for `autoagent doctor` whether an endpoint answers, accepts the key, and has the models."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from autoagent.core.services import Finding
from autoagent.models.openai.capabilities import Capability, load
from autoagent.models.servers import list_models, request
from autoagent.network.addresses import is_private
from autoagent.registry.models import ModelSettings
from autoagent.settings import EMBEDDER, OPENAI_URL


def examine(settings: ModelSettings, model: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Ask the endpoint for its models. `model` is the chosen model, '' for SMART_LLM."""
    base_url, key, smart = settings.base_url or OPENAI_URL, settings.api_key, model or settings.smart
    if not (key or settings.base_url):
        fix = "run `autoagent setup`; or set OPENAI_API_KEY; or pass --model local (no key, 1.1 GB once)"
        yield Finding("model", "fail", "no key, server or embedded model is chosen", fix)
        return
    if base_url.startswith("https:"):
        paths = ssl.get_default_verify_paths()
        if paths.cafile or (paths.capath and any(Path(paths.capath).iterdir())):
            yield Finding("certificates", "ok", str(paths.cafile or paths.capath))
        else:
            fix = "install the package ca-certificates"
            yield Finding("certificates", "fail", "this system has no CA certificates", fix)
    answer = list_models(base_url, key)
    if answer.status == 0:
        problem = f"{base_url} cannot be reached: {answer.problem}"
        if env.get("HTTPS_PROXY") or env.get("https_proxy"):
            yield Finding("model", "warn", f"{problem} (without the proxy, which this check does not use)")
        else:
            yield Finding("model", "fail", problem, "start the server, or correct OPENAI_BASE_URL")
    elif answer.status in (401, 403):
        problem = f"{base_url} refuses the key" if key else f"{base_url} requires a key"
        yield Finding("model", "fail", problem, "set OPENAI_API_KEY to a valid key of this endpoint")
    elif answer.status != 200 or not answer.models:
        problem = f"{base_url} answers, but does not list models (HTTP {answer.status})"
        yield Finding("model", "warn", problem, "if the first step fails, check the address; most end in /v1")
    elif not _includes(answer.models, smart):
        fix = f"set SMART_LLM to one of: {first_names(answer.models)}"
        yield Finding("model", "fail", f"{base_url} has no model {smart}", fix)
    elif not _includes(answer.models, settings.fast):
        fix = f"set FAST_LLM to one of: {first_names(answer.models)}"
        yield Finding("model", "warn", f"{base_url} has {smart}, but no {settings.fast}", fix)
    else:
        yield Finding("model", "ok", f"{smart} at {base_url}")


def alternatives(settings: ModelSettings, model: str, *, named: bool) -> tuple[str, ...]:
    """Return the models of an endpoint that lacks this one, or () if it has it or does not list models quickly.

    A model that the user has `named` is checked only on the user's own servers, and only until it was used there, as
    some lists omit working models.
    """
    endpoint = settings.base_url.rstrip("/")
    try:
        is_own = is_private(urlsplit(endpoint).hostname or "")
    except ValueError:  # an invalid address, reported when it is opened
        return ()
    was_used = load(settings.state_dir / "models.json", endpoint, model) != Capability()
    if named and (was_used or not is_own):
        return ()
    names = list_models(endpoint, settings.api_key, timeout=3.0).models
    return () if _includes(names, model) else tuple(name for name in names if re.fullmatch(r"\S{1,100}", name))


def _includes(names: Sequence[str], model: str) -> bool:
    return model in names or f"{model}:latest" in names


def first_names(names: Sequence[str]) -> str:
    """Return the first names, for a message."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def examine_embedder(settings: ModelSettings, model: str) -> Iterator[Finding]:
    """Request a vector from the model, '' for OpenAI's default."""
    name, base_url = model or EMBEDDER, settings.base_url or OPENAI_URL
    answer = request(base_url, "/embeddings", settings.api_key, {"model": name, "input": "doctor"})
    if answer.status == 200 and isinstance(answer.body, dict) and answer.body.get("data"):
        yield Finding("embedder", "ok", f"{name} at {base_url}")
        return
    problem = f"{base_url} provides no embeddings with {name} ({answer.problem or f'HTTP {answer.status}'})"
    yield Finding("embedder", "warn", problem, "set EMBEDDING_MODEL to one that the endpoint has")
