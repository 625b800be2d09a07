"""Every page of the documentation does what it says."""

from pathlib import Path

import pytest

from .running import run_page

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])


@pytest.mark.timeout(300)  # a page is a dozen programs
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)
