"""Find the models of an OpenAI-compatible server, and the servers running on this machine."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from urllib.parse import urlsplit

from autoagent.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Hosted:
    """Describe a provider with an OpenAI-compatible address. `keys_url` is the page where keys are created."""

    name: str
    base_url: str
    key_variable: str
    keys_url: str


HOSTED = (  # base_url and key_variable from each provider's documentation
    Hosted("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "https://platform.openai.com/api-keys"),
    Hosted("Anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY",
           "https://console.anthropic.com/settings/keys"),
    Hosted("Gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY",
           "https://aistudio.google.com/apikey"),
    Hosted("OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "https://openrouter.ai/keys"),
    Hosted("Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "https://console.mistral.ai/api-keys"),
    Hosted("Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "https://console.groq.com/keys"),
    Hosted("DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "https://platform.deepseek.com/api_keys"),
)  # fmt: skip
USUAL_PORTS = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080, "vLLM": 8000}
_MAX_BYTES = 4_000_000  # bytes of an answer; OpenRouter's list of models has about a megabyte


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answered, and the names of its models."""

    name: str
    base_url: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The answer to a request: the HTTP status and the JSON body, or status 0 and the problem."""

    status: int
    body: Any = None
    problem: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names in an answer to `GET /models`, or () for any other answer."""
        data = self.body.get("data") if isinstance(self.body, dict) else None
        rows = data if isinstance(data, list) else []
        names = (str(row["id"]) for row in rows if isinstance(row, dict) and row.get("id"))
        return tuple(name for name in names if name.isprintable())  # others could imitate the program's own output


def request(base_url: str, path: str, key: str = "", body: Any = None, timeout: float = 10.0) -> ProbeAnswer:
    """Send a single request without proxies, redirects or retries. POST if there is a body. Never raises.

    `timeout` applies to each wait, in seconds. All of it takes at most twice as long, even if a server trickles bytes.
    """
    import http.client
    import socket
    import ssl

    from autoagent.network.connections import Deadline

    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    payload = None if body is None else json.dumps(body)
    if payload is not None:
        headers["Content-Type"] = "application/json"
    deadline = Deadline(2 * timeout)
    try:
        address = urlsplit(base_url)
        connection_class = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        if not address.hostname:
            return ProbeAnswer(0, problem="the address has no host name")
        connection = connection_class(address.hostname, address.port)
        with deadline, contextlib.closing(connection):
            sock = socket.create_connection((connection.host, connection.port), timeout)
            connection.sock = sock
            deadline.watch(sock)  # before waiting for the first byte, even of a handshake
            if address.scheme == "https":
                connection.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=connection.host)
            connection.request("POST" if payload else "GET", address.path.rstrip("/") + path, payload, headers)
            with connection.getresponse() as response:
                content = response.read(_MAX_BYTES + 1)
        if deadline.passed:  # closing the connection looks like the end of the answer
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: an invalid port or host
        if deadline.passed or isinstance(error, TimeoutError):
            return ProbeAnswer(0, problem="no complete answer arrived in time")
        return ProbeAnswer(0, problem=str(error) or type(error).__name__)
    if len(content) > _MAX_BYTES:
        return ProbeAnswer(response.status, problem=f"the answer is larger than {_MAX_BYTES // 1_000_000} MB")
    try:
        return ProbeAnswer(response.status, json.loads(content))
    except (ValueError, RecursionError):  # RecursionError: nested too deeply to be genuine
        return ProbeAnswer(response.status, problem="the answer is not JSON")


def list_models(base_url: str, key: str = "", timeout: float = 10.0) -> ProbeAnswer:
    """Request `GET /models`."""
    return request(base_url, "/models", key, timeout=timeout)


def find_servers(ports: dict[str, int] | None = None, timeout: float = 0.3) -> tuple[Server, ...]:
    """Find the model servers on the usual ports of this machine.

    Ports are tried in turn: a closed port refuses at once, and only a silent port takes `timeout` seconds.
    """
    servers = []
    for name, port in (USUAL_PORTS if ports is None else ports).items():
        base_url = f"http://127.0.0.1:{port}/v1"
        answer = list_models(base_url, timeout=timeout)
        if answer.status == 200 and isinstance(answer.body, dict) and isinstance(answer.body.get("data"), list):
            servers.append(Server(name, base_url, answer.models))
    return tuple(servers)
