"""Traces of GPUs that others recorded, against independent counts made with plain `json`."""

import gzip
import json
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import stridewise
from stridewise.api import Report

TRACES = Path(__file__).parents[3] / "shared" / "traces"
NAMES = [
    *("a100_alexnet", "a100_train_nccl_noshapes", "h100_owlv2", "h100_timesformer", "h100_vit_nsfw"),
    "mi300_resnet_train",
]
VENDOR = ("nchwToNhwcKernel", "nhwcToNchwKernel", "batched_transpose_", "transpose_NCHW2CNHW", "transpose_CNHW2NCHW")

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="no traces of GPUs beside the checkout")


@cache
def report(name: str) -> Report:
    return stridewise.analyze(TRACES / f"{name}.json.gz")


@cache
def events(name: str) -> tuple[dict[str, Any], ...]:
    with gzip.open(TRACES / f"{name}.json.gz") as file:
        return tuple(json.load(file)["traceEvents"])


def kernels(name: str, *words: str) -> list[float]:
    """The times of kernels whose names hold one of these words; of all without words."""
    return [
        event["dur"]
        for event in events(name)
        if event.get("cat") == "kernel" and (not words or any(word in event["name"] for word in words))
    ]


@pytest.mark.parametrize("name", NAMES)
def test_vendor_transposes_are_those_that_their_names_tell(name: str) -> None:
    expected = kernels(name, *VENDOR)
    found = [row for row in report(name).kernels if row.cause == "transpose"]
    assert expected
    assert sum(row.count for row in found) == len(expected)
    assert sum(row.duration_ns for row in found) == pytest.approx(1000 * sum(expected), abs=len(expected))


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_is_in_the_table_once(name: str) -> None:
    assert sum(row.count for row in report(name).kernels) == len(kernels(name))
    assert sum(row.duration_ns for row in report(name).kernels) == pytest.approx(
        1000 * sum(kernels(name)), abs=len(kernels(name))
    )


@pytest.mark.parametrize(
    ("name", "words", "percent"),
    [
        ("h100_vit_nsfw", ("nchwToNhwcKernel", "nhwcToNchwKernel"), 1.9),
        ("h100_timesformer", ("direct_copy_kernel_cuda",), 4.8),
        ("mi300_resnet_train", ("batched_transpose_",), 5.5),
        ("a100_train_nccl_noshapes", ("nchwToNhwcKernel", "nhwcToNchwKernel"), 9.3),
    ],
)
def test_shares_of_all_kernel_time_are_those_that_are_known(name: str, words: tuple[str, ...], percent: float) -> None:
    rows = report(name).kernels
    found = sum(row.duration_ns for row in rows if any(word in row.name for word in words))
    assert 100 * found / sum(row.duration_ns for row in rows) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_shares_are_of_the_time_of_all_kernels(name: str) -> None:
    rows = [row for row in report(name).kernels if row.cause == "transpose"]
    assert sum(row.share or 0 for row in rows) == pytest.approx(
        sum(kernels(name, *VENDOR)) / sum(kernels(name)), rel=1e-3
    )


@pytest.mark.parametrize("name", NAMES)
def test_layout_kernels_per_step_times_steps_are_the_table(name: str) -> None:
    totals = report(name).totals
    assert totals.layout_kernels is not None
    causes = Counter({row.cause: 0 for row in report(name).kernels})
    for row in report(name).kernels:
        causes[row.cause] += row.count
    in_steps = {cause: time.count * totals.steps for cause, time in totals.layout_kernels.by_cause.items()}
    # What was launched outside steps is in the table alone.
    assert all(round(count, 6) <= causes[cause] for cause, count in in_steps.items())
    if not totals.steps_found or totals.steps == 1:
        assert sum(in_steps.values()) == sum(causes[cause] for cause in ("transpose", "copy", "generated"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("h100_owlv2", {"reorder": 720, "materialize": 5}), ("h100_timesformer", None), ("h100_vit_nsfw", {})],
)
def test_every_copy_with_strides_has_its_sizes_kind_change_and_operator(
    name: str, expected: dict[str, int] | None
) -> None:
    independent: Counter[tuple[Any, ...]] = Counter()
    for event in events(name):
        args = event.get("args", {})
        if event.get("name") != "aten::copy_" or event.get("cat") != "cpu_op" or len(args["Input Dims"]) < 2:
            continue
        (sizes, source_sizes), (strides, source) = args["Input Dims"][:2], args["Input Strides"][:2]
        moved = any(n > 1 and a != b for n, a, b in zip(sizes, source, strides, strict=False))
        if sizes == source_sizes and moved and 0 not in sizes:
            independent[tuple(sizes), tuple(source), tuple(strides)] += 1
    copies = [copy for copy in report(name).copies if copy.kind != "library"]
    assert Counter((copy.sizes, copy.source_strides, copy.strides) for copy in copies) == independent
    assert all(copy.kind and copy.change and copy.op.startswith("aten::") for copy in copies)
    if expected is not None:
        assert Counter(copy.change for copy in copies) == expected


def test_the_kernels_of_copies_are_those_that_the_copies_launched() -> None:
    found = report("h100_timesformer")
    direct = [row for row in found.kernels if "direct_copy_kernel" in row.name]
    copies = [copy for copy in found.copies if copy.kind != "library"]
    assert sum(row.count for row in direct) == len(copies) == 122
    assert sum(row.duration_ns for row in direct) == sum(copy.duration_ns or 0 for copy in copies)
    assert sum(row.count for row in direct if row.cause == "copy") == 110  # the others spread, and take casts along


def test_a_kernel_that_may_be_a_cast_is_possible_and_apart() -> None:
    """15 of owlv2's direct copies run in `addmm`, which has no `copy_` of its own: nothing tells what they change."""
    totals = report("h100_owlv2").totals
    assert totals.layout_kernels is not None
    assert totals.layout_kernels.possible.count == 15
    assert {row.op for row in report("h100_owlv2").kernels if row.cause == "possible"} == {"aten::addmm"}


@pytest.mark.parametrize("name", ["h100_owlv2", "h100_timesformer", "h100_vit_nsfw"])
def test_copies_have_the_function_and_the_module_around_them(name: str) -> None:
    sites = [copy.site for copy in report(name).copies]
    assert all(site is not None and site.file and site.function and site.module for site in sites)
    assert all(not (site.file or "").startswith("torch/") for site in sites if site is not None)


@pytest.mark.parametrize("name", ["h100_owlv2", "h100_timesformer", "h100_vit_nsfw", "mi300_resnet_train"])
def test_the_costs_of_findings_add_up_to_the_tax(name: str) -> None:
    found = report(name)
    assert found.totals.share_of == "kernel-busy time"
    assert sum(finding.cost.copies for finding in found.findings) == pytest.approx(found.totals.copies)
    assert sum(finding.cost.duration_ns or 0 for finding in found.findings) == pytest.approx(found.totals.duration_ns)
    assert all(copy.duration_ns for copy in found.copies)


@pytest.mark.parametrize("name", ["a100_alexnet", "a100_train_nccl_noshapes"])
def test_without_strides_the_names_of_kernels_still_tell(name: str) -> None:
    found = report(name)
    assert found.totals.copies is None
    assert any("record_shapes" in note for note in found.notes)
    assert {finding.code for finding in found.findings} == {"SW107"}
    assert all(row.op is not None for row in found.kernels)


def test_an_nchw_network_in_half_precision_is_told_to_be_one() -> None:
    messages = [finding.message for finding in report("h100_owlv2").findings if finding.code == "SW107"]
    assert any("NHWC kernels on an NCHW network in bfloat16" in message for message in messages)


@pytest.mark.parametrize("name", ["a100_alexnet", "h100_vit_nsfw", "mi300_resnet_train"])
def test_the_order_of_events_in_a_file_does_not_count(name: str, tmp_path: Path) -> None:
    shuffled = list(events(name))
    random.Random(0).shuffle(shuffled)
    with gzip.open(TRACES / f"{name}.json.gz") as file:
        whole = {**json.load(file), "traceEvents": shuffled}
    (tmp_path / "shuffled.json").write_text(json.dumps(whole))
    again = stridewise.analyze(tmp_path / "shuffled.json")
    assert again.totals == report(name).totals
    assert again.findings == report(name).findings
    assert Counter(again.kernels) == Counter(report(name).kernels)
