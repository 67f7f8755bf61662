"""Draw the report and the live page for docs/runs.md from real runs of the demo.

python docs/session/pages.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
PROGRAM = [sys.executable, "-m", "autoagent"]
SIZE = {"width": 1100, "height": 1000}


def main() -> None:
    """Play the demo twice in a folder of its own: draw the report of the first, and the live page of the second."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("Chromium is not installed.")
    with tempfile.TemporaryDirectory() as folder:
        env = {"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPATH": str(HERE.parent.parent)}
        waits = ["--demo", "-y", "--answer-timeout", "600", "--if-unanswered", "end", "-w", "poems"]
        quiet = {"cwd": folder, "env": env, "stdin": subprocess.DEVNULL, "text": True}
        subprocess.run([*PROGRAM, "--demo", "-c", "-y"], **quiet, check=True, capture_output=True)  # noqa: S603 - this program
        run = next((Path(folder) / ".autoagent" / "runs").iterdir()).name
        subprocess.run([*PROGRAM, "report", run, "-o", "report.html"], **quiet, check=True, capture_output=True)  # noqa: S603
        draw_report(chromium, Path(folder) / "report.html")
        null = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        waiting = subprocess.Popen([*PROGRAM, *waits], **quiet, **null)  # noqa: S603
        served = subprocess.Popen([*PROGRAM, "view"], **quiet, stdout=subprocess.PIPE)  # noqa: S603
        assert served.stdout is not None
        try:
            draw(chromium, served.stdout.readline().strip())
        finally:
            for process in (served, waiting):
                process.terminate()
                process.wait()


def draw_report(chromium: str, report: Path) -> None:
    """Draw the first step with a diff, and what its prompt held."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={**SIZE, "height": 900}, color_scheme="light").new_page()
        page.goto(report.as_uri())
        step = page.locator("article.step", has=page.locator(".diff")).first
        step.locator("summary", has_text="Prompt").click()
        step.locator("summary", has_text="Goals").click()
        step.evaluate("step => { location.hash = step.id }")
        page.wait_for_timeout(300)
        page.screenshot(path=HERE / "report-light.png")
        browser.close()


def draw(chromium: str, link: str) -> None:
    """Draw the page of the run that waits for an answer."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=1).new_page()
            page.goto(link)
            page.locator("article.question").wait_for()
            page.get_by_role("link").filter(has_text="2").first.click()
            page.locator("article.question, article.step").first.wait_for()
            page.wait_for_timeout(500)
            page.screenshot(path=HERE / f"view-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main()
