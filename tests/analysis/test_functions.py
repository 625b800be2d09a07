"""The tables of functions, held against torch: each is run on strided input, and the recorder's name for it is read."""

import copy
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from math import prod

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stridewise
from stridewise.analysis.functions import (
    CASTS,
    CONVOLUTIONS,
    EXPANDS,
    EXPLICIT,
    IMPLICIT,
    VIEWS,
    need,
    short_name,
)
from stridewise.results import Copy

Call = Callable[[], object]


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """`torch.tensor` of a tensor and complex halves warn that they are not the way to go."""
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        yield


def gapped(*sizes: int) -> Tensor:
    """Every other element of rows twice as long."""
    return torch.ones(*sizes[:-1], 2 * sizes[-1])[..., ::2]


def transposed(*sizes: int) -> Tensor:
    """The last two dimensions in the other order."""
    return torch.ones(*sizes[:-2], sizes[-1], sizes[-2]).transpose(-1, -2)


def names_and_copies(call: Call) -> tuple[list[str], list[Copy]]:
    """The short names of what it called, and the copies it made."""
    with stridewise.record() as recording:
        call()
    log = recording.trace.log
    assert log is not None
    return [short_name(name) for name in log.functions], list(stridewise.analyze(recording).copies)


# -- copies that are asked for -----------------------------------------------------------------------------------------


def assign() -> None:
    x, y = torch.empty(4, 6), transposed(4, 6)
    x[:] = y


ANOTHER_DTYPE = "double half bfloat16 int long short char byte bool cfloat cdouble chalf"

EXAMPLES: dict[str, Call] = {
    "contiguous": lambda: transposed(4, 6).contiguous(),
    "clone": lambda: gapped(4, 6).clone(),
    "copy_": lambda: torch.empty(4, 6).copy_(transposed(4, 6)),
    "copy": lambda: torch.ops.aten.copy(torch.empty(4, 6), transposed(4, 6)),
    "__setitem__": assign,
    "to": lambda: gapped(4, 6).to(torch.float64),
    "type": lambda: gapped(4, 6).type(torch.float64),
    "type_as": lambda: gapped(4, 6).type_as(torch.empty(1, dtype=torch.float64)),
    "_to_copy": lambda: torch.ops.aten._to_copy(gapped(4, 6), dtype=torch.float64),
    "float": lambda: gapped(4, 6).double()[:, ::2].float(),
    **{name: (lambda name=name: getattr(gapped(4, 6), name)()) for name in ANOTHER_DTYPE.split()},
    "cpu": lambda: torch.ones(2, 3, 4, 5).cpu(memory_format=torch.channels_last),
    "repeat": lambda: gapped(4, 6).repeat(2, 1),
    "tile": lambda: gapped(4, 6).tile(2, 1),
    "tensor": lambda: torch.tensor(gapped(4, 6)),
    "new_tensor": lambda: torch.empty(1).new_tensor(gapped(4, 6)),
    "as_tensor": lambda: torch.as_tensor(gapped(4, 6), dtype=torch.float64),
    "asarray": lambda: torch.asarray(gapped(4, 6), copy=True),
    "permute_copy": lambda: torch.permute_copy(torch.ones(4, 6), (1, 0)),
    "transpose_copy": lambda: torch.transpose_copy(torch.ones(4, 6), 0, 1),
    "t_copy": lambda: torch.t_copy(torch.ones(4, 6)),
    "expand_copy": lambda: torch.expand_copy(torch.ones(1, 6), (4, 6)),
    "view_copy": lambda: torch.view_copy(gapped(4, 6), (2, 2, 6)),
    "_reshape_alias_copy": lambda: torch.ops.aten._reshape_alias_copy(gapped(4, 6), (2, 2, 6), (24, 12, 2)),
    "as_strided_copy": lambda: torch.as_strided_copy(torch.ones(40), (4, 5), (10, 2)),
    "select_copy": lambda: torch.select_copy(torch.ones(4, 6), 1, 0),
    "slice_copy": lambda: torch.slice_copy(torch.ones(4, 6), 1, 0, 3),
    "narrow_copy": lambda: torch.narrow_copy(gapped(4, 6), 0, 0, 2),
    "diagonal_copy": lambda: torch.diagonal_copy(torch.ones(4, 4)),
    "unfold_copy": lambda: torch.unfold_copy(torch.ones(6), 0, 3, 1),
    "unsqueeze_copy": lambda: torch.unsqueeze_copy(gapped(4, 6), 0),
    "squeeze_copy": lambda: torch.squeeze_copy(gapped(4, 6)),
    "detach_copy": lambda: torch.detach_copy(gapped(4, 6)),
    "alias_copy": lambda: torch.alias_copy(gapped(4, 6)),
    "lift_fresh_copy": lambda: torch.ops.aten.lift_fresh_copy(gapped(4, 6)),
    "split_copy": lambda: torch.split_copy(torch.ones(4, 6), 3, 1),
    "split_with_sizes_copy": lambda: torch.split_with_sizes_copy(torch.ones(4, 6), [2, 4], 1),
    "unbind_copy": lambda: torch.unbind_copy(torch.ones(4, 6), 1),
    "view_as_real_copy": lambda: torch.view_as_real_copy(torch.ones(4, 6, dtype=torch.complex64)[:, ::2]),
    "view_as_complex_copy": lambda: torch.view_as_complex_copy(torch.ones(4, 6, 2)[:, ::2]),
}

TO_A_DEVICE = {"cuda", "xpu"}
"""They run only where there is one."""


def test_every_explicit_function_has_an_example() -> None:
    assert set(EXAMPLES) | TO_A_DEVICE == EXPLICIT


@pytest.mark.parametrize("name", sorted(TO_A_DEVICE))
def test_a_function_for_a_device_is_a_method_of_tensors(name: str) -> None:
    assert callable(getattr(Tensor, name))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_explicit_function_copies_strided_input_when_it_is_asked_to(name: str) -> None:
    names, copies = names_and_copies(EXAMPLES[name])
    assert name in names
    made = [entry for entry in copies if entry.call is not None and short_name(entry.call) == name]
    assert made
    assert {entry.kind for entry in made} == {"explicit"}


def test_every_function_of_torch_that_copies_a_view_is_explicit() -> None:
    others = {"index_copy"}  # writes rows into a copy of its input
    sparse = {"values_copy", "indices_copy", "crow_indices_copy", "col_indices_copy"}
    sparse |= {"ccol_indices_copy", "row_indices_copy"}
    public = {name for name in dir(torch) if name.endswith("_copy") and not name.startswith("_")}
    assert public - others - sparse <= EXPLICIT


def test_deepcopy_changes_no_layout() -> None:
    names, copies = names_and_copies(lambda: copy.deepcopy(gapped(4, 6)))
    assert "__deepcopy__" in names
    assert copies == []


def test_deepcopy_of_a_parameter_is_a_clone() -> None:
    parameter = torch.nn.Parameter(gapped(4, 6))
    names, copies = names_and_copies(lambda: copy.deepcopy(parameter))
    assert names == ["data", "clone"]
    assert [(entry.kind, entry.call) for entry in copies] == [("explicit", "torch.Tensor.clone")]


# -- copies where a view can't be had ----------------------------------------------------------------------------------

IMPLICIT_CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x.reshape(-1),
    "reshape_as": lambda x: x.reshape_as(torch.empty(24)),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
}


def test_every_implicit_function_has_an_example() -> None:
    assert set(IMPLICIT_CALLS) == IMPLICIT


@pytest.mark.parametrize("name", IMPLICIT_CALLS)
def test_an_implicit_function_gives_a_view_where_it_can(name: str) -> None:
    x = torch.ones(4, 6)
    assert IMPLICIT_CALLS[name](x).data_ptr() == x.data_ptr()
    assert names_and_copies(lambda: IMPLICIT_CALLS[name](x))[1] == []


@pytest.mark.parametrize("name", IMPLICIT_CALLS)
def test_an_implicit_function_copies_where_strides_do_not_merge(name: str) -> None:
    x = transposed(4, 6)
    names, copies = names_and_copies(lambda: IMPLICIT_CALLS[name](x))
    assert name in names
    assert [(entry.kind, short_name(entry.call or "")) for entry in copies] == [("implicit", name)]


@pytest.mark.parametrize("x", [gapped(4, 6), transposed(4, 6), torch.ones(1, 6).expand(4, 6)])
def test_unflatten_gives_a_view_of_any_strides(x: Tensor) -> None:
    assert x.unflatten(1, (2, 3)).data_ptr() == x.data_ptr()
    assert x.unflatten(0, (2, 2)).data_ptr() == x.data_ptr()


# -- casts and expands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CASTS))
def test_a_cast_changes_the_dtype(name: str) -> None:
    _, copies = names_and_copies(EXAMPLES[name])
    made = [entry for entry in copies if entry.call is not None and short_name(entry.call) == name]
    assert [(entry.cast, entry.source_dtype != entry.dtype) for entry in made] == [(True, True)]


EXPAND_CALLS: dict[str, Callable[[], Tensor]] = {
    "expand": lambda: torch.ones(6).expand(4, 6),
    "expand_as": lambda: torch.ones(6).expand_as(torch.empty(4, 6)),
    "broadcast_to": lambda: torch.broadcast_to(torch.ones(6), (4, 6)),
    "broadcast_tensors": lambda: torch.broadcast_tensors(torch.ones(6), torch.empty(4, 6))[0],
    "meshgrid": lambda: torch.meshgrid(torch.ones(4), torch.ones(6), indexing="ij")[0],
}


def test_every_expand_has_an_example() -> None:
    assert set(EXPAND_CALLS) == EXPANDS


@pytest.mark.parametrize("name", EXPAND_CALLS)
def test_an_expand_makes_a_stride_of_0(name: str) -> None:
    assert 0 in EXPAND_CALLS[name]().stride()
    assert name in names_and_copies(EXPAND_CALLS[name])[0]


# -- views, as their operators are named in a trace --------------------------------------------------------------------

VIEW_CALLS: dict[str, Call] = {
    "permute": lambda: transposed(4, 6).permute(1, 0),
    "transpose": lambda: transposed(4, 6).transpose(0, 1),
    "t": lambda: transposed(4, 6).t(),
    "numpy_T": lambda: transposed(4, 6).T,
    "matrix_H": lambda: transposed(4, 6).H,
    "mT": lambda: transposed(4, 6).mT,
    "mH": lambda: transposed(4, 6).mH,
    "adjoint": lambda: transposed(4, 6).adjoint(),
    "expand": lambda: torch.randn(4, 1).expand(4, 6),
    "expand_as": lambda: torch.randn(4, 1).expand_as(transposed(4, 6)),
    "broadcast_to": lambda: torch.randn(4, 1).broadcast_to(4, 6),
    "slice": lambda: transposed(4, 6)[1:3],
    "select": lambda: transposed(4, 6)[1],
    "narrow": lambda: transposed(4, 6).narrow(0, 1, 2),
    "unbind": lambda: transposed(4, 6).unbind(),
    "split": lambda: transposed(4, 6).split(2),
    "split_with_sizes": lambda: transposed(4, 6).split_with_sizes([1, 3]),
    "tensor_split": lambda: transposed(4, 6).tensor_split(2),
    "chunk": lambda: transposed(4, 6).chunk(2),
    "hsplit": lambda: transposed(4, 6).hsplit(2),
    "vsplit": lambda: transposed(4, 6).vsplit(2),
    "dsplit": lambda: torch.randn(2, 3, 4).dsplit(2),
    "movedim": lambda: transposed(4, 6).movedim(0, 1),
    "moveaxis": lambda: transposed(4, 6).moveaxis(0, 1),
    "swapaxes": lambda: transposed(4, 6).swapaxes(0, 1),
    "swapdims": lambda: transposed(4, 6).swapdims(0, 1),
    "unfold": lambda: transposed(4, 6).unfold(0, 2, 1),
    "diagonal": lambda: transposed(4, 6).diagonal(),
    "as_strided": lambda: transposed(4, 6).as_strided((2, 2), (1, 3)),
    "squeeze": lambda: torch.randn(4, 1).squeeze(),
    "unsqueeze": lambda: transposed(4, 6).unsqueeze(0),
}


def test_every_view_has_an_example() -> None:
    assert set(VIEW_CALLS) == VIEWS


@pytest.mark.parametrize("name", VIEW_CALLS)
def test_a_view_writes_its_strides_down(name: str) -> None:
    with stridewise.record() as recording:
        made = VIEW_CALLS[name]()
    ops = recording.trace.ops
    wanted = made if isinstance(made, torch.Tensor) else made[0]  # type: ignore[index]
    written = {
        (ops.text(outer).removeprefix("aten::"), *ops.args[op].concrete[1:3])
        for op in ops.named("aten::as_strided")
        for outer in ops.around(op)
    }
    assert (name, str(list(wanted.shape)), str(list(wanted.stride()))) in written


# -- operators that want their operands in one order -------------------------------------------------------------------


def convolve(name: str) -> Call:
    dimensions = int(name[-2])
    weight = torch.ones(4, 4, *[3] * dimensions)
    x = transposed(2, 4, *[6] * dimensions)
    return partial(getattr(F, name), x, weight)


CONVOLUTION_CALLS: dict[str, Call] = {
    **{name: convolve(name) for name in CONVOLUTIONS if name != "convolution"},
    "convolution": lambda: torch.convolution(
        transposed(2, 4, 6, 6), torch.ones(4, 4, 3, 3), None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1
    ),
}

WANTING: dict[str, Call] = {
    "layer_norm": lambda: F.layer_norm(transposed(4, 6, 8), (8,)),
    "rms_norm": lambda: F.rms_norm(transposed(4, 6, 8), (8,)),
    "group_norm": lambda: F.group_norm(transposed(2, 8, 4, 6), 2),
    "instance_norm": lambda: F.instance_norm(transposed(2, 8, 4, 6)),
    "softmax": lambda: F.softmax(transposed(4, 6, 8), -1),
    "log_softmax": lambda: F.log_softmax(transposed(4, 6, 8), -1),
    "linear": lambda: F.linear(gapped(4, 8), torch.ones(8, 8)),
    "matmul": lambda: torch.ones(4, 6, 2, 8).transpose(1, 2) @ torch.ones(4, 2, 8, 6),
    "bmm": lambda: torch.bmm(gapped(2, 64, 64), torch.ones(2, 64, 64)),
    "baddbmm": lambda: torch.baddbmm(torch.ones(2, 64, 64), gapped(2, 64, 64), torch.ones(2, 64, 64)),
    "mm": lambda: torch.mm(gapped(4, 8), torch.ones(8, 8)),
    "addmm": lambda: torch.addmm(torch.ones(4, 8), gapped(4, 8), torch.ones(8, 8)),
    "einsum": lambda: torch.einsum("bhqd,bhkd->bhqk", *[torch.ones(4, 6, 2, 8).transpose(1, 2)] * 2),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(*[gapped(2, 2, 64, 64)] * 3),
    "multi_head_attention_forward": lambda: torch.nn.MultiheadAttention(8, 2)(*[torch.ones(6, 4, 8)] * 3),
    "index_select": lambda: transposed(4, 6).index_select(1, torch.tensor([0, 1])),
    "embedding": lambda: F.embedding(torch.zeros(4, 6, dtype=torch.long).t(), torch.ones(8, 8)),
    "cross_entropy": lambda: F.cross_entropy(transposed(4, 6), torch.zeros(4, dtype=torch.long)),
    "pad": lambda: F.pad(transposed(2, 8, 4, 6), (1, 1, 1, 1), mode="reflect"),
    "lstm": lambda: torch.nn.LSTM(8, 8)(transposed(5, 3, 8)),
    "gru": lambda: torch.nn.GRU(8, 8)(transposed(5, 3, 8)),
    "avg_pool2d": lambda: F.avg_pool2d(transposed(2, 4, 6, 8), 2),
    "max_pool2d": lambda: F.max_pool2d(transposed(2, 4, 6, 8), 2),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(transposed(2, 4, 6, 8), 2),
    **CONVOLUTION_CALLS,
}
"""All that have words of their own, but batch_norm and cat, which copy nothing on the CPU."""


def test_every_convolution_has_an_example() -> None:
    assert set(CONVOLUTION_CALLS) == CONVOLUTIONS


@pytest.mark.needs_torch("2.7", "rms_norm is made of elementwise operators, and copies nothing", "[rms_norm]")
@pytest.mark.parametrize("name", sorted(WANTING))
def test_an_operator_with_needs_of_its_own_copies_what_does_not_meet_them(name: str) -> None:
    names, copies = names_and_copies(WANTING[name])
    assert name in names
    made = [entry for entry in copies if entry.call is not None and short_name(entry.call) == name]
    assert {"reorder", "pack"} & {entry.change for entry in made}
    assert {entry.kind for entry in made} == {"hidden"}
    assert need(name) != need("a function that is not in the table")


ROWS, OTHER = torch.arange(6), torch.ones(6, 6)
ANYWAY: dict[str, Callable[[Tensor], object]] = {
    "index_add": lambda x: x.index_add(0, ROWS, OTHER),
    "index_copy": lambda x: x.index_copy(0, ROWS, OTHER),
    "index_fill": lambda x: x.index_fill(0, ROWS, 0.0),
    "index_put": lambda x: x.index_put((ROWS,), OTHER),
    "index_reduce": lambda x: x.index_reduce(0, ROWS, OTHER, "prod"),
    "put": lambda x: x.put(ROWS, OTHER[0]),
    "scatter": lambda x: x.scatter(0, ROWS[None], OTHER),
    "scatter_add": lambda x: x.scatter_add(0, ROWS[None], OTHER),
    "scatter_reduce": lambda x: x.scatter_reduce(0, ROWS[None], OTHER, "sum"),
    "masked_fill": lambda x: x.masked_fill(OTHER > 2, 0.0),
    "masked_scatter": lambda x: x.masked_scatter(OTHER > 2, OTHER),
    "slice_scatter": lambda x: x.slice_scatter(OTHER[:3], 0, 0, 3),
    "select_scatter": lambda x: x.select_scatter(OTHER[0], 0, 0),
    "diagonal_scatter": lambda x: x.diagonal_scatter(OTHER[0]),
    "as_strided_scatter": lambda x: x.as_strided_scatter(OTHER[0], (6,), (1,)),
    "addmm": lambda x: torch.addmm(x, OTHER, OTHER),
    "addbmm": lambda x: torch.addbmm(x, OTHER[None], OTHER[None]),
    "baddbmm": lambda x: torch.baddbmm(x[None], OTHER[None], OTHER[None]),
    "kthvalue": lambda x: x.kthvalue(2),
    "constant_pad_nd": lambda x: F.pad(x, (1, 1)),
    "block_diag": lambda x: torch.block_diag(x, x),
    "diag_embed": torch.diag_embed,
    "rot90": lambda x: torch.rot90(x, 4),
    "geqrf": torch.geqrf,
    "sort": lambda x: x.sort(0),
}


@pytest.mark.parametrize("name", sorted(ANYWAY))
def test_a_copy_that_a_contiguous_operand_needs_too_is_no_cost_of_layout(name: str) -> None:
    call, contiguous = ANYWAY[name], torch.ones(6, 6)
    with torch.profiler.profile(record_shapes=True) as profiled:
        call(contiguous)
    assert any(event.name == "aten::copy_" and prod(event.input_shapes[1]) == 36 for event in profiled.events())
    for strided in (transposed(6, 6), gapped(6, 6), torch.ones(6).expand(6, 6)):
        with stridewise.record() as recording:
            call(strided)
        report = stridewise.analyze(recording)
        assert [entry for entry in report.copies if entry.taxed] == []


def test_what_such_an_operator_copies_besides_is_a_cost_of_layout() -> None:
    column = torch.zeros(6, 2, dtype=torch.long)[:, 0]
    with stridewise.record() as recording:
        transposed(6, 6).index_add(0, column, OTHER)
    copies = stridewise.analyze(recording).copies
    assert [entry.sizes for entry in copies if entry.taxed] == [(6,)]


def test_a_cast_that_is_made_anyway_is_none_and_the_copy_behind_it_is() -> None:
    """`softmax` in another dtype casts its operand, whatever the layout; in another order it copies the result, too."""
    for strided, taxed in ((gapped(6, 6), 0), (transposed(6, 6), 1)):
        with stridewise.record() as recording:
            strided.softmax(0, dtype=torch.float64)
        assert sum(entry.taxed for entry in stridewise.analyze(recording).copies) == taxed


# -- the names in the call log -----------------------------------------------------------------------------------------

X, Y = torch.ones(4, 4), torch.ones(4, 4)


def item_assignment() -> None:
    X[0] = Y[0]


def assign_data() -> None:
    torch.empty(4, 4).data = Y


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (item_assignment, "__setitem__"),
        (lambda: X[0], "__getitem__"),
        (lambda: X + Y, "add"),
        (lambda: 1 + X, "add"),
        (lambda: X @ Y, "matmul"),
        (lambda: X == Y, "__eq__"),
        (lambda: torch.ops.aten.clone(X), "clone"),
        (lambda: torch.ops.aten.clone.default(X), "clone"),
        (lambda: torch.clone(X), "clone"),
        (lambda: X.data, "data"),
        (assign_data, "data"),
        (lambda: X.T, "T"),
        (lambda: X.mT, "mT"),
        (lambda: F.gelu(X), "gelu"),
        (lambda: F.linear(X, Y), "linear"),
        (lambda: F.max_pool2d(X[None], 2), "max_pool2d"),
        (lambda: torch.flatten(X), "flatten"),
        (lambda: torch.einsum("ij,jk->ik", X, Y), "einsum"),
        (lambda: torch.nn.Flatten()(X), "flatten"),
        (lambda: torch.nn.Linear(4, 4)(X), "linear"),
    ],
)
def test_short_names_are_the_functions_own(call: Call, name: str) -> None:
    assert name in names_and_copies(call)[0]
