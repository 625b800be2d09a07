"""Which kernels only change layout, who launched them, and what they add up to."""

import pytest

import stridewise
from stridewise.api import Report
from stridewise.errors import UsageError

from .hand_made import annotation, frame, kernel, launch, op, recording

DIRECT = (
    "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
)
TRANSPOSE = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, true, (cudnnKernelDataType_t)0>()"
GEMM = "ampere_sgemm_128x64_tn"
PERMUTED = [[8, 1], [1, 4]]
DENSE = [[8, 1], [8, 1]]


def analyzed(*events: object, **options: object) -> Report:
    return stridewise.analyze(recording(*events), **options)  # type: ignore[arg-type]


def cause_of(report: Report) -> str | None:
    (row,) = report.kernels
    return row.cause


@pytest.mark.parametrize(
    ("name", "sizes", "strides", "cause"),
    [
        ("aten::copy_", [[4, 8], [4, 8]], PERMUTED, "copy"),
        ("aten::copy_", [[4, 8], [4, 8]], DENSE, None),
        ("aten::copy_", [[4, 8], [4, 8]], [[8, 1], [16, 2]], "copy"),
        ("aten::copy_", [[4, 8], [4, 8]], [[8, 1], [0, 1]], None),
        ("aten::copy_", [[4, 8], [4, 8]], [], "possible"),
        ("aten::copy_", [], [], "possible"),
        ("aten::addmm", [[4, 8]], [[8, 1]], "possible"),
    ],
    ids=["reorder", "cast", "pack", "spread", "no-strides", "no-shapes", "no-copy"],
)
def test_a_direct_copy_is_what_the_copy_that_launched_it_is(
    name: str, sizes: list[list[int]], strides: list[list[int]], cause: str | None
) -> None:
    assert cause_of(analyzed(op(name, 0, 9, sizes, strides), launch(3, 1), kernel(50, 5, DIRECT, 1))) == cause


def test_a_transpose_of_a_library_is_one_by_its_name() -> None:
    image = op("aten::conv2d", 0, 30, [[2, 3, 8, 8]], [[192, 64, 8, 1]], "c10::Half")
    inner = op("aten::cudnn_convolution", 5, 20, [[2, 3, 8, 8]], [[192, 64, 8, 1]], "c10::Half")
    report = analyzed(image, inner, launch(8, 1), kernel(50, 5, TRANSPOSE, 1), launch(9, 2), kernel(60, 15, GEMM, 2))
    (copy,) = report.copies
    assert (copy.kind, copy.change, copy.op, copy.sizes, copy.bytes_moved) == (
        "library",
        "reorder",
        "aten::conv2d",
        None,
        None,
    )
    (finding,) = report.findings
    assert finding.code == "SW107"
    assert "NHWC kernels on an NCHW network in float16" in finding.message
    assert finding.cost.bytes_moved is None
    assert finding.cost.share == pytest.approx(0.25)
    assert report.totals.layout_kernels is not None
    assert report.totals.layout_kernels.share == pytest.approx(0.25)
    assert report.totals.layout_kernels.by_cause["transpose"].count == 1


def test_a_channels_last_network_is_not_told_to_become_one() -> None:
    image = op("aten::conv2d", 0, 30, [[2, 3, 8, 8]], [[192, 1, 24, 3]], "c10::Half")
    (finding,) = analyzed(image, launch(8, 1), kernel(50, 5, TRANSPOSE, 1)).findings
    assert "NCHW network" not in finding.message


@pytest.mark.parametrize(
    ("sizes", "strides", "cause"),
    [
        ([[4, 8], [4, 8]], [[8, 1], [1, 4]], "generated"),
        ([[4, 8], [4, 8]], DENSE, None),
        ([[4, 8], [4, 8]], [], "possible"),
        ([[4, 8], [8, 4], [4, 8]], [[8, 1], [4, 1], [8, 1]], None),
    ],
    ids=["reorder", "no-change", "no-strides", "three-tensors"],
)
def test_a_generated_kernel_is_what_its_launch_was_given(
    sizes: list[list[int]], strides: list[list[int]], cause: str | None
) -> None:
    name = "triton_poi_fused_clone_0"
    report = analyzed(op(name, 0, 9, sizes, strides), launch(3, 1), kernel(50, 5, name, 1))
    assert cause_of(report) == cause
    assert [copy.kind for copy in report.copies] == (["compiled"] if cause == "generated" else [])
    if cause == "generated":
        assert report.copies[0].bytes_moved == 2 * 4 * 32


def test_a_project_names_kernels_of_its_own() -> None:
    events = [op("my::relayout", 0, 9), launch(3, 1), kernel(50, 5, "my_relayout_kernel", 1)]
    assert cause_of(analyzed(*events)) in (None, "possible")
    assert cause_of(analyzed(*events, kernel_patterns={"^my_relayout": "transpose"})) == "transpose"
    with pytest.raises(UsageError, match="cause"):
        analyzed(*events, kernel_patterns={"^my_relayout": "magic"})
    with pytest.raises(UsageError, match="regular expression"):
        analyzed(*events, kernel_patterns={"(": "transpose"})


def test_a_kernel_has_the_operator_the_function_and_the_annotation_around_its_launch() -> None:
    report = analyzed(
        frame(0, 100, "train.py(3): step"),
        annotation(1, 90, "forward pass"),
        op("aten::copy_", 5, 9, [[4, 8], [4, 8]], PERMUTED),
        launch(8, 1),
        kernel(50, 5, DIRECT, 1),
        launch(40, 2),
        kernel(60, 7, GEMM, 2),
        kernel(80, 1, GEMM),
    )
    assert [(row.op, row.site and row.site.function, row.range, row.count) for row in report.kernels] == [
        (None, "step", "forward pass", 1),
        ("aten::copy_", "step", "forward pass", 1),
        (None, None, None, 1),
    ]


def test_streams_are_busy_each_for_itself() -> None:
    report = analyzed(
        op("aten::copy_", 5, 9, [[4, 8], [4, 8]], PERMUTED),
        launch(8, 1),
        kernel(50, 10, DIRECT, 1),
        kernel(50, 40, GEMM, stream=9),
        kernel(50, 40, GEMM, stream=9),
        kernel(50, 10, GEMM, device=1),
    )
    rows = [
        (row.device, row.stream, row.busy_ns, row.kernels, row.layout.count, row.layout.share) for row in report.streams
    ]
    assert rows == [(0, 7, 10_000, 1, 1, 1.0), (0, 9, 80_000, 2, 0, 0.0), (1, 7, 10_000, 1, 0, 0.0)]
    assert report.totals.layout_kernels is not None
    assert report.totals.layout_kernels.share == pytest.approx(10 / 100)


def test_without_a_device_there_are_no_figures_of_one() -> None:
    report = analyzed(op("aten::copy_", 0, 9, [[4, 8], [4, 8]], PERMUTED))
    assert report.totals.layout_kernels is None
    assert report.streams == ()


def test_kernels_that_compute_leave_layout_fine() -> None:
    report = analyzed(op("aten::mm", 0, 9, [[4, 8], [8, 4]], [[8, 1], [4, 1]]), launch(3, 1), kernel(50, 5, GEMM, 1))
    assert report.totals.layout_kernels is not None
    assert report.totals.layout_kernels.count == 0
    assert str(report).startswith("Layout is fine: it costs 0 % of this run's kernel-busy time")


def test_a_correlation_that_is_used_again_means_the_last_launch_before_the_kernel() -> None:
    report = analyzed(
        op("aten::copy_", 5, 9, [[4, 8], [4, 8]], PERMUTED),
        launch(8, 1),
        kernel(10, 5, DIRECT, 1),
        op("aten::mm", 40, 9),
        launch(42, 1),
        kernel(50, 5, GEMM, 1),
    )
    assert sorted((row.op, row.cause) for row in report.kernels) == [("aten::copy_", "copy"), ("aten::mm", None)]


def test_a_launch_in_an_operator_without_a_length_is_its_own() -> None:
    """Old traces count whole microseconds."""
    report = analyzed(op("aten::copy_", 10, 0, [[4, 8], [4, 8]], PERMUTED), launch(10, 1), kernel(20, 7, DIRECT, 1))
    assert cause_of(report) == "copy"


def test_what_was_launched_before_the_recording_is_of_no_step() -> None:
    report = analyzed(
        op("aten::copy_", 5, 9, [[4, 8], [4, 8]], PERMUTED),
        launch(8, 7),
        kernel(10, 5, DIRECT, 7),
        kernel(1, 5, TRANSPOSE, 3),
    )
    assert report.totals.layout_kernels is not None
    assert report.totals.layout_kernels.count == 1
    assert report.totals.copies == 1
    assert sum(row.count for row in report.kernels) == 2
    assert any("launched before the recording" in note for note in report.notes)


def test_no_share_is_more_than_all() -> None:
    events = [op("aten::copy_", 10 * n, 9, [[4, 8], [4, 8]], PERMUTED) for n in range(3)]
    events += [launch(10 * n + 3, n + 1) for n in range(3)]
    events += [kernel(-100, 50, DIRECT, n + 1, stream=n) for n in range(3)]
    report = analyzed(*events)
    assert report.totals.share == 1
    assert report.totals.layout_kernels is not None
    assert report.totals.layout_kernels.share == 1
