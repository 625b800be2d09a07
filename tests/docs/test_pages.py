"""Every page of the documentation does what it says."""

from pathlib import Path

import pytest

from .page import blocks
from .running import run_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TRANSLATED = {DOCS / "zh" / "start.md": DOCS / "start.md"}
"""Pages that have the blocks of another, which is run."""
PAGES = sorted({*DOCS.rglob("*.md"), ROOT / "README.md"} - set(TRANSLATED))


@pytest.mark.timeout(300)  # a page is a dozen programs
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.parametrize("page", list(TRANSLATED), ids=[str(page.relative_to(ROOT)) for page in TRANSLATED])
def test_a_translation_has_the_blocks_of_its_original(page: Path) -> None:
    def shown(path: Path) -> list[tuple[str, str | None, str]]:
        return [(block.language, block.title, block.text) for block in blocks(path)]

    assert shown(page) == shown(TRANSLATED[page])
