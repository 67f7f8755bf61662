"""Serve the live page: an ASGI application over the logs of one state folder, only for the person at this machine.

Every request must name this server as its host and bear the token of this start: at first in the printed link, then in
a cookie. Requests for changes must come from our own pages (Origin). No file is served by its path, and all content of
a run is text in JSON, displayed by the pages' script as text.

Not covered: a program of the same user, as it can read the token just as it can read the logs; and another server on
127.0.0.1 visited in the same browser, since cookies do not distinguish ports.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.responses import StreamingResponse as Stream
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoagent.core.errors import ForUser, SettingsError, SetupError, StateError
from autoagent.log.reader import log_path, run_ids
from autoagent.text.sanitize import escape, escape_json, fold_blanks, script_notes
from autoagent.web.actions import Actions, is_locked
from autoagent.web.logs import LiveRun, RunList
from autoagent.web.page import asset

POLL_SECONDS = 0.25  # between two polls of a log
LIST_POLL_SECONDS = 1.0  # between two polls of the list of runs
KEEP_ALIVE_SECONDS = 15.0  # of silence in a stream
MAX_STEPS = 200  # per answer
MAX_REQUEST_BYTES = 200_000

_ASSETS = ("pages.css", "pages.js", "timeline.js", "view.css", "view.js")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_ALIVE = "event: alive\ndata:\n\n"
_NO_RUN = PlainTextResponse("No such run.", 404)
_NO_PAGE = PlainTextResponse("No such page.", 404)


def application(
    state_dir: Path, actions: Actions, token: str, hosts: Collection[str], *, secure: bool = False
) -> ASGIApp:
    """Return the application.

    `token` is the secret that every request must bear. `hosts` are the valid names of this server, with its port, such
    as `127.0.0.1:8000`. `secure` is whether it is served over TLS.
    """
    pages = _Pages(state_dir, actions)
    routes = [
        Route("/", pages.page),
        Route("/runs/{run}", pages.page),
        Route("/events", pages.stream_runs),
        Route("/runs/{run}/events", pages.follow_run),
        Route("/runs/{run}/{what}", pages.look_up),
        Route("/act", pages.act, methods=["POST"]),
        *(Route(f"/{name}", partial(_send_asset, name)) for name in _ASSETS),
    ]
    return _Guard(Starlette(routes=routes), token, frozenset(hosts), secure=secure)


class _Pages:
    def __init__(self, state_dir: Path, actions: Actions) -> None:
        self._state_dir = state_dir
        self._actions = actions
        self._runs = RunList(state_dir, is_locked)
        self._live: dict[str, LiveRun] = {}

    async def page(self, request: Request) -> Response:
        return HTMLResponse(asset("view.html"))

    async def look_up(self, request: Request) -> Response:
        """Answer a page's request when somebody opens a part: steps, a prompt, the files, the content of a file."""
        run, query = self._run(request), request.query_params
        if run is None:
            return _NO_RUN
        first = _number(query.get("first"))
        last = min(_number(query.get("last")), first + MAX_STEPS)
        readers: dict[str, Callable[[], str | None]] = {
            "steps": lambda: run.steps(first, last),
            "prompt": lambda: run.prompt(_number(query.get("seq"))),
            "files": run.files,
            "content": lambda: run.content(query.get("id", "")),
        }
        reader = readers.get(request.path_params["what"])
        try:
            answer = await run_in_threadpool(reader) if reader is not None else None
        except StateError as error:
            return PlainTextResponse(str(error), 409)
        return _NO_PAGE if answer is None else Response(answer, media_type="application/json")

    async def stream_runs(self, request: Request) -> Response:
        """Stream the list of runs and the open questions, whenever they change."""

        async def changes() -> AsyncIterator[str]:
            last_text = ""
            while not await request.is_disconnected():
                state: dict[str, Any]
                try:
                    state = {"runs": await run_in_threadpool(self._runs.rows), "questions": await self._questions()}
                except ForUser as error:
                    state = {"problem": str(error)}
                text = json.dumps(state)
                yield f"data: {text}\n\n" if text != last_text else _ALIVE
                last_text = text
                await asyncio.sleep(LIST_POLL_SECONDS)

        return Stream(changes(), media_type="text/event-stream")

    async def follow_run(self, request: Request) -> Response:
        """Stream a run's new events, after the last event that this page has seen, and the run's open questions."""
        live = self._run(request)
        if live is None:
            return _NO_RUN
        run = request.path_params["run"]
        last_seen = _number(request.headers.get("last-event-id") or request.query_params.get("after"))

        async def changes() -> AsyncIterator[str]:
            events, state, silence = last_seen, "", 0.0
            while not await request.is_disconnected():
                try:
                    change = await run_in_threadpool(live.changes_since, events)
                    questions = [question for question in await self._questions() if question["run"] == run]
                except ForUser as error:
                    yield f"event: problem\ndata: {json.dumps(str(error))}\n\n"
                    return
                now = json.dumps({"questions": questions, "held": is_locked(log_path(self._state_dir, run))})
                has_more = False
                if change is not None:
                    events, has_more, data = change
                    yield f"id: {events}\ndata: {data}\n\n"
                if now != state:
                    yield f"event: state\ndata: {now}\n\n"
                silence = 0.0 if change is not None or now != state else silence + POLL_SECONDS
                state = now
                if silence >= KEEP_ALIVE_SECONDS:
                    yield _ALIVE
                    silence = 0.0
                await asyncio.sleep(0.0 if has_more else POLL_SECONDS)

        return Stream(changes(), media_type="text/event-stream")

    async def act(self, request: Request) -> Response:
        body = b""
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_REQUEST_BYTES:
                    raise SettingsError(f"A request has at most {MAX_REQUEST_BYTES:,} bytes.")
            fields = json.loads(body)
            if not isinstance(fields, dict):
                raise SettingsError("The request must be a JSON object.")
            return JSONResponse({"text": await run_in_threadpool(self._actions.act, fields)})
        except (ValueError, RecursionError):
            return JSONResponse({"text": "The request is not JSON."}, 400)
        except (SettingsError, SetupError, StateError) as error:
            return JSONResponse({"text": str(error)}, 409)

    async def _questions(self) -> list[dict[str, Any]]:
        questions = await run_in_threadpool(self._actions.questions.all)
        here = str(self._state_dir.absolute())
        return [
            {
                "id": each.id, "run": each.run, "question": escape(each.question), "text": _sanitize(each.text),
                "kind": each.kind, "yes": each.yes, "no": each.no, "command": _command(each.command),
                "agent": escape(each.agent), "workspace": escape(each.workspace), "asked": each.asked,
                "until": each.until, "waits": each.waits, "here": each.state_dir == here,
            }
            for each in questions
        ]  # fmt: skip

    def _run(self, request: Request) -> LiveRun | None:
        run = request.path_params["run"]
        if run not in run_ids(self._state_dir):
            return None
        if run not in self._live:
            self._live[run] = LiveRun(self._state_dir, run)
        return self._live[run]


class _Guard:
    """Admit only requests of this user's browser, and set the headers of every answer."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], *, secure: bool) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        self._secure = secure
        # With `--open`, others can read the link in the browser's arguments. Root may relay and can do anything.
        self._users = {os.geteuid(), 0, int(os.environ.get("SUDO_UID", "0"))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no web sockets
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._refusal(scope) or self._login(scope)
        await (answer or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not this user's, or None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self._hosts or headers.getlist("host") != [host]:
            return PlainTextResponse("The request names another server.", 421)
        if (uid := _uid_of(scope["client"], scope["server"])) is not None and uid not in self._users:
            return PlainTextResponse("The request comes from another user of this machine.", 403)
        origin, expected_origin = headers.get("origin"), f"{'https' if self._secure else 'http'}://{host}"
        if origin not in (None, expected_origin) or headers.get("sec-fetch-site", "none") not in (
            "none",
            "same-origin",
        ):
            return PlainTextResponse("The request comes from another site.", 403)
        if scope["method"] not in ("GET", "HEAD") and origin != expected_origin:
            return PlainTextResponse("Only a page of this server may request this.", 403)
        return None

    def _login(self, scope: Scope) -> Response | None:
        """Return None for a request with the cookie, else the answer: with the link's token, set the cookie."""
        cookie = f"autoagent-{scope['server'][1]}"  # named by port, as browsers do not distinguish ports
        token = QueryParams(scope["query_string"]).get("token")
        if token is not None and secrets.compare_digest(token.encode(), self._token.encode()):
            redirect = RedirectResponse(f"/{scope['path'].lstrip('/')}", 303)
            redirect.set_cookie(cookie, self._token, httponly=True, samesite="strict", secure=self._secure)
            return redirect
        cookie_token = Request(scope).cookies.get(cookie, "")
        if token is None and secrets.compare_digest(cookie_token.encode(), self._token.encode()):
            return None
        return PlainTextResponse("Open the link that `autoagent view` prints. It is new at each start.", 403)


def _command(command: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call that a question decides on, with nothing hidden in it. `edit` is its arguments as they are."""
    if not command:
        return {}
    args = command.get("arguments", {})
    notes = script_notes("\n".join([*map(str, args.values()), str(command.get("preview", ""))]))
    edit = escape_json(json.dumps(args, ensure_ascii=False, indent=2))
    return {**_sanitize(command), "edit": edit, "notes": notes}


def _sanitize(value: Any) -> Any:
    """Return a value with its texts as a person should see them."""
    if isinstance(value, str):
        return escape(fold_blanks(value))
    if isinstance(value, Mapping):
        return {escape(str(name)): _sanitize(item) for name, item in value.items()}
    return [_sanitize(item) for item in value] if isinstance(value, list) else value


def _uid_of(client: Sequence[Any] | None, server: Sequence[Any] | None) -> int | None:
    """Return the user id of the connected process on this machine, or None if the system does not tell."""
    if client is None or server is None:
        return None
    with suppress(OSError, ValueError):
        table, family = ("tcp6", socket.AF_INET6) if ":" in client[0] else ("tcp", socket.AF_INET)
        ends = []
        for host, port in (client, server):
            words = struct.iter_unpack("=I", socket.inet_pton(family, host))
            ends.append(f"{''.join(f'{word:08X}' for (word,) in words)}:{port:04X}")
        for line in Path(f"/proc/net/{table}").read_text().splitlines():
            if (fields := line.split())[1:3] == ends:
                return int(fields[7])
    return None


async def _send_asset(name: str, request: Request) -> Response:
    return Response(asset(name), media_type="text/css" if name.endswith(".css") else "text/javascript")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 12 else 0
