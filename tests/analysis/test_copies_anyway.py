"""The table of copies that are made for operands of any layout, held against torch: a part of it is judged anew.

`tests/real/test_copies_anyway.py` judges all.
"""

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

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


A, IMAGE = torch.randn(6, 6), torch.randn(2, 3, 8, 8)
CHANNELS_LAST = IMAGE.to(memory_format=torch.channels_last)
REFLECTORS = torch.geqrf(torch.randn(6, 6))


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize(
    "program",
    [
        lambda: A.median(0),
        lambda: A.nanmedian(0),
        lambda: torch.randn(3, 4, 5).median(1),
        lambda: torch.ormqr(*REFLECTORS, A),
        lambda: torch.stft(torch.randn(4, 1000), 64, return_complex=True),
        lambda: F.conv_transpose2d(
            *(torch.randn(2, 2, 4, 4), torch.randn(2, 2, 4, 5)), None, (3, 2), (1, 2), (2, 3), groups=2, dilation=(4, 4)
        ),
    ],
    ids=["median", "nanmedian", "median of three", "ormqr", "stft", "groups"],
)
def test_contiguous_operands_cost_no_tax(program: Callable[[], object]) -> None:
    with stridewise.record() as recording:
        program()
    assert {(copy.taxed, copy.reason) for copy in stridewise.analyze(recording).copies} == {
        (False, "made for contiguous operands too")
    }


@pytest.mark.parametrize(
    ("program", "advice"),
    [
        (lambda: A.t().median(1), "Make `A.t()` give the order that the operator needs;"),
        (lambda: F.interpolate(IMAGE, scale_factor=2.0), "In channels_last it takes its operand as it is."),
        (lambda: torch.einsum("bhid,bjhd->bhij", torch.ones(2, 3, 4, 5), torch.ones(2, 6, 3, 5)), "Hand its operands"),
    ],
    ids=["strided", "format", "order of dimensions"],
)
def test_what_another_layout_saves_is_taxed_and_says_so(program: Callable[[], object], advice: str) -> None:
    with stridewise.record() as recording:
        program()
    (finding,) = stridewise.analyze(recording, min_share=0).findings
    assert "without gaps" not in finding.message
    assert (finding.advice or "").startswith(advice)


def test_a_channels_last_image_is_interpolated_as_it_is() -> None:
    with stridewise.record() as recording:
        F.interpolate(CHANNELS_LAST, scale_factor=2.0)
    assert not stridewise.analyze(recording).copies


def test_an_operand_laid_out_as_a_contiguous_one_is_when_transposed_is_taxed() -> None:
    pooled, indices = F.max_pool1d(torch.randn(2, 2, 2), 2, return_indices=True)
    backwards = indices.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    with stridewise.record() as recording:
        F.max_unpool1d(pooled, backwards, [2])
    (copy,) = stridewise.analyze(recording).copies
    assert copy.taxed


X, H = torch.ones(50, 64), torch.ones(50, 64)
CELL, GATES, PARTS = torch.nn.GRUCell(64, 64), torch.nn.Linear(64, 192), torch.nn.Parameter(torch.ones(3, 4, 8, 16))


def a_gate_that_is_multiplied_in_place() -> None:
    first, _, last = GATES(X).unsafe_chunk(3, 1)
    last.mul_(H)
    (first + last).sum().backward()


@pytest.mark.parametrize(
    "program",
    [
        a_gate_that_is_multiplied_in_place,
        lambda: CELL(X, H).sum().backward(),
        lambda: (torch.ones(4, 8, 16) @ PARTS[1].transpose(1, 2)).square().sum().backward(),
        lambda: (torch.ones(4, 8, 16) @ PARTS[1:2].transpose(2, 3)).square().sum().backward(),
        lambda: (PARTS.diagonal(0, 2, 3).transpose(0, 2) * torch.ones(8, 4, 3)).square().sum().backward(),
    ],
    ids=["in place", "gru_cell", "select", "slice", "diagonal"],
)
def test_copies_for_and_in_backward_that_no_order_saves(program: Callable[[], None]) -> None:
    program()
    with stridewise.record() as recording:
        program()
        recording.step()
    assert stridewise.analyze(recording).totals.copies == 0


def test_an_operator_in_place_pays_for_what_it_cannot_take() -> None:
    gaps, result = torch.ones(8, 16)[:, ::2], torch.ones(8, 8)
    with stridewise.record() as recording:
        result.addmm_(gaps, gaps)
        recording.step()
    assert stridewise.analyze(recording).totals.copies == 2
