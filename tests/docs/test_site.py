"""The site is whole: every code, command and public name has its place, and it asks nobody for anything."""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer

import stridewise
from stridewise.cli.app import app
from stridewise.report.codes import all_docs

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: a link that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


class _Page(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []
        """What a browser fetches by itself."""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(filter(None, [given.get("id")]))
        if tag in ("script", "img", "iframe", "source", "video"):
            self.loads += filter(None, [given.get("src")])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(given.get("href", ""))


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    ids = _Page(site / "reference" / "api.html").ids
    missing = {f"stridewise.{name}" for name in stridewise.__all__ if name != "__version__"} - ids
    assert not missing


def test_every_result_is_in_the_reference(site: Path) -> None:
    from stridewise import results

    ids = _Page(site / "reference" / "results.html").ids
    names = {name.rpartition(".")[2] for name in ids}
    assert {name for name in results.__all__ if name != "SCHEMA_VERSION"} <= names


def test_every_code_has_a_page_with_what_rule_says(site: Path) -> None:
    index = (site / "reference" / "codes" / "index.html").read_text(encoding="utf-8")
    for doc in all_docs():
        text = (site / "reference" / "codes" / f"{doc.code}.html").read_text(encoding="utf-8")
        ids = re.findall(r'<h2 id="([a-z-]+)"', text)
        assert ids[:4] == ["what-it-means", "why-it-happens", "how-to-fix-it", "when-to-ignore-it"], doc.code
        assert doc.title in text
        assert f'href="{doc.code}.html"' in index


def test_every_command_is_in_the_reference(site: Path) -> None:
    text = (site / "reference" / "command-line.html").read_text(encoding="utf-8")

    def below(words: str, command: Any) -> None:
        assert f'id="{words.replace(" ", "-")}"' in text
        for parameter in command.params:
            if not parameter.hidden:
                assert all(name in text for name in parameter.opts if name.startswith("--")), (words, parameter.opts)
        for name, command_below in getattr(command, "commands", {}).items():
            below(f"{words} {name}", command_below)

    below("stridewise", typer.main.get_command(app))


def test_a_browser_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        elsewhere = [url for url in _Page(page).loads if re.match(r"(\w+:)?//", url)]
        assert not elsewhere, page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//|@import", style.read_text(encoding="utf-8")), style


def test_links_out_of_the_documentation_lead_to_files_that_are_there(site: Path) -> None:
    for page in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]:
        text = re.sub(
            r"^[ \t]*(`{3,}).*?^[ \t]*\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", text):
            target = (page.parent / link).resolve()
            generated = ROOT / "docs" / "reference"
            made = target.is_relative_to(generated / "codes") or target == generated / "results.md"
            assert made or target.exists(), f"{page.relative_to(ROOT)} links to {link}"


def test_the_site_opens_from_a_folder_and_is_searched_there(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    assert executable, f"there is none of {', '.join(NAMES)}"
    asked: list[str] = []
    said: list[str] = []
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto((site / "reference" / "codes" / "SW101.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.goto((site / "reference" / "lint.html").as_uri())
        page.set_viewport_size({"width": 1280, "height": 900})
        page.fill("input[name=query]", "strided-stream")
        page.wait_for_selector(".md-search-result__link")
        browser.close()
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]
    assert said == []


def test_the_search_index_holds_the_codes(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("SW101 strided-stream" in entry["title"] for entry in index["docs"])
