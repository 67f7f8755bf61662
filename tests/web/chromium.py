"""Chromium, for the tests of pages."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from autoagent.services.browser import PROGRAMS

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), "")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium on this machine")


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that looks at pages in Chromium, which is slow."""
    return pytest.mark.slow(needs_chromium(test))


@contextlib.contextmanager
def browsing(address: str, width: int = 1280, scheme: str = "", *, expected: str = "\0") -> Iterator[Page]:
    """Open a page in Chromium. No script may fail but with the `expected` words.

    With a colour `scheme`, scripts of the test, such as axe, may run beside those of the page.
    """
    from playwright.sync_api import sync_playwright

    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        more = {"bypass_csp": True, "color_scheme": scheme} if scheme else {}
        page = browser.new_context(viewport={"width": width, "height": 900}, **more).new_page()  # type: ignore[arg-type]
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(address)
        yield page
        browser.close()
    assert not [problem for problem in problems if expected not in problem], problems
