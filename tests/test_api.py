"""The functions that people call."""

import random
import subprocess
import sys

import numpy
import pytest
import torch
from torch import nn

import stridewise
from stridewise.api import Report
from stridewise.errors import NestedRecording, UsageError


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.batch_norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
        y = self.batch_norm(x).permute(0, 2, 1) * scale
        for norm in self.norms:
            y = y + self.dropout(norm(y))
        return {"hidden": y}


@pytest.fixture
def model() -> Norms:
    torch.manual_seed(0)
    return Norms()


def test_diagnose_finds_the_stream(model: Norms) -> None:
    report = stridewise.diagnose(model, torch.randn(4, 16, 8), scale=2.0)
    (stream,) = [finding for finding in report.findings if finding.code == "SW101"]
    assert stream.cost.copies == 3
    assert stream.origin is not None
    assert stream.origin.expression == "self.batch_norm(x).permute(0, 2, 1)"
    assert stream.origin.function == "Norms.forward"
    assert report.totals.steps == 3
    assert report.totals.copies == 3


def test_diagnose_leaves_everything_as_it_was(model: Norms) -> None:
    x = torch.randn(4, 16, 8, requires_grad=True)
    model.norms[0].eval()
    gradient = torch.ones(16)
    model.norms[0].weight.grad = gradient
    flags = [module.training for module in model.modules()]
    buffers = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    report = stridewise.diagnose(model, x, train=True)
    assert any(copy.backward for copy in report.copies)
    assert [module.training for module in model.modules()] == flags
    for name, buffer in model.named_buffers():
        assert buffer is buffers[name][0]
        assert torch.equal(buffer, buffers[name][1])
    assert model.norms[0].weight.grad is gradient
    assert torch.equal(gradient, torch.ones(16))
    assert model.norms[1].weight.grad is None
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert numpy.random.get_state()[1].tolist() == states[2]


def test_diagnose_leaves_everything_as_it_was_after_an_error(model: Norms) -> None:
    model.eval()
    with pytest.raises(RuntimeError):
        stridewise.diagnose(model, torch.randn(4, 15, 8), train=True)
    assert not model.training
    with stridewise.record():
        pass


def test_diagnose_takes_a_loss_and_functions() -> None:
    layer = nn.Linear(8, 8)
    report = stridewise.diagnose(layer, torch.randn(4, 8), train=True, loss=lambda output: output.square().sum())
    assert report.totals.steps == 3
    assert stridewise.diagnose(lambda x: x.t().contiguous(), torch.randn(64, 32)).totals.copies == 1


def test_diagnose_of_what_has_no_gradient_is_a_mistake_in_the_call() -> None:
    with pytest.raises(UsageError, match="loss="):
        stridewise.diagnose(lambda x: x.argmax(), torch.randn(4), train=True)


def test_a_recording_inside_a_recording() -> None:
    with stridewise.record() as recording:
        with pytest.raises(NestedRecording), stridewise.record():
            pass
        torch.randn(8, 4).t().contiguous()
    assert len(stridewise.analyze(recording).copies) == 1


def test_steps_that_the_program_marks() -> None:
    with stridewise.record() as recording:
        for _ in range(4):
            torch.randn(8, 4).t().contiguous()
            stridewise.step()
    report = stridewise.analyze(recording)
    assert report.totals.steps == 4
    assert report.totals.copies == 1
    stridewise.step()  # outside a recording it does nothing


def test_select_and_ignore() -> None:
    with stridewise.record() as recording:
        x = torch.randn(8, 64, 32).permute(0, 2, 1)
        nn.functional.layer_norm(x, (64,))
        x.contiguous()
        x[0].t().clone(memory_format=torch.contiguous_format)
    codes = {finding.code for finding in stridewise.analyze(recording).findings}
    assert {finding.code for finding in stridewise.analyze(recording, ignore=["SW101"]).findings} == codes - {"SW101"}
    assert {finding.code for finding in stridewise.analyze(recording, select=["SW101"]).findings} == codes & {"SW101"}


def test_what_costs_little_folds() -> None:
    big, small = torch.randn(512, 512), torch.randn(4, 2)
    with stridewise.record() as recording:
        for _ in range(20):
            big.t().contiguous()
        small.t().contiguous()
    report = stridewise.analyze(recording, min_share=0.05)
    assert report.folded.findings == 1
    assert report.folded.cost.copies == 1
    assert [finding.severity for finding in report.findings] == ["warning", "note"]
    assert len(report.listed) == 1
    assert sum(finding.cost.copies for finding in report.findings) == report.totals.copies == 21


def test_a_report_shows_itself() -> None:
    report = stridewise.diagnose(lambda x: x.t().contiguous(), torch.randn(256, 256))
    assert isinstance(report, Report)
    assert "Layout costs" in str(report)
    assert str(report) == repr(report)
    assert '"schema_version": 1' in report.to_json()
    assert '"copies": [' in report.to_json(tables=["copies"])


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.randn(2, 3), "contiguous"),
        (torch.randn(2, 3).t(), "permuted"),
        (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), "channels_last"),
        (torch.randn(3).expand(2, 3), "expanded"),
        (torch.randn(4, 4)[:, ::2], "gapped"),
        (torch.randn(8).unfold(0, 3, 1), "overlapping"),
        (torch.randn(2, 3, device="meta"), "contiguous"),
        (torch.randn(2, 3).to_sparse(), "sparse_coo"),
        (torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)], layout=torch.jagged), "NestedTensor"),
        (nn.Parameter(torch.randn(2, 3)), "contiguous"),
        (torch.tensor(1.0), "contiguous"),
        (torch.empty(0, 3), "contiguous"),
    ],
)
def test_explain(tensor: torch.Tensor, expected: str) -> None:
    assert stridewise.explain(tensor).startswith(f"{expected}:")


def test_importing_is_cheap_and_complete() -> None:
    heavy = "{'torch', 'msgspec', 'rich', 'typer'}"
    code = f"import sys, stridewise; assert not {heavy} & sys.modules.keys(); print(dir(stridewise))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in stridewise.__all__:
        assert name in result.stdout
        assert hasattr(stridewise, name)
