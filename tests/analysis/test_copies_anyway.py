"""The table of copies that are made for operands of any layout, held against torch: a part of it is judged anew.

`tests/real/test_copies_anyway.py` judges all.
"""

import importlib.util
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch

import stridewise
from stridewise.analysis.copies_anyway import ANYWHERE, OUTERMOST, TORCH

pytest.importorskip("expecttest", reason="torch's database of operators needs the package expecttest")
SCRIPT = Path(__file__).parents[2] / "docs" / "copies_anyway.py"

# Some that copy whatever the layout, some that copy for it, and some that do both.
NAMES = (
    *("index_add", "index_fill", "masked_fill", "scatter_add", "slice_scatter", "addmm", "baddbmm", "block_diag"),
    *("linalg.inv", "linalg.qr", "linalg.eigh", "diag_embed", "softmax", "rot90", "roll", "kthvalue", "sort", "pow"),
    *("mm", "matmul", "einsum", "nn.functional.linear", "nn.functional.layer_norm", "nn.functional.conv2d", "cumsum"),
    *("nn.functional.interpolate", "nn.functional.pad", "fft.fft", "cat", "index_select", "nn.functional.softmin"),
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("copies_anyway_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings(action="ignore"):
        spec.loader.exec_module(module)
    return module


def is_listed(script: ModuleType, path: str) -> bool:
    return path in OUTERMOST or any(end in ANYWHERE for end in script.ends(path))


@pytest.mark.skipif(torch.__version__.partition("+")[0] != TORCH, reason=f"the table is of torch {TORCH}")
@pytest.mark.parametrize("name", NAMES)
def test_no_copy_that_depends_on_the_layout_is_in_the_table(script: ModuleType, name: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        counts = [each for op in script.op_db if op.name == name for each in script.copies_by_layout(op)]
    assert counts
    _, other = script.judged(counts)
    assert not [path for path in other if is_listed(script, path)]


def test_copies_of_one_layout_more_than_of_another_are_told_apart(script: ModuleType) -> None:
    once, twice = script.Counts(["a", "b/clone"]), script.Counts(["a", "b/clone", "b/clone"])
    assert script.judged([[once, once], [once, twice]]) == ({"a"}, {"b/clone"})


def test_an_operator_around_that_layout_decides_on_ends_what_holds_anywhere(script: ModuleType) -> None:
    assert script.table({"a", "b/a"}, set()) == ({"a"}, set())
    assert script.table({"a"}, {"b/a"}) == (set(), {"a"})
    assert script.table({"a/contiguous/clone", "reshape", "clone"}, set()) == (set(), set())


@pytest.mark.parametrize("kind", ["explicit", "implicit"])
def test_what_the_program_asks_for_is_taxed_all_the_same(kind: str) -> None:
    x = torch.ones(6, 6).t()
    with stridewise.record() as recording:
        x.contiguous() if kind == "explicit" else x.reshape(-1)
    (copy,) = stridewise.analyze(recording).copies
    assert (copy.kind, copy.taxed) == (kind, True)
