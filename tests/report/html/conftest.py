"""A headless Chromium, and pages opened in it from files."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import pages

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Skips where there is none, but for CI, which has to have one."""
    missing = pytest.fail if os.environ.get("CI") else pytest.skip
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        missing("playwright is not installed: it is in the extra `dev`")
    executable = os.environ.get("STRIDEWISE_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        try:
            # As root, which CI may be, there is no sandbox.
            launched = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        except Error as error:
            missing(f"no Chromium was found: put one on PATH, or name it in STRIDEWISE_BROWSER ({error.message[:80]})")
        yield launched
        launched.close()


class Opened:
    """A page in the browser, with what it said and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))

    def drawn(self) -> "Opened":
        """Once the charts are there."""
        self.page.wait_for_selector("html[data-drawn=true]")
        return self


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the page of a result from a file, in a context of its own."""
    contexts = []

    def open_page(result: Any, *, width: int = 1200, dark: bool = False, **options: Any) -> Opened:
        path = tmp_path / "report.html"
        path.write_text(result if isinstance(result, str) else pages.page(result), encoding="utf-8")
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.goto(path.as_uri())
        return found

    yield open_page
    for context in contexts:
        context.close()
