"""The timeline of a step is the step: its calls, the layouts that torch gave them, and all of the tax."""

from pathlib import Path

import pytest
import torch
from torch import nn

import stridewise
from stridewise.analysis import timeline as timelines
from stridewise.layout import Layout, name

TRACES = Path(__file__).parents[3] / "shared" / "traces"


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        for norm in self.norms:
            x = x + norm(x)
        return self.head(x.mean(1))


@pytest.fixture(scope="module")
def recorded():
    torch.manual_seed(0)
    return stridewise.diagnose(Encoder(), torch.randn(2, 3, 32, 32), train=True)


def test_every_copy_of_the_tax_is_in_a_call(recorded):
    assert recorded.totals.copies > 0
    assert sum(call.copies for call in recorded.timeline.calls) == recorded.totals.copies
    assert sum(call.bytes_moved for call in recorded.timeline.calls) == recorded.totals.bytes_moved


def test_calls_have_the_layout_that_torch_gave_their_output(recorded):
    forward = {call.name: call for call in recorded.timeline.calls if not call.backward}
    strided = torch.randn(2, 16, 8, 8).flatten(2).transpose(1, 2)
    found = forward["transpose"]
    assert (found.sizes, found.strides) == (tuple(strided.shape), strided.stride())
    assert found.layout == name(Layout(found.sizes, found.strides)) == "permuted"
    assert forward["linear"].layout == "contiguous"


def test_calls_are_in_order_and_belong_to_modules(recorded):
    timeline = recorded.timeline
    starts = [call.start_ns for call in timeline.calls]
    assert starts == sorted(starts)
    assert all(0 <= start <= timeline.duration_ns for start in starts)
    modules = [timeline.modules[call.module] for call in timeline.calls if call.name in ("conv2d", "layer_norm")]
    assert modules == ["patches", "norms.0", "norms.1"]
    assert timeline.modules[:2] == ("patches", "Encoder")


def test_backward_comes_behind_and_belongs_to_the_modules_of_forward(recorded):
    backward = [call for call in recorded.timeline.calls if call.backward]
    assert {"NativeLayerNormBackward0", "AddmmBackward0", "ConvolutionBackward0"} <= {call.name for call in backward}
    owners = [recorded.timeline.modules[call.module] for call in backward if call.name == "NativeLayerNormBackward0"]
    assert owners == ["norms.1", "norms.0"]


def test_calls_that_run_nothing_are_left_out():
    model, image = Encoder(), torch.randn(2, 3, 32, 32)
    with stridewise.record() as recording:
        for parameter in model.parameters():
            assert parameter.grad is None
        model(image)
    calls = stridewise.analyze(recording).timeline.calls
    assert "grad" not in {call.name for call in calls}


def test_calls_inside_calls_are_not_counted_twice(recorded):
    calls = recorded.timeline.calls
    assert "backward" not in {call.name for call in calls}
    ends = [call.start_ns + call.duration_ns for call in calls]
    assert all(end <= after.start_ns for end, after in zip(ends, calls[1:], strict=False))


def test_the_first_calls_are_kept_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(timelines, "MOST_CALLS", 10)
    with stridewise.record() as recording:
        x = torch.ones(4, 4)
        for _ in range(30):
            x = x + 1
    timeline = stridewise.analyze(recording).timeline
    assert len(timeline.calls) == 10
    assert timeline.left_out == 21


def test_nothing_recorded_has_no_timeline():
    with stridewise.record() as recording:
        pass
    assert stridewise.analyze(recording).timeline is None


def test_a_trace_without_shapes_has_no_timeline(tmp_path):
    with torch.profiler.profile() as profiler:
        torch.ones(4, 4).t().contiguous()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    assert stridewise.analyze(tmp_path / "trace.json").timeline is None


def test_a_trace_of_the_profiler_shows_operators(tmp_path):
    with torch.profiler.profile(record_shapes=True) as profiler:
        torch.ones(4, 4).t().contiguous()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    report = stridewise.analyze(tmp_path / "trace.json")
    calls = {call.name: call for call in report.timeline.calls}
    assert calls["aten::contiguous"].layout == "permuted"
    assert calls["aten::contiguous"].copies == report.totals.copies == 1


@pytest.mark.parametrize("trace", ["h100_timesformer.json.gz", "h100_owlv2.json.gz", "mi300_resnet_train.json.gz"])
def test_real_traces_of_devices(trace):
    if not (TRACES / trace).exists():
        pytest.skip("the traces of real GPUs are not here")
    report = stridewise.analyze(TRACES / trace)
    assert sum(call.copies for call in report.timeline.calls) == report.totals.copies
    assert report.timeline.left_out == 0


def test_json_has_it_only_when_asked_for(recorded):
    assert '"timeline"' not in recorded.to_json()
    assert '"timeline"' in recorded.to_json(tables=["timeline"])
