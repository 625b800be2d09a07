"""The table of copies that are made for operands of any layout is what torch's own database of operators shows."""

import runpy
from pathlib import Path

import pytest
import torch

from stridewise.analysis import copies_anyway

pytest.importorskip("expecttest", reason="torch's database of operators needs the package expecttest")
ROOT = Path(__file__).parents[2]
OURS = copies_anyway.TORCH


@pytest.mark.timeout(1800)
@pytest.mark.skipif(torch.__version__.partition("+")[0] != OURS, reason=f"the table is of torch {OURS}")
def test_the_table_is_what_the_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "copies_anyway.py"))
    assert script["written"]() == Path(copies_anyway.__file__).read_text(encoding="utf-8"), (
        "python docs/copies_anyway.py"
    )
