"""A live recording against the trace that torch's own profiler writes: the same copies, without sites of calls."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stridewise
from stridewise.api import Report
from stridewise.recording.handle import Recording
from stridewise.recording.model import LOG_KEY, MARK


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(x).chunk(3, -1)
        heads = [part.unflatten(-1, (4, 8)).transpose(1, 2) for part in (query, key, value)]
        weights = (heads[0] @ heads[1].transpose(-1, -2)).softmax(-1)
        mixed: torch.Tensor = self.norm((weights @ heads[2]).transpose(1, 2))
        return mixed.reshape(x.shape)


def train() -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(Attention(), nn.ReLU(), Attention())
    images = torch.randn(3, 32, 16)

    def program() -> None:
        model(images.transpose(1, 2)).square().mean().backward()

    return program


def convolve() -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    images = torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)

    def program() -> None:
        model(images[:, :, ::2]).sum().backward()

    return program


def slices() -> Callable[[], None]:
    x = torch.randn(8, 16, 32)

    def program() -> None:
        y = x[:, ::2].contiguous() + x.expand(8, 16, 32)[:, 1::2].clone()
        torch.cat([y, y.flip(0)]).transpose(0, 2).reshape(-1)[5:9].half()

    return program


def copies(report: Report) -> Counter[Any]:
    return Counter(
        (
            copy.op,
            copy.change,
            copy.cast,
            copy.sizes,
            copy.source_strides,
            copy.strides,
            copy.bytes_moved,
            copy.backward,
        )
        for copy in report.copies
        if copy.kind != "library"
    )


PROGRAMS = [pytest.param(program, id=program.__name__) for program in (train, convolve, slices)]


@pytest.mark.parametrize("make", PROGRAMS)
def test_a_plain_profile_shows_the_same_copies(make: Callable[[], Callable[[], None]], tmp_path: Path) -> None:
    program = make()
    program()
    with stridewise.record() as recording:
        program()
    path = tmp_path / "plain.json"
    with torch.profiler.profile(record_shapes=True, with_stack=True) as profiler:
        program()
    profiler.export_chrome_trace(str(path))
    live, plain = stridewise.analyze(recording), stridewise.analyze(path)
    assert copies(live)
    assert copies(plain) == copies(live)


@pytest.mark.parametrize("make", PROGRAMS)
def test_the_same_run_without_its_log_and_marks_shows_the_same_copies(
    make: Callable[[], Callable[[], None]], tmp_path: Path
) -> None:
    """What torch's profiler would have exported of the very same run."""
    program = make()
    program()
    with stridewise.record() as recording:
        program()
    recording.save(tmp_path / "live.json")
    file = json.loads((tmp_path / "live.json").read_text())
    del file[LOG_KEY]
    file["traceEvents"] = [event for event in file["traceEvents"] if not event["name"].startswith(MARK)]
    (tmp_path / "plain.json").write_text(json.dumps(file))
    live, plain = stridewise.analyze(recording), stridewise.analyze(tmp_path / "plain.json")
    assert copies(plain) == copies(live)
    assert [copy.duration_ns for copy in plain.copies] == [copy.duration_ns for copy in live.copies]


def test_stacks_tell_the_function_and_its_module_and_views_the_probable_origin(tmp_path: Path) -> None:
    program = train()
    with torch.profiler.profile(record_shapes=True, with_stack=True) as profiler:
        program()
    profiler.export_chrome_trace(str(tmp_path / "plain.json"))
    report = stridewise.analyze(tmp_path / "plain.json")
    hidden = [finding for finding in report.findings if finding.code == "SW103"]
    (norm,) = [finding for finding in hidden if "layer_norm" in finding.message]
    assert norm.site.function == "forward"
    assert (norm.site.file or "").endswith("test_foreign.py")
    assert norm.site.line == Attention.forward.__code__.co_firstlineno
    assert norm.site.module == "Sequential_0.*.LayerNorm_*" or (norm.site.module or "").startswith("Sequential_0.")
    assert norm.inferred
    assert norm.origin is not None
    assert norm.origin.expression == "aten::transpose"
    gradients = [copy for copy in report.copies if copy.backward and copy.kind == "gradient"]
    assert gradients
    assert {copy.site and copy.site.function for copy in gradients} <= {"forward", "<listcomp>"}


def test_a_trace_says_what_was_not_recorded(tmp_path: Path) -> None:
    program = train()
    for name, options in (("shapes", {"record_shapes": True}), ("nothing", {})):
        with torch.profiler.profile(**options) as profiler:
            program()
        profiler.export_chrome_trace(str(tmp_path / f"{name}.json"))
    shapes, nothing = (stridewise.analyze(tmp_path / f"{name}.json") for name in ("shapes", "nothing"))
    assert any("with_stack=True" in note for note in shapes.notes)
    assert any("record_shapes=True" in note for note in nothing.notes)
    assert shapes.totals.copies
    assert nothing.totals.copies is None


def test_marks_are_put_into_a_trace_that_stays_as_it_was(tmp_path: Path) -> None:
    program = train()
    with stridewise.record() as recording:
        program()
    stridewise.annotate(recording, tmp_path / "marked.json.gz")
    recording.save(tmp_path / "plain.json.gz")
    marked, plain = Recording.load(tmp_path / "marked.json.gz"), Recording.load(tmp_path / "plain.json.gz")
    assert stridewise.analyze(marked) == stridewise.analyze(plain)
    assert len(marked.trace.ops) == len(plain.trace.ops)


def profiled(program: Callable[[], object], path: Path) -> Report:
    """The report of a plain profile."""
    program()
    with torch.profiler.profile(record_shapes=True, with_stack=True) as profiler:
        program()
    profiler.export_chrome_trace(str(path))
    return stridewise.analyze(path, min_share=0)


def test_a_bias_is_not_the_expand_of_the_same_sizes(tmp_path: Path) -> None:
    linear, token, x = nn.Linear(64, 128), torch.randn(1, 1, 128), torch.randn(4, 64)

    def program() -> torch.Tensor:
        return linear(x) + token.expand(4, -1, -1).sum()  # both are (4, 128) with strides (0, 1)

    report = profiled(program, tmp_path / "trace.json")
    assert not [finding for finding in report.findings if finding.code == "SW112"]
    assert [copy.change for copy in report.copies if not copy.taxed] == ["materialize"]


def test_an_expand_that_is_written_out_is_found(tmp_path: Path) -> None:
    keys = torch.randn(2, 2, 1, 8, 16)
    report = profiled(lambda: keys.expand(2, 2, 4, 8, 16).reshape(2, 8, 8, 16), tmp_path / "trace.json")
    (finding,) = report.findings
    assert (finding.code, finding.inferred) == ("SW112", True)


def test_gradients_of_channels_last_weights_are_not_taxed(tmp_path: Path) -> None:
    conv = nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(2, 8, 12, 12).to(memory_format=torch.channels_last)
    report = profiled(lambda: conv(images).square().mean().backward(), tmp_path / "trace.json")
    reasons = [copy.reason for copy in report.copies if copy.sizes == tuple(conv.weight.shape)]
    assert reasons == ["weight gradients in the order of their channels_last weights"]


def test_backward_that_copies_its_input_again_is_one_finding(tmp_path: Path) -> None:
    norm, x = nn.LayerNorm(64), torch.randn(4, 64, 32, requires_grad=True)
    report = profiled(lambda: norm(x.transpose(1, 2)).square().mean().backward(), tmp_path / "trace.json")
    (hidden,) = [finding for finding in report.findings if finding.code == "SW103"]
    assert hidden.cost.copies == 2
    assert "Its backward copies it again" in hidden.message
    assert "in forward and in backward" in (hidden.advice or "")


def test_a_report_is_the_same_each_time(tmp_path: Path) -> None:
    profiled(train(), tmp_path / "trace.json")
    reports = {stridewise.analyze(tmp_path / "trace.json").to_json(tables=["copies"]) for _ in range(3)}
    assert len(reports) == 1


def test_a_recording_and_a_trace_of_one_program_compare_as_equal(tmp_path: Path) -> None:
    program = train()
    program()
    with stridewise.record() as recording:
        program()
    profiled(program, tmp_path / "trace.json")
    compared = stridewise.diff(recording, tmp_path / "trace.json")
    assert compared.ok
    assert compared.totals.trend == "same"
    assert any("matched by their operators" in note for note in compared.notes)


def test_copies_that_one_side_could_not_see_are_not_compared() -> None:
    conv, images = nn.Conv2d(16, 16, 3), torch.randn(2, 16, 24, 24)

    def recorded(library_copies: bool) -> Recording:
        with torch.no_grad():
            conv(images)
            with stridewise.record(library_copies=library_copies) as recording:
                conv(images)
        return recording

    blind, seeing = recorded(False), recorded(True)
    if not any(copy.kind == "library" for copy in stridewise.analyze(seeing).copies):
        pytest.skip("oneDNN converts nothing on this machine")
    for old, new in ((blind, seeing), (seeing, blind)):
        compared = stridewise.diff(old, new)
        assert compared.ok
        assert any("could not see copies inside oneDNN" in note for note in compared.notes)
    assert not stridewise.diff(seeing, seeing).worse
