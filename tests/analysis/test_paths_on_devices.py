"""Which implementation ran on a device: traces made by hand, and those that others recorded."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stridewise.analysis.case import Case
from stridewise.analysis.kernel_names import implementation
from stridewise.analysis.paths.tensors import Tensors
from stridewise.analysis.paths.units import Units
from stridewise.recording.handle import Recording


def gpu_trace(path: Path, ops: list[tuple[str, int, int, dict[str, Any]]], kernels: list[tuple[str, int]]) -> Case:
    """A trace with operators (name, start, end, arguments) and kernels (name, time of launch), in microseconds."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}
        for name, start, end, args in ops
    ]
    for number, (name, at) in enumerate(kernels, 1):
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at, "dur": 1}
        kernel = {"cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1000 + 10 * number, "dur": 5}
        events += [{"ph": "X", "args": {"correlation": number}, **event} for event in (launch, kernel)]
    path.write_text(json.dumps({"traceEvents": events}))
    return Case(Recording.load(path).trace)


def args(*tensors: tuple[list[int], list[int]] | None, dtype: str = "c10::Half") -> dict[str, Any]:
    return {
        "Input Dims": [tensor[0] if tensor else [] for tensor in tensors],
        "Input Strides": [tensor[1] if tensor else [] for tensor in tensors],
        "Input type": [dtype if tensor else "" for tensor in tensors],
    }


GEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
X, WEIGHT, BIAS = ([4, 16, 64], [64, 256, 1]), ([32, 64], [64, 1]), ([32], [1])


@pytest.mark.parametrize("contiguous", [True, False])
def test_a_bias_that_a_device_adds_in_a_pass_of_its_own(contiguous: bool, tmp_path: Path) -> None:
    """The operators are those that the CPU shows for the same call."""
    x = ([4, 16, 64], [1024, 64, 1]) if contiguous else X
    flat = ([64, 64], [64, 1])
    case = gpu_trace(
        tmp_path / "trace.json",
        [
            ("aten::linear", 0, 100, args(x, WEIGHT, BIAS)),
            ("aten::matmul", 10, 60, args(x, ([64, 32], [1, 64]))),
            ("aten::mm", 20, 50, args(flat, ([64, 32], [1, 64]))),
            ("aten::add_", 70, 90, args(([4, 16, 32], [512, 32, 1]), BIAS)),
        ],
        [(GEMM, 30), ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>>", 80)],
    )
    (found,) = case.executions
    assert (found.backend, found.dtype, found.duration_ns) == ("cuBLAS", "float16", 10_000)
    assert (found.missed and found.missed.path) == (None if contiguous else "fused bias")


def test_kernels_that_no_operator_launched(tmp_path: Path) -> None:
    case = gpu_trace(
        tmp_path / "trace.json",
        [("FlashAttnFunc", 0, 50, {})],
        [("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::half_t>>", 10), (GEMM, 70), ("my_kernel", 80)],
    )
    found = [(execution.name, execution.family, execution.backend) for execution in case.executions]
    assert found == [("FlashAttnFunc", "attention", "flash attention"), ("(no operator)", "matmul", "cuBLAS")]


def test_what_no_kernel_was_recorded_for_has_no_time(tmp_path: Path) -> None:
    case = gpu_trace(tmp_path / "trace.json", [("aten::cudnn_convolution", 0, 50, {})], [(GEMM, 70)])
    assert case.executions[0].backend == "cuDNN"
    assert case.executions[0].duration_ns is None


# -------------------------------------------------------------------------------------------------------- real traces

TRACES = Path(__file__).parents[3] / "shared" / "traces"
NAMES = [
    *("a100_alexnet", "a100_train_nccl_noshapes", "h100_owlv2", "h100_timesformer", "h100_vit_nsfw"),
    "mi300_resnet_train",
]
real = pytest.mark.skipif(not TRACES.is_dir(), reason="no traces of GPUs beside the checkout")


@cache
def case_of(name: str) -> Case:
    return Case(Recording.load(TRACES / f"{name}.json.gz").trace)


@real
@pytest.mark.parametrize("name", NAMES)
def test_no_kernel_counts_twice(name: str) -> None:
    case = case_of(name)
    units = Units(case.trace)
    events = [event for unit in units.found for event in unit.events]
    assert len(set(events)) == len(events)
    kernels = [event for event in case.trace.device_events if event.category == "kernel"]
    assert len(events) + len(units.orphans) == len(kernels)
    assert sum(execution.duration_ns or 0 for execution in case.executions) <= sum(
        event.duration_ns for event in kernels
    )


@real
@pytest.mark.parametrize(
    ("name", "family", "backends"),
    [
        ("a100_alexnet", "convolution", {"cuDNN"}),
        ("a100_train_nccl_noshapes", "convolution", {"cuDNN"}),
        ("a100_train_nccl_noshapes", "normalization", {"cuDNN"}),
        ("h100_owlv2", "matmul", {"cuBLAS", "cuBLASLt"}),
        ("h100_owlv2", "convolution", {"cuDNN"}),
        ("h100_timesformer", "matmul", {"cuBLAS"}),
        ("h100_vit_nsfw", "attention", {"flash attention"}),
        ("h100_vit_nsfw", "normalization", {"ATen"}),
        ("mi300_resnet_train", "convolution", {"MIOpen"}),
        ("mi300_resnet_train", "normalization", {"ATen"}),
        ("mi300_resnet_train", "pooling", {"ATen"}),
        ("mi300_resnet_train", "matmul", {"hipBLASLt"}),
    ],
)
def test_backends_of_real_traces(name: str, family: str, backends: set[str]) -> None:
    found = [entry for entry in case_of(name).executions if entry.family == family and entry.op >= 0]
    assert {execution.backend for execution in found} == backends


@real
def test_operators_of_a_real_trace_are_counted_once() -> None:
    found = Counter(execution.name for execution in case_of("h100_owlv2").executions)
    # Of 365 bmm 5 lie in an einsum, of 15 matmul 10 in a linear.
    assert found["aten::linear"] == 1135
    assert found["aten::bmm"] == 360
    assert found["aten::einsum"] == found["aten::matmul"] == found["aten::conv2d"] == 5


@real
@pytest.mark.parametrize("name", NAMES)
def test_letters_are_those_of_the_kernels(name: str) -> None:
    """A library's kernel has the second operand's letter first: torch hands both over swapped."""
    case = case_of(name)
    tensors = Tensors(case.trace.ops)
    checked = 0
    for unit in Units(case.trace).found:
        names = [case.trace.device_events[event].name for event in unit.events]
        told = {found.transposes for kernel in names if (found := implementation(kernel)) and found.transposes}
        if unit.family == "matmul" and len(told) == 1 and tensors.of(unit.leaf):
            (execution,) = [entry for entry in case.executions if entry.op == unit.first]
            first, second = execution.operands
            assert told == {second[0] + first[0]}
            checked += 1
    assert checked or name.startswith("a100")


@real
@pytest.mark.parametrize("name", ["h100_owlv2", "h100_timesformer", "h100_vit_nsfw"])
def test_a_kernel_for_unaligned_rows_is_explained_by_a_row_length(name: str) -> None:
    case = case_of(name)
    of_bfloat16 = 0
    for execution in case.executions:
        found = implementation(execution.evidence.partition(", ")[2] or " ")
        if execution.family == "matmul" and found is not None and found.alignment is not None:
            of_bfloat16 += 1
            missed = execution.missed is not None and execution.missed.path == "aligned loads"
            assert missed == (found.alignment < 8)
    assert of_bfloat16


@real
@pytest.mark.parametrize("name", NAMES)
def test_a_library_that_works_in_nhwc_transposes_what_is_row_major(name: str) -> None:
    case = case_of(name)
    missed = [entry for entry in case.executions if entry.missed and entry.missed.path == "no transposes"]
    assert missed
    assert {entry.backend for entry in missed} <= {"cuDNN", "MIOpen"}
    assert all(not entry.operands or "transposed inside" in entry.operands[0] for entry in missed)


@real
def test_tf32_is_told_by_kernels() -> None:
    dtypes = Counter(entry.dtype for entry in case_of("a100_alexnet").executions if entry.family == "convolution")
    assert dtypes == {"tf32": 6, "float32": 2, None: 2}
