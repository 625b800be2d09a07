"""Which implementation ran: what torch does on the CPU, as its own operators show it."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

import stridewise
from stridewise.analysis.case import Case
from stridewise.analysis.paths import Execution
from stridewise.analysis.paths.library import PRIMITIVES
from stridewise.analysis.paths.operands import matrix_words
from stridewise.analysis.paths.operators import BACKENDS, FAMILIES, PRODUCTS
from stridewise.analysis.paths.tensors import Tensor
from stridewise.recording.handle import Recording

IMAGE = (4, 8, 16, 16)
attend = F.scaled_dot_product_attention


@pytest.fixture
def profiled(tmp_path: Path) -> Callable[..., Case]:
    """Profiles a program with torch's own profiler, and gives what is read from its trace."""

    def run(program: Callable[[], object]) -> Case:
        program()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            program()
        path = tmp_path / "trace.json"
        profiler.export_chrome_trace(str(path))
        return Case(Recording.load(path).trace)

    return run


def forward(case: Case) -> list[Execution]:
    return [execution for execution in case.executions if case.trace.ops.node[execution.op] < 0]


def image(*sizes: int, layout: str = "contiguous") -> torch.Tensor:
    x = torch.randn(sizes or IMAGE)
    if layout == "channels_last":
        return x.to(memory_format=torch.channels_last)
    if layout == "transposed":
        return x.transpose(2, 3)
    if layout == "sliced":
        return torch.randn(*x.shape[:-1], 2 * x.shape[-1])[..., ::2]
    return x


# ---------------------------------------------------------------------------------------------------------- operators


@pytest.mark.needs_torch("2.7", "it lacks operators that came later")
def test_every_operator_is_one_of_torch() -> None:
    names = {schema.name for schema in torch._C._jit_get_all_schemas()}
    assert not (set(FAMILIES) | set(BACKENDS) | set(PRODUCTS)) - names


def test_what_calls_an_implementation_belongs_to_a_family() -> None:
    assert set(BACKENDS) <= set(FAMILIES)
    assert set(PRODUCTS) <= set(FAMILIES)


def double(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, dtype=torch.float64)


CONVOLUTIONS: dict[str, tuple[Callable[[], object], str, str]] = {
    "conv2d": (lambda: F.conv2d(image(), image(8, 8, 3, 3)), "oneDNN", "aten::mkldnn_convolution"),
    "conv1d": (lambda: F.conv1d(image(4, 8, 64), image(8, 8, 3)), "oneDNN", "aten::mkldnn_convolution"),
    "same": (lambda: F.conv2d(image(), image(8, 8, 3, 3), padding="same"), "oneDNN", "aten::mkldnn_convolution"),
    "transposed": (lambda: F.conv_transpose2d(image(), image(8, 8, 3, 3)), "oneDNN", "aten::conv_transpose2d"),
    "float64": (lambda: F.conv2d(double(*IMAGE), double(8, 8, 3, 3)), "ATen", "aten::thnn_conv2d"),
    "conv3d float64": (lambda: F.conv3d(double(1, 2, 8, 8, 8), double(4, 2, 3, 3, 3)), "ATen", "aten::slow_conv3d"),
    "dilated float64": (
        lambda: F.conv2d(double(*IMAGE), double(8, 8, 3, 3), dilation=2),
        "ATen",
        "aten::slow_conv_dilated2d",
    ),
    "transposed float64": (
        lambda: F.conv_transpose2d(double(*IMAGE), double(8, 8, 3, 3)),
        "ATen",
        "aten::slow_conv_transpose2d",
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, profiled: Callable[..., Case]) -> None:
    program, backend, evidence = CONVOLUTIONS[name]
    (found,) = profiled(program).executions
    assert (found.family, found.backend, found.evidence) == ("convolution", backend, evidence)
    assert found.dtype == ("float64" if "float64" in name else "float32")
    # Of these only oneDNN's transposed convolution has no operator of its own.
    assert found.inferred == (name == "transposed")


def test_what_is_concluded_of_onednn_is_what_it_logs() -> None:
    x, weight = image().requires_grad_(), image(8, 8, 3, 3).requires_grad_()

    def program() -> None:
        F.conv_transpose2d(x, weight).square().sum().backward()
        F.conv2d(x, weight).square().sum().backward()

    program()
    with stridewise.record(library_copies=True) as recording:
        program()
    trace = recording.trace
    logged = [row for row in stridewise.analyze(recording, paths=True).paths if row.family == "convolution"]
    assert {(row.op, row.backend, row.inferred) for row in logged} == {
        ("aten::conv_transpose2d", "oneDNN", False),
        ("aten::conv2d", "oneDNN", False),
        ("aten::convolution_backward", "oneDNN", False),
    }
    assert all({"convolution", "deconvolution"} & set(row.evidence.replace(",", " ").split()) for row in logged)
    assert any("reordered inside" in operand for row in logged for operand in row.operands)

    trace.library, trace.log.library_log = (), None
    concluded = [execution for execution in Case(trace).executions if execution.family == "convolution"]
    assert {execution.backend for execution in concluded} == {"oneDNN"}
    assert {execution.inferred for execution in concluded if "backward" in execution.name} == {True}


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "transposed", "sliced"])
def test_no_layout_takes_a_convolution_from_its_library(layout: str, profiled: Callable[..., Case]) -> None:
    x, weight = image(layout=layout), image(8, 8, 3, 3, layout=layout)
    (found,) = profiled(lambda: F.conv2d(x, weight)).executions
    assert (found.backend, found.evidence) == ("oneDNN", "aten::mkldnn_convolution")
    assert found.missed is None


POOLINGS: dict[str, Callable[[], object]] = {
    "max_pool1d": lambda: F.max_pool1d(torch.randn(2, 4, 16), 2),
    "max_pool2d": lambda: F.max_pool2d(image(), 2),
    "max_pool3d": lambda: F.max_pool3d(torch.randn(1, 2, 8, 8, 8), 2),
    "avg_pool1d": lambda: F.avg_pool1d(torch.randn(2, 4, 16), 2),
    "avg_pool2d": lambda: F.avg_pool2d(image(), 2),
    "avg_pool3d": lambda: F.avg_pool3d(torch.randn(1, 2, 8, 8, 8), 2),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(image(), 4),
    "adaptive_max_pool2d": lambda: F.adaptive_max_pool2d(image(), 4),
    "fractional_max_pool2d": lambda: F.fractional_max_pool2d(image(), 2, 4),
}
NORMALIZATIONS: dict[str, Callable[[], object]] = {
    "batch_norm": lambda: F.batch_norm(image(), None, None, training=True),
    "instance_norm": lambda: F.instance_norm(image()),
    "layer_norm": lambda: F.layer_norm(image(), [16]),
    "group_norm": lambda: F.group_norm(image(), 2),
    "rms_norm": lambda: F.rms_norm(image(), [16]),
}


@pytest.mark.parametrize("name", [*POOLINGS, *NORMALIZATIONS])
def test_poolings_and_normalizations_run_in_aten(name: str, profiled: Callable[..., Case]) -> None:
    program = (POOLINGS | NORMALIZATIONS)[name]
    (found,) = profiled(program).executions
    assert found.name == f"aten::{name}"
    assert (found.family, found.backend) == ("pooling" if name in POOLINGS else "normalization", "ATen")
    assert found.operands == ("contiguous",)


PRODUCTS_OF_TORCH: dict[str, tuple[Callable[[], object], list[str]]] = {
    "mm": (lambda: torch.randn(4, 8) @ torch.randn(8, 3), ["aten::matmul"]),
    "bmm": (lambda: torch.bmm(torch.randn(2, 4, 8), torch.randn(2, 8, 3)), ["aten::bmm"]),
    "mv": (lambda: torch.mv(torch.randn(4, 8), torch.randn(8)), ["aten::mv"]),
    "dot": (lambda: torch.randn(4) @ torch.randn(4), ["aten::matmul"]),
    "linear": (lambda: F.linear(torch.randn(2, 4, 8), torch.randn(3, 8), torch.randn(3)), ["aten::linear"]),
    "baddbmm": (
        lambda: torch.baddbmm(torch.randn(2, 4, 3), torch.randn(2, 4, 8), torch.randn(2, 8, 3)),
        ["aten::baddbmm"],
    ),
    "einsum of three": (
        lambda: torch.einsum("ab,bc,cd->ad", torch.randn(4, 8), torch.randn(8, 9), torch.randn(9, 5)),
        ["aten::einsum", "aten::einsum"],
    ),
    "einsum without a product": (lambda: torch.einsum("ab->ba", torch.randn(4, 8)), []),
    "attention's own": (lambda: attend(*torch.randn(3, 1, 2, 4, 8)), ["aten::scaled_dot_product_attention"]),
}


@pytest.mark.parametrize("name", PRODUCTS_OF_TORCH)
def test_products(name: str, profiled: Callable[..., Case]) -> None:
    program, names = PRODUCTS_OF_TORCH[name]
    found = profiled(program).executions
    assert [execution.name for execution in found] == names
    # On the CPU neither an operator nor a kernel says which library multiplied.
    assert {execution.backend for execution in found if execution.family == "matmul"} <= {"unknown"}


# --------------------------------------------------------------------------------------------------- dtypes, autocast

AUTOCAST: dict[str, tuple[Callable[[], object], str, bool]] = {
    "linear": (lambda: F.linear(torch.randn(4, 16), torch.randn(8, 16)), "bfloat16", True),
    "transposed weight": (lambda: F.linear(torch.randn(4, 16), torch.randn(16, 8).t()), "bfloat16", True),
    "sliced weight": (lambda: F.linear(torch.randn(4, 16), torch.randn(8, 32)[:, ::2]), "bfloat16", True),
    "expanded weight": (lambda: F.linear(torch.randn(4, 16), torch.randn(1, 16).expand(8, 16)), "bfloat16", True),
    "conv2d": (lambda: F.conv2d(image(), image(8, 8, 3, 3)), "bfloat16", True),
    "conv2d, transposed weight": (
        lambda: F.conv2d(image(), image(8, 8, 3, 3, layout="transposed")),
        "bfloat16",
        True,
    ),
    "matmul": (lambda: torch.randn(2, 4, 8) @ torch.randn(2, 8, 4), "bfloat16", True),
    "einsum": (lambda: torch.einsum("bij,bkj->bik", torch.randn(2, 4, 8), torch.randn(2, 3, 8)), "bfloat16", True),
    "attention": (lambda: attend(*torch.randn(3, 1, 2, 4, 8)), "bfloat16", True),
    "bfloat16 already": (
        lambda: F.linear(torch.randn(4, 16).bfloat16(), torch.randn(8, 16).bfloat16()),
        "bfloat16",
        False,
    ),
    "float64": (lambda: torch.randn(2, 4, 8).double() @ torch.randn(2, 8, 4).double(), "float64", False),
    "layer_norm": (lambda: F.layer_norm(torch.randn(4, 16), [16]), "float32", False),
    "batch_norm": (lambda: F.batch_norm(image(), None, None, training=True), "float32", False),
    "max_pool2d": (lambda: F.max_pool2d(image(), 2), "float32", False),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast(name: str, profiled: Callable[..., Case]) -> None:
    program, dtype, autocast = AUTOCAST[name]

    def cast() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            program()

    (found,) = profiled(cast).executions
    assert (found.dtype, found.autocast) == (dtype, autocast)
    (plain,) = profiled(program).executions
    assert not plain.autocast


def test_a_cached_cast_of_a_weight_is_autocast_all_the_same(profiled: Callable[..., Case]) -> None:
    linear, x = torch.nn.Linear(16, 8, bias=False), torch.randn(4, 16)

    def program() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            linear(x), linear(x.bfloat16())

    assert [execution.autocast for execution in profiled(program).executions] == [True, True]


# ---------------------------------------------------------------------------------------------------------- operands

axes = st.sampled_from(["plain", "t", "rows ::2", "columns ::2", "wide", "expanded", "both ::2"])


def matrix(kind: str, rows: int, columns: int) -> torch.Tensor:
    if kind == "t":
        return torch.randn(columns, rows).t()
    if kind == "rows ::2":
        return torch.randn(2 * rows, columns)[::2]
    if kind == "columns ::2":
        return torch.randn(rows, 2 * columns)[:, ::2]
    if kind == "wide":
        return torch.randn(rows, columns + 3)[:, :columns]
    if kind == "expanded":
        return torch.randn(columns).expand(rows, columns)
    if kind == "both ::2":
        return torch.randn(2 * columns, 2 * rows).t()[::2, ::2]
    return torch.randn(rows, columns)


@pytest.mark.parametrize(
    ("left", "right"), list(product(("plain", "t", "rows ::2", "columns ::2", "both ::2"), repeat=2))
)
def test_a_matrix_is_copied_first_where_no_letter_describes_it(
    left: str, right: str, profiled: Callable[..., Case]
) -> None:
    a, b = matrix(left, 6, 5), matrix(right, 5, 7)
    case = profiled(lambda: torch.mm(a, b))
    (found,) = case.executions
    ops = case.trace.ops
    clones = [ops.text(op) for op in range(len(ops))].count("aten::clone")
    assert [words == "copied first" for words in found.operands].count(True) == clones
    for words, operand in zip(found.operands, (a, b), strict=True):
        if words != "copied first":
            letter, leading = words[0], int(words.split()[-1])
            assert letter == ("T" if operand.stride(0) == 1 and not operand.is_contiguous() else "N")
            assert leading == max(operand.stride())


@given(axes, axes, st.integers(2, 6), st.integers(2, 6), st.integers(2, 6))
def test_letters_rebuild_the_strides(left: str, right: str, rows: int, inner: int, columns: int) -> None:
    pair = [matrix(left, rows, inner), matrix(right, inner, columns)]
    words = matrix_words([Tensor(tuple(t.shape), t.stride(), "float32") for t in pair], (), ())
    for operand, text in zip(pair, words, strict=True):
        along, across = min(operand.stride()), max(operand.stride())
        if text == "no stride of 1":
            assert along != 1 or across < min(operand.shape)
        else:
            leading = int(text.split()[-1])
            assert (along, across) == (1, leading)
            assert operand.stride() == ((leading, 1) if text.startswith("N") else (1, leading))


def test_a_product_of_heads_is_copied_first(profiled: Callable[..., Case]) -> None:
    q, k = torch.randn(2, 2, 16, 4, 8).transpose(2, 3)
    (found,) = profiled(lambda: q @ k.transpose(-1, -2)).executions
    assert found.operands == ("N, lda 8 (copied first)", "N, ldb 16 (copied first)")


def test_a_frozen_weight_is_broadcast(profiled: Callable[..., Case]) -> None:
    x, weight = torch.randn(16, 4, 8).transpose(0, 1), torch.randn(3, 8)
    (found,) = profiled(lambda: F.linear(x, weight)).executions
    assert found.operands == ("N, lda 32", "T, ldb 8, broadcast")


def test_images_and_weights(profiled: Callable[..., Case]) -> None:
    x, weight = image(layout="channels_last"), image(8, 8, 3, 3)
    (found,) = profiled(lambda: F.conv2d(x, weight)).executions
    assert found.operands == ("channels_last", "weight channels_last (copied first)")
    (found,) = profiled(lambda: F.layer_norm(x, [16])).executions
    assert found.operands == ("channels_last (copied first)",)
    (found,) = profiled(lambda: F.max_pool2d(x, 2)).executions
    assert found.operands == ("channels_last",)


# ------------------------------------------------------------------------------------------------ missed faster paths


def qkv(dtype: torch.dtype, depths: tuple[int, int], rank: int, strided: str) -> list[torch.Tensor]:
    shape = (2, 4, 16) if rank == 4 else (4, 16)
    made = []
    for name, depth in zip("qkv", (depths[0], depths[0], depths[1]), strict=True):
        x = torch.randn(*shape, depth, dtype=dtype)
        if name in strided:
            x = x.transpose(-1, -2).contiguous().transpose(-1, -2)
        made.append(x)
    return made


ATTENTIONS = [
    (dtype, depths, rank, mask, dropout)
    for dtype, depths, rank, mask, dropout in product(
        (torch.float32, torch.bfloat16, torch.float64), ((8, 8), (8, 4)), (4, 3), ("no", "2-D", "4-D"), (0.0, 0.1)
    )
    if (dtype, mask) in ((torch.float32, mask), (dtype, "no"))
]


@pytest.mark.parametrize(
    "setting", ATTENTIONS, ids=[f"{str(a[0])[6:]}-{a[1][1]}-{a[2]}d-{a[3]}-{a[4]}" for a in ATTENTIONS]
)
def test_attention_missed_a_fused_kernel_only_if_strides_alone_decide(
    setting: tuple[Any, ...], profiled: Callable[..., Case]
) -> None:
    dtype, depths, rank, mask, dropout = setting
    bias = {"no": None, "2-D": torch.zeros(16, 16), "4-D": torch.zeros(2, 1, 16, 16)}[mask]
    bias = bias[0] if mask == "4-D" and rank == 3 and bias is not None else bias

    def backend(strided: str) -> Execution:
        q, k, v = qkv(dtype, depths, rank, strided)
        (found,) = profiled(lambda: attend(q, k, v, bias, dropout)).executions
        return found

    dense = backend("")
    assert dense.missed is None
    for strided in ("q", "k", "qkv"):
        found = backend(strided)
        assert found.backend == "math attention"
        if dense.backend == "flash attention":
            assert found.missed is not None
            assert found.missed.operands == tuple("qkv".index(name) for name in strided)
            assert found.missed.inferred == (mask != "no")
        else:
            assert found.missed is None


def test_math_that_the_program_wants_is_no_fault_of_layout(profiled: Callable[..., Case]) -> None:
    q, k, v = qkv(torch.float32, (8, 8), 4, "k")

    def program() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            attend(q, k, v), attend(q, q, v)

    assert [execution.missed for execution in profiled(program).executions] == [None, None]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "transposed", "sliced"])
def test_batch_norm_leaves_its_kernel_because_of_layout(
    layout: str, training: bool, profiled: Callable[..., Case]
) -> None:
    norm, x = torch.nn.BatchNorm2d(8).train(training), image(layout=layout)
    case = profiled(lambda: norm(x))
    (found,) = case.executions
    ops = {case.trace.ops.text(op) for op in range(len(case.trace.ops))}
    generic = {"aten::mean", "aten::sqrt"} & ops
    assert bool(generic) == (layout in ("transposed", "sliced")) == (found.missed is not None)
    torch.testing.assert_close(norm(x), norm(x.contiguous()))


@pytest.mark.parametrize("trainable", [True, False])
def test_on_the_cpu_no_bias_is_missed(trainable: bool, profiled: Callable[..., Case]) -> None:
    linear, x = torch.nn.Linear(8, 8).requires_grad_(trainable), torch.randn(16, 4, 8).transpose(0, 1)
    case = profiled(lambda: linear(x))
    assert "aten::add_" in case.trace.ops.names
    assert [execution.missed for execution in forward(case)] == [None]


# ------------------------------------------------------------------------------------------------------------- tables


def test_equal_layers_are_one_row_of_the_report() -> None:
    blocks = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    x = torch.randn(4, 8)
    with stridewise.record() as recording:
        blocks(x).sum().backward()
    rows = {row.op: row for row in stridewise.analyze(recording, paths=True).paths}
    linear, gradient = rows["aten::linear"], rows["aten::mm (backward)"]
    assert (linear.count, linear.family, linear.dtype) == (3, "matmul", "float32")
    assert linear.site is not None
    assert linear.site.module == "*"
    assert linear.site.expression == "blocks(x)"
    assert gradient.site is not None
    assert gradient.site.expression == "blocks(x)"
    assert linear.duration_ns


def test_a_log_of_onednn_alone_tells_its_primitives(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        "onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx512_core,forward_training,"
        "src:f32:a:blocked:acdb::f0 wei:f32:a:blocked:ABcd16b16a::f0 dst:f32:a:blocked:acdb::f0,,"
        "alg:convolution_direct,mb4_ic8oc8_ih16oh16kh3sh1dh0ph1,0.5\n"
        "onednn_verbose,v1,primitive,exec,cpu,softmax,jit:avx512_core,forward_inference,"
        "src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,4x8,0.1\n"
    )
    (row,) = stridewise.analyze(path, paths=True).paths
    assert (row.op, row.backend, row.dtype, row.evidence) == ("convolution", "oneDNN", "float32", "brgconv:avx512_core")
    assert row.operands == ("src acdb", "wei ABcd16b16a", "dst acdb")
    assert row.duration_ns == 500_000
    assert "softmax" not in PRIMITIVES
