"""The article's measured tables of hidden copies (claims.md), measured again with stridewise.

Every row is run on its view and on a row-major twin of equal values, and counted twice: by stridewise, and by hand
over a profiler's event tree. Then three things must hold: the two counts are one; the tree gives the row's figures by
the table's own definition (so it is the same experiment); stridewise gives the row's figures, but for the differences
that stand below by name.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stridewise
from stridewise.results import Copy

from .claims_programs import PROGRAMS, heads
from .claims_table import CLEAN, HIDDEN, SLOW, Row
from .claims_views import CHANNELS_LAST, images, sequences
from .copy_counts import Counts, count

MEGA = 1e6


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As the tables were measured: `masked_select` and `interpolate` choose other kernels with more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Pair(NamedTuple):
    """One program on a view and on its row-major twin."""

    view: Counts
    twin: Counts

    @property
    def extra_megabytes(self) -> float:
        """What stridewise's copies write on the view beyond the twin's."""
        return max(0, self.view.written - self.twin.written) / MEGA

    @property
    def extra_taxed(self) -> int:
        return len(taxed(self.view)) - len(taxed(self.twin))


@cache
def measure(op: str, pattern: str) -> Pair:
    program = PROGRAMS[op]
    torch.manual_seed(0)
    view = program.views[pattern]()
    views = view if isinstance(view, tuple) else (view,)
    twins = [tensor.clone(memory_format=torch.contiguous_format) for tensor in views]
    others = [make() for make in program.others]
    with torch.no_grad():
        return Pair(count(lambda: program.run(*views, *others)), count(lambda: program.run(*twins, *others)))


def taxed(counts: Counts) -> list[Copy]:
    """All but the spreads of a bias, which the table does not count either: they are not below `clone`."""
    return [copy for copy in counts.reported if copy.taxed]


def megabytes_as_printed(pair: Pair) -> float:
    """By the table's definition: every `aten::copy_`, 4 bytes an element."""

    def written(counts: Counts) -> int:
        return sum(4 * copy.written // copy.itemsize for copy in counts.tree)

    return round(max(0, written(pair.view) - written(pair.twin)) / MEGA, 2)


# -- where the table and stridewise differ, and why --------------------------------------------------------------------


class Difference(NamedTuple):
    """A named reason, and a look at the event tree that shows it is the one."""

    why: str
    holds: Callable[[Pair], bool]


FOUR_BYTES = Difference(
    "the table takes 4 bytes an element; these have 8",
    lambda pair: all(copy.itemsize == 8 for copy in pair.view.relayouts),
)
INTO_RESULT = Difference(
    "the operator also copies into its result, by `copy_` itself: no `clone` is around it, so the table leaves it out",
    lambda pair: sum(not copy.below_clone for copy in pair.view.relayouts) == 1,
)
CAST_ALONE = Difference(
    "what is copied is the mask, from bool to int64 with equal strides: a cast and no change of layout",
    lambda pair: [copy for copy in pair.view.tree if not copy.is_relayout and copy.itemsize == 8] != [],
)
COPIED_ANYWAY = Difference(
    "the operator copies its input always, so the table sees nothing extra; only on the view does that change strides",
    lambda pair: len(pair.view.tree) == len(pair.twin.tree) and pair.twin.relayouts == [],
)
INTO_SLICE = Difference(
    "the operator writes its input into a slice: an `unpack` on the twin, which is not taxed; a `reorder` on the view",
    lambda pair: [[copy.change for copy in counts.reported] for counts in pair] == [["reorder"], ["unpack"]],
)
NOT_TRIED = Difference(
    "the table does not name the patterns that it tried on this operator; by its own count this was none of them",
    lambda pair: megabytes_as_printed(pair) > 0,
)


class Now(NamedTuple):
    """What stridewise says of a row that it differs from the table about."""

    difference: Difference
    megabytes: float
    copies: int


def _among(op: str, now: Now, *patterns: str) -> dict[tuple[str, str], Now]:
    return {(op, pattern): now for pattern in patterns}


_GAPPED = ("last narrow", "last ::2", "seq narrow", "seq ::2", "batch expand")
_RGB = tuple(row.pattern for row in HIDDEN if row.op.startswith("interp") and row.pattern != "CL crop")

DIFFERENT: dict[tuple[str, str], Now] = {
    ("conv2d float64", "CL"): Now(FOUR_BYTES, 0.29, 1),
    ("conv2d float64", "H<->W t"): Now(FOUR_BYTES, 3.21, 1),
    ("embedding idx", "transposed"): Now(FOUR_BYTES, 0.07, 1),
    **_among("interp bilinear 1/2 3ch", Now(INTO_RESULT, 0.00, 3), *_RGB),
    **_among("masked_select", Now(CAST_ALONE, 0.00, 0), "transpose(1,2)", "last narrow", "last ::2"),
    **_among("to bf16", Now(COPIED_ANYWAY, 4.19, 1), "last narrow", "last ::2"),
    **_among("masked_fill", Now(COPIED_ANYWAY, 8.39, 1), "transpose(0,1)", "transpose(1,2)", *_GAPPED),
    **_among("sort -1", Now(COPIED_ANYWAY, 8.39, 1), *_GAPPED),
    **_among("tril", Now(NOT_TRIED, 8.39, 1), "transpose(0,1)", *_GAPPED),
    ("pad", "H<->W transposed"): Now(INTO_SLICE, 0.00, 1),
    ("matmul bcast 4D@3D", "4D (B,S,H,D).transpose(1,2)"): Now(NOT_TRIED, 2.10, 1),
}

# -- the tables --------------------------------------------------------------------------------------------------------

QUIET = [*SLOW, *((op, pattern) for op in CLEAN for pattern in PROGRAMS[op].views)]
"""Rows without a hidden copy: those that name a pattern, and each pattern of the operators called clean on any."""

ALL = [*((row.op, row.pattern) for row in HIDDEN), *QUIET]


def ids(row: Row | tuple[str, str]) -> str:
    return f"{row[0]}-{row[1]}"


@pytest.mark.parametrize(("op", "pattern"), ALL, ids=map(ids, ALL))
def test_stridewise_lists_the_copies_that_the_event_tree_holds(op: str, pattern: str) -> None:
    for counts in measure(op, pattern):
        assert counts.reported_layouts == counts.tree_layouts


@pytest.mark.parametrize("row", HIDDEN, ids=ids)
def test_the_row_is_reproduced_by_the_tables_own_definition(row: Row) -> None:
    pair = measure(row.op, row.pattern)
    assert megabytes_as_printed(pair) == row.megabytes
    assert sum(copy.below_clone for copy in pair.view.tree) == row.copies


@pytest.mark.parametrize("row", [row for row in HIDDEN if row[:2] not in DIFFERENT], ids=ids)
def test_stridewise_agrees_with_the_row(row: Row) -> None:
    pair = measure(row.op, row.pattern)
    assert (round(pair.extra_megabytes, 2), len(taxed(pair.view))) == (row.megabytes, row.copies)


@pytest.mark.parametrize("row", [row for row in QUIET if row not in DIFFERENT], ids=ids)
def test_stridewise_finds_no_copy_where_the_table_has_none(row: tuple[str, str]) -> None:
    pair = measure(*row)
    assert pair.extra_taxed <= 0
    assert pair.extra_megabytes == 0


@pytest.mark.parametrize("row", DIFFERENT, ids=ids)
def test_stridewise_differs_from_the_row_for_the_reason_given(row: tuple[str, str]) -> None:
    pair = measure(*row)
    now = DIFFERENT[row]
    copies = len(taxed(pair.view)) if row not in QUIET else pair.extra_taxed
    assert (round(pair.extra_megabytes, 2), copies) == (now.megabytes, now.copies)
    assert now.difference.holds(pair), now.difference.why


def test_every_difference_is_of_a_row() -> None:
    assert set(DIFFERENT) <= set(ALL)


def test_the_tables_are_whole() -> None:
    assert (len(HIDDEN), len({row.op for row in HIDDEN}), len(SLOW), len(CLEAN)) == (139, 53, 74, 29)


# -- "Further measured hidden copies (t7, t8, t9)" ---------------------------------------------------------------------

IMAGES = images()
SEQUENCES = sequences()


class Run(NamedTuple):
    copies: tuple[Copy, ...]
    ops: set[str]

    @property
    def written(self) -> list[float]:
        """MB of each copy, as the article rounds them."""
        return [round(copy.bytes_written / MEGA, 2) for copy in self.copies]

    @property
    def hidden(self) -> list[tuple[str, float]]:
        taxed = [copy for copy in self.copies if copy.taxed]
        return [(copy.change, round(copy.bytes_written / MEGA, 2)) for copy in taxed]


def record(program: Callable[[], object], *, grad: bool = False) -> Run:
    with torch.set_grad_enabled(grad):
        program()
        with stridewise.record() as recording:
            program()
    names = {op.name.removeprefix("aten::") for op in recording.trace.ops}
    return Run(stridewise.analyze(recording).copies, names)


@pytest.mark.parametrize(
    ("pattern", "change"), [("transpose(0,1)", "reorder"), ("transpose(1,2)", "reorder"), ("seq narrow", "pack")]
)
def test_linear_clones_a_view_whole_only_if_its_weight_is_trainable(pattern: str, change: str) -> None:
    x, layer = SEQUENCES[pattern](), nn.Linear(256, 256)
    trainable = record(lambda: layer(x))
    assert trainable.hidden == [(change, 8.39)]
    assert {"clone", "mm", "add_"} <= trainable.ops
    layer.requires_grad_(False)
    frozen = record(lambda: layer(x))
    assert frozen.hidden == []
    assert {"bmm", "add_"} <= frozen.ops
    assert "clone" not in frozen.ops


@pytest.mark.parametrize("trainable", [True, False])
def test_linear_takes_a_slice_of_features_as_it_is(trainable: bool) -> None:
    x, layer = SEQUENCES["last narrow"](), nn.Linear(256, 256).requires_grad_(trainable)
    run = record(lambda: layer(x))
    assert run.hidden == []
    assert {"mm", "add_"} <= run.ops


def test_linear_on_row_major_input_is_one_addmm_with_the_bias_spread() -> None:
    x, layer = torch.randn(64, 128, 256), nn.Linear(256, 256)
    run = record(lambda: layer(x))
    assert "addmm" in run.ops
    assert not {"mm", "bmm", "add_"} & run.ops
    assert [(copy.change, copy.taxed) for copy in run.copies] == [("materialize", False)]


def test_conv2d_converts_its_input_to_the_format_of_a_channels_last_weight() -> None:
    x, weight = torch.randn(8, 64, 56, 56), torch.randn(64, 64, 3, 3).contiguous(memory_format=CHANNELS_LAST)
    assert record(lambda: F.conv2d(x, weight, padding=1)).hidden == [("reorder", 6.42)]
    assert F.conv2d(x, weight, padding=1).is_contiguous(memory_format=CHANNELS_LAST)


def test_conv2d_converts_a_row_major_weight_for_channels_last_input() -> None:
    x, weight = IMAGES["channels_last"](), torch.randn(64, 64, 3, 3)
    assert record(lambda: F.conv2d(x, weight, padding=1)).hidden == [("reorder", 0.15)]
    converted = weight.contiguous(memory_format=CHANNELS_LAST)
    assert record(lambda: F.conv2d(x, converted, padding=1)).copies == ()


def test_interpolate_copies_three_times_unless_its_input_is_channels_last() -> None:
    x = torch.randn(1, 3, 1080, 1920)
    halved = record(lambda: F.interpolate(x, scale_factor=0.5, mode="bilinear"))
    assert halved.hidden == [("reorder", 24.88), ("reorder", 6.22), ("reorder", 6.22)]
    y = x.contiguous(memory_format=CHANNELS_LAST)
    assert record(lambda: F.interpolate(y, scale_factor=0.5, mode="bilinear")).copies == ()


@pytest.mark.parametrize(
    ("batch_first", "train", "written"),
    [
        (True, True, [3.21, 9.63, 3.21]),
        (False, True, [3.21, 9.63, 3.21]),
        (True, False, [3.21, 3.21]),  # the eval fast path, one kernel
        (False, False, [3.21, 9.63, 3.21]),
    ],
)
def test_multihead_attention_makes_as_many_copies_whatever_its_inputs_strides(
    batch_first: bool, train: bool, written: list[float]
) -> None:
    """Two or three, as the article says: its input folded (3.21 MB), q, k and v (9.63 MB), the output's bias (3.21 MB).

    Where the input is row-major as the projection sees it, nothing is folded, but the projection's bias is spread
    (9.63 MB).
    """
    layer = nn.MultiheadAttention(512, 8, batch_first=batch_first).train(train)
    sizes = (8, 196, 512) if batch_first else (196, 8, 512)
    views = sequences(*sizes)

    def attend(x: Tensor) -> Run:
        return record(lambda: layer(x, x, x, need_weights=False))

    runs = [attend(x) for x in (views["transpose(1,2)"](), views["transpose(0,1)"](), torch.randn(sizes))]
    assert [len(run.copies) for run in runs] == [len(written)] * 3
    assert runs[0].written == written


def test_attention_leaves_flash_for_math_where_the_last_stride_is_not_1() -> None:
    whole = [torch.randn(4, 8, 256, 64) for _ in range(3)]
    strided = [torch.randn(4, 8, 256, 128)[..., ::2] for _ in range(3)]
    flash = record(lambda: F.scaled_dot_product_attention(*whole))
    assert "_scaled_dot_product_flash_attention_for_cpu" in flash.ops
    assert flash.copies == ()
    math = record(lambda: F.scaled_dot_product_attention(*strided))
    assert "_scaled_dot_product_attention_math" in math.ops
    assert math.hidden == [("pack", 0.07)] * 32


def _loss(program: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    return lambda: program(x).sum().backward()


def conv3x3(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, padding=1)


WEIGHT = torch.randn(64, 64, 3, 3)
GRADIENTS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "conv2d": (conv3x3, 6.42),
    "softmax": (lambda x: x.softmax(-1), 6.42),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), 1.61),
}


@pytest.mark.parametrize("op", GRADIENTS)
def test_backward_writes_an_expanded_gradient_out(op: str) -> None:
    program, megabytes = GRADIENTS[op]
    x = torch.randn(8, 64, 56, 56, requires_grad=True)
    run = record(_loss(program, x), grad=True)
    assert [(copy.kind, copy.change) for copy in run.copies] == [("gradient", "materialize")]
    assert run.written == [megabytes]
    gradient = torch.randn_like(program(x))
    assert record(lambda: program(x).backward(gradient), grad=True).copies == ()


def test_backward_of_conv2d_converts_a_row_major_weight_and_its_gradient_for_channels_last_input() -> None:
    x = IMAGES["channels_last"]().requires_grad_()
    weight = torch.randn(64, 64, 3, 3, requires_grad=True)
    run = record(_loss(lambda x: F.conv2d(x, weight, padding=1), x), grad=True)
    assert [(copy.kind, copy.change, written) for copy, written in zip(run.copies, run.written, strict=True)] == [
        ("hidden", "reorder", 0.15),
        ("gradient", "reorder", 0.15),
        ("gradient", "materialize", 6.42),
        ("gradient", "reorder", 0.15),
    ]


@pytest.mark.parametrize("pattern", ["transpose(1,2)", "last narrow"])
def test_index_select_clones_its_source_where_indexing_does_not(pattern: str) -> None:
    x, index = SEQUENCES[pattern](), torch.arange(0, 128, 2)
    assert record(lambda: x.index_select(1, index)).written == [8.39]
    assert record(lambda: x[:, index]).copies == ()


def test_the_copies_of_one_call_carry_its_operands_layout() -> None:
    q, k = heads(), heads()
    run = record(lambda: q @ k.transpose(-1, -2))
    assert [copy.source_strides for copy in run.copies] == [q.stride(), k.transpose(-1, -2).stride()]
    assert {(copy.kind, copy.call, copy.op) for copy in run.copies} == {
        ("hidden", "torch.Tensor.matmul", "aten::matmul")
    }
