"""The table of what ran, held by snapshots; and that it fits, is plain in a pipe, and is inert."""

import io
from typing import Any

import pytest
from rich.cells import cell_len

from stridewise.findings import Cost, Site
from stridewise.report import render, terminal
from stridewise.report.headline import headline
from stridewise.results import PathRow, Report

from . import samples

MODULE = "blocks.*.attention.output.dense"


def row(**fields: object) -> PathRow:
    values: dict[str, object] = {
        "family": "matmul",
        "op": "aten::linear",
        "site": Site(file="model.py", line=42, module=MODULE),
        "backend": "cuBLAS",
        "dtype": "bfloat16",
        "autocast": True,
        "operands": ("N, lda 768", "T, ldb 768"),
        "missed": None,
        "evidence": "aten::addmm, sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_",
        "count": 36,
        "duration_ns": 1_240_000,
    }
    return PathRow(**{**values, **fields})  # type: ignore[arg-type]


DEVICE = (
    row(),
    row(
        op="aten::matmul",
        operands=("N, lda 64 (copied first)", "N, ldb 3137 (copied first)"),
        evidence="aten::bmm, cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1",
        missed="loads of 16 bytes: ldb 3137 is no multiple of 8",
    ),
    row(
        family="convolution",
        op="aten::convolution_backward",
        site=Site(file="/a/long/way/to/the/sources/of/some/package/models/resnet.py", line=89),
        backend="cuDNN",
        dtype="tf32",
        autocast=False,
        operands=("gradient contiguous, transposed inside", "input permuted", "weight channels_last"),
        evidence="aten::convolution_backward, cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32",
        missed="channels_last: 5 of its 8 kernels transpose",
    ),
    row(
        family="attention",
        op="(no operator)",
        site=None,
        backend="memory-efficient attention",
        dtype=None,
        autocast=False,
        operands=(),
        evidence="fmha_cutlassF_bf16_aligned_64x64_rf_sm80",
        duration_ns=None,
        count=1234,
    ),
)
CPU = (
    row(backend="unknown", autocast=False, dtype="float32", evidence="aten::addmm"),
    row(
        family="attention",
        op="aten::scaled_dot_product_attention",
        backend="math attention",
        autocast=False,
        dtype="float32",
        operands=("query and value contiguous", "key permuted, last stride 16"),
        evidence="aten::_scaled_dot_product_attention_math",
        missed="fused attention: last stride of key 16 instead of 1",
    ),
    row(
        family="convolution",
        op="aten::convolution_backward",
        backend="oneDNN",
        inferred=True,
        autocast=False,
        operands=("contiguous",),
        evidence="aten::convolution_backward",
    ),
)
MANY = tuple(row(count=number, duration_ns=1000 * (99 - number)) for number in range(1, 50))
HOSTILE = (
    row(
        op="aten::\x1b[31mlinear\n",
        backend="[red]x[/red]",
        dtype="\x07",
        operands=("a\nb\x1b",),
        evidence="::error::x" + "y" * 300,
        missed="::warning::\x1b",
        site=Site(file="e\x1b\n.py", line=1, module="\x1b]"),
    ),
)
TABLES = {"DEVICE": DEVICE, "CPU": CPU, "MANY": MANY, "HOSTILE": HOSTILE, "NONE": ()}


def report(name: str) -> Report:
    return samples.report(paths=TABLES[name])


def rendered(name: str, **options: int) -> str:
    out = io.StringIO()
    terminal.render(report(name), out, tables=("paths",), **options)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize("name", [name for name in TABLES if name != "MANY"])
def test_snapshot(name: str, snapshot: object) -> None:
    assert rendered(name) == snapshot


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("width", [100, 80, 60])
def test_lines_fit_and_are_plain_text(name: str, width: int) -> None:
    for line in rendered(name, width=width).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()
        assert line == line.rstrip()
        assert "::error::" not in line


def test_many_rows_are_cut_short() -> None:
    shown = rendered("MANY")
    assert shown.count(" linear ") == 40
    assert "… 9 more rows, together 486 µs: all of them in --format json" in shown


def test_it_is_shown_only_when_asked() -> None:
    out = io.StringIO()
    render(report("CPU"), "text", out)
    assert "What ran" not in out.getvalue()


@pytest.mark.parametrize(
    ("severity", "copies", "sentence"),
    [
        ("note", 0, "Layout keeps 12 operators a step from a faster path."),
        ("warning", 0, "Layout keeps 12 operators a step from a faster path."),
        (
            "warning",
            2,
            "Layout costs 1 % of a step: 2 copies move 3.1 kB; it keeps 12 operators a step from a faster path.",
        ),
    ],
)
def test_layout_is_not_fine_where_a_faster_path_is_missed(severity: Any, copies: int, sentence: str) -> None:
    missed = samples.finding("SW108", title="fast-path-missed", severity=severity, count=12, cost=Cost())
    made = samples.report([missed], copies=copies, bytes_moved=3100 if copies else 0, share=0.01 if copies else 0)
    assert headline(made) == sentence
