"""Recordings of transformers models against an independent count, and against the same step unrecorded."""

from collections import Counter
from typing import Any

import pytest
import torch
from msgspec import Struct
from torch.profiler import profile

import stridewise
from stridewise.api import Report

from .models import MODELS, build
from .truth import Row, count_copies


class Run(Struct):
    name: str
    train: bool
    truth: Counter[Row]
    plain: dict[str, torch.Tensor]
    recorded: dict[str, torch.Tensor]
    report: Report
    recording: Any


@pytest.fixture(
    scope="module",
    params=[(name, train) for name in MODELS for train in (False, True)],
    ids=lambda param: f"{param[0]}-{'train' if param[1] else 'eval'}",
)
def run(request: pytest.FixtureRequest) -> Run:
    name, train = request.param
    step = build(name, train)
    with profile(record_shapes=True) as profiler:
        plain = {key: value.clone() for key, value in step().items()}
    with stridewise.record() as recording:
        recorded = step()
        recording.step()
    return Run(name, train, count_copies(profiler), plain, recorded, stridewise.analyze(recording), recording)


def test_the_copies_are_those_of_an_independent_count(run: Run) -> None:
    copies = Counter(
        (copy.sizes, copy.source_strides, copy.strides, copy.change, copy.backward) for copy in run.report.copies
    )
    assert copies == run.truth


def test_the_tax_follows_the_definition(run: Run) -> None:
    expected = Counter[str]()
    for (_, _, _, change, backward), count in run.truth.items():
        if change == "reorder" or (change == "pack" and not backward):
            expected[change] += count
    totals = run.report.totals
    found = {change: cost.copies for change, cost in totals.by_change.items()}
    materialized = found.pop("materialize", 0)
    if run.name == "resnet_channels_last":
        expected.clear()  # in training, the gradients of weights in their channels_last order: listed, not taxed
    assert found == dict(expected)
    assert totals.copies == sum(expected.values()) + materialized
    assert materialized == sum(copy.taxed for copy in run.report.copies if copy.change == "materialize")


def test_the_costs_of_findings_add_up_to_the_tax(run: Run) -> None:
    findings, totals = run.report.findings, run.report.totals
    assert sum(finding.cost.copies for finding in findings) == pytest.approx(totals.copies)
    assert sum(finding.cost.bytes_moved for finding in findings) == pytest.approx(totals.bytes_moved)
    assert sum(finding.cost.duration_ns or 0 for finding in findings) == pytest.approx(totals.duration_ns)
    for finding in findings:
        if finding.code == "SW106":  # it points at copies that other findings are charged with
            assert finding.cost.copies == 0
            continue
        assert sum(payer.cost.copies for payer in finding.payers) == pytest.approx(finding.cost.copies)


def test_results_are_bit_identical(run: Run) -> None:
    assert run.plain.keys() == run.recorded.keys()
    for name, value in run.plain.items():
        assert torch.equal(value, run.recorded[name]), name
        assert value.stride() == run.recorded[name].stride(), name


def test_copies_name_their_expressions(run: Run) -> None:
    named = [
        copy
        for copy in run.report.copies
        if copy.site is not None
        and copy.site.file is not None
        and not copy.site.file.startswith("torch/")
        and copy.site.line is not None
        and copy.site.column is not None
        and copy.site.expression
    ]
    assert len(named) >= 0.99 * len(run.report.copies)


def test_a_healthy_network_has_no_findings(run: Run) -> None:
    if run.name == "resnet_channels_last":
        assert run.report.findings == ()
        assert run.report.ok
        assert run.report.totals.copies == 0
    else:
        assert run.report.totals.steps_found


def test_whispers_encoder_is_one_stream() -> None:
    step = build("whisper", train=False)
    with stridewise.record() as recording:
        step()
        recording.step()
    streams = [finding for finding in stridewise.analyze(recording).findings if finding.code == "SW101"]
    assert len(streams) == 1
    (stream,) = streams
    assert stream.origin is not None
    assert stream.origin.expression == "inputs_embeds.permute(0, 2, 1)"
    assert stream.site == stream.origin
    assert {carrier.op for carrier in stream.carriers} == {"torch.Tensor.add"}
    assert {payer.op for payer in stream.payers} == {"torch.nn.functional.layer_norm"}
    assert stream.cost.copies == 5  # two layer norms in each of two layers, and one behind them
    modules = {payer.site.module for payer in stream.payers}
    assert modules == {
        "encoder.layers.*.self_attn_layer_norm",
        "encoder.layers.*.final_layer_norm",
        "encoder.layer_norm",
    }
