"""Render pages in a headless Chromium or Firefox, through playwright (the extra `browser`).

The browser itself has no network: its proxy leads nowhere and it resolves no name. Every request of a page comes to us
and passes the network guard. Only GET is allowed. Pictures, films and fonts are refused. There are no downloads,
service workers or WebSockets, and no secrets in the environment. Each page gets its own browser, closed with the page.
Not covered: a page that takes over the browser. Chromium's own sandbox prevents that, but it does not work as root.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import CommandError
from autoagent.core.services import WebPage

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright, Route

PAGE_SECONDS = 45.0  # for a page with everything it loads
QUIET_SECONDS = 8.0  # for its scripts to settle; some never do
CLOSE_SECONDS = 10.0
REQUEST_LIMIT = 200  # per page
CONCURRENT_REQUESTS = 8  # per page
RESOURCE_LIMIT = 5_000_000  # per answer

_RESOURCE_TYPES = ("document", "script", "stylesheet", "xhr", "fetch", "other")  # all that a page's text needs
_DEAD_PROXY = "http://127.0.0.1:1"  # never used, as no request is let through
_CHROMIUM = (
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-features=DnsOverHttps",
)
PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

# Style sheets apply only here. Later readers of the HTML look only at `hidden`.
_MARK_HIDDEN = """() => {
  for (const element of document.querySelectorAll('body *')) {
    const style = getComputedStyle(element);
    const unseen = style.visibility !== 'visible' && !element.children.length;
    if (unseen || style.display === 'none' || style.opacity === '0' || style.fontSize === '0px')
      element.setAttribute('hidden', '');
  }
}"""

_PLAYWRIGHT_FOLDERS = (("chromium", "chromium*-*"), ("firefox", "firefox-*"))  # playwright's own, in its folder


def find_browser(name: str) -> str:
    """Return the wanted browser if installed, else the other, or ''."""
    if importlib.util.find_spec("playwright") is None:
        return ""
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    browsers = [browser for browser, pattern in _PLAYWRIGHT_FOLDERS if any(folder.glob(pattern))]
    if any(map(shutil.which, PROGRAMS)):
        browsers.insert(0, "chromium")
    return name if name in browsers else next(iter(browsers), "")


Fetch = Callable[..., WebPage]  # protocols.Web.fetch
Load = Callable[[str], Awaitable[WebPage]]  # without blocking the browser


def render(url: str, *, limit: int, fetch: Fetch, name: str, seconds: float = PAGE_SECONDS) -> WebPage:
    """Return the page as HTML once its scripts have run. Pages of other kinds are returned as `fetch` does.

    Raises CommandError as `fetch` does, and if the browser `name` is missing or the page never finishes.
    """
    first = fetch(url, limit=limit)
    if first.media_type not in ("text/html", "application/xhtml+xml"):
        return first
    pool = ThreadPoolExecutor(CONCURRENT_REQUESTS, "browser")

    async def load(url: str) -> WebPage:
        call = functools.partial(fetch, url, limit=RESOURCE_LIMIT)
        return await asyncio.get_running_loop().run_in_executor(pool, call)

    try:
        return asyncio.run(_render(first, limit, load, name, seconds))
    except TimeoutError:
        raise CommandError(f"{first.url} was not done in {seconds:.0f} s in {name}.") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # do not wait for a page's slow requests


async def _render(first: WebPage, limit: int, load: Load, name: str, seconds: float) -> WebPage:
    try:
        from playwright.async_api import Error, async_playwright
    except ImportError:
        raise CommandError("A browser needs a package: pip install 'autoagent[browser]'.") from None
    with tempfile.TemporaryDirectory(prefix="autoagent-browser-", ignore_cleanup_errors=True) as home:
        async with async_playwright() as playwright:
            browser = await _launch(playwright, name, home)
            try:
                async with asyncio.timeout(seconds):
                    return await _render_page(browser, first, limit, load)
            except Error as error:
                raise CommandError(f"{first.url} cannot be shown in {name}: {_first_line(error)}.") from error
            finally:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await browser.close()


async def _launch(playwright: Playwright, name: str, home: str) -> Browser:
    """Launch the system's Chromium or playwright's, or playwright's Firefox, as it cannot drive any other Firefox."""
    from playwright.async_api import Error

    env: dict[str, str | float | bool] = {"HOME": home, "PATH": os.defpath, "LANG": os.environ.get("LANG", "C.UTF-8")}
    options: dict[str, Any] = {"headless": True, "env": env, "proxy": {"server": _DEAD_PROXY}}
    try:
        if name == "firefox":
            return await playwright.firefox.launch(**options)
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        options |= {"executable_path": program, "args": list(_CHROMIUM), "chromium_sandbox": os.geteuid() != 0}
        return await playwright.chromium.launch(**options)
    except Error as error:
        raise CommandError(f"{name} cannot be started: {_first_line(error)}.") from error


async def _render_page(browser: Browser, first: WebPage, limit: int, load: Load) -> WebPage:
    from playwright.async_api import TimeoutError as NotQuiet

    context = await browser.new_context(accept_downloads=False, service_workers="block")
    await _answer_requests(context, first, load)
    page = await context.new_page()
    await page.goto(first.url, wait_until="domcontentloaded", timeout=0)
    with contextlib.suppress(NotQuiet):  # it polls or plays media: take the page as it is
        await page.wait_for_load_state("networkidle", timeout=QUIET_SECONDS * 1000)
    if not page.url.startswith(("http://", "https://")):  # the browser's own error page
        raise CommandError(f"{first.url} leads by script to a refused address.")
    await page.evaluate(_MARK_HIDDEN)
    html = (await page.content()).encode()
    return WebPage(page.url, "text/html", html[:limit], "utf-8", first.cut or len(html) > limit)


async def _answer_requests(context: BrowserContext, first: WebPage, load: Load) -> None:
    """Answer every request of the pages in this context with the result of `load`, or not at all."""
    left = REQUEST_LIMIT
    pending: WebPage | None = first

    async def answer(route: Route) -> None:
        nonlocal left, pending
        request = route.request
        left -= 1
        if left < 0 or request.method != "GET" or request.resource_type not in _RESOURCE_TYPES:
            return await route.abort()
        if pending is not None:
            page, pending = pending, None
        else:
            try:
                page = await load(request.url)
            except CommandError:  # refused by the guard, or missing: the page continues without it
                return await route.abort()
        charset = f"; charset={page.charset}" if page.charset else ""
        # The browser holds no user data that one site could read from another.
        headers = {"content-type": page.media_type + charset, "access-control-allow-origin": "*"}
        return await route.fulfill(status=200, headers=headers, body=page.body)

    await context.route("**/*", answer)
    await context.route_web_socket("**/*", lambda socket: socket.close())


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300].rstrip(".")
