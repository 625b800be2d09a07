"""Every rule fires on its own examples and keeps quiet on the others."""

import json
import re
import runpy
from pathlib import Path

import pytest
import torch

import stridewise
from stridewise.analysis.rules import Rule, all_rules
from stridewise.recording.handle import Recording
from stridewise.results import Report


def run(source: str) -> Report:
    """Record one step of an example, `program()` as its source defines it; or read the events of its `TRACE`."""
    torch.manual_seed(0)
    names: dict[str, object] = {"torch": torch}
    exec(compile(source, "example.py", "exec"), names)
    if "TRACE" in names:
        return stridewise.analyze(Recording(json.dumps(names["TRACE"]).encode()))
    program = names["program"]
    assert callable(program)
    program()
    with stridewise.record(library_copies=bool(names.get("LIBRARY_COPIES"))) as recording:
        program()
        recording.step()
    return stridewise.analyze(recording)


def examples(kind: str) -> list[object]:
    return [
        pytest.param(rule, source, id=f"{rule.code}-{number}")
        for rule in all_rules()
        for number, source in enumerate(getattr(rule, kind))
    ]


@pytest.mark.parametrize(("rule", "source"), examples("fires"))
def test_it_fires(rule: Rule, source: str) -> None:
    report = run(source)
    assert rule.code in [finding.code for finding in report.findings]
    assert sum(finding.cost.copies for finding in report.findings) == pytest.approx(report.totals.copies)


@pytest.mark.parametrize(("rule", "source"), examples("quiet"))
def test_it_keeps_quiet(rule: Rule, source: str) -> None:
    assert rule.code not in [finding.code for finding in run(source).findings]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_it_is_documented(rule: Rule) -> None:
    assert re.fullmatch(r"SW1\d\d", rule.code)
    assert rule.summary.endswith(".")
    headings = re.findall(r"^(\w.*)$", rule.doc, flags=re.MULTILINE)
    assert headings == ["What it means", "Why it happens", "How to fix it", "When to ignore it"]
    assert rule.fires
    assert rule.quiet


def test_the_order_of_charging() -> None:
    charged = ["SW101", "SW102", "SW105", "SW112", "SW111", "SW110", "SW103"]
    assert [rule.code for rule in all_rules() if rule.code in charged] == charged


CHANNELS_LAST_NETWORK = """
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
    torch.nn.Flatten(), torch.nn.Linear(512, 10),
).to(memory_format=torch.channels_last)
images = torch.randn(8, 3, 64, 64)
def program():
    model(images).square().mean().backward()
"""


def test_a_channels_last_network_that_is_fed_row_major_images() -> None:
    report = run(CHANNELS_LAST_NETWORK)
    (mixed,) = [finding for finding in report.findings if finding.code == "SW105"]
    assert "where the batch is made" in (mixed.advice or "")
    assert {payer.operand for payer in mixed.payers} == {"input 0, (8, 3, 64, 64) with strides (12288, 4096, 64, 1)"}
    assert not {"SW101", "SW106"} & {finding.code for finding in report.findings}


def test_a_copy_that_serves_several_calls_is_a_note() -> None:
    report = run(
        """
x = torch.randn(64, 128, 256)
norm = torch.nn.LayerNorm(128)
def program():
    y = x.permute(0, 2, 1).contiguous()
    return y + norm(y)
"""
    )
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("SW114", "note")
    assert "2 calls that use it" in finding.message
    assert report.ok


def test_what_backward_copies_again_is_one_finding() -> None:
    report = run(
        """
x = torch.randn(8, 64, 500, requires_grad=True)
norm = torch.nn.LayerNorm(64)
def program():
    norm(x.transpose(1, 2)).square().mean().backward()
"""
    )
    (finding,) = report.findings
    assert finding.code == "SW103"
    assert finding.cost.copies == 2
    assert "backward copies it again" in finding.message


LAYERS = """
import torch

edges = torch.arange(2000).view(1000, 2) % 100
nodes, messages = torch.zeros(100, 8), torch.randn(1000, 8)

class Layer(torch.nn.Module):
    def forward(self, nodes):
        _, index = edges.t()
        return nodes.index_add(0, {}, messages)

network = torch.nn.Sequential(Layer(), Layer(), Layer())
"""


@pytest.mark.parametrize("copied", ["index", "index.contiguous()"])
def test_a_copy_behind_an_origin_that_repeats_as_well_is_not_advised(copied: str, tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYERS.format(copied))
    names = runpy.run_path(str(tmp_path / "layers.py"))
    with stridewise.record() as recording:
        names["network"](names["nodes"])
        recording.step()
    (finding,) = (each for each in stridewise.analyze(recording).findings if each.code == "SW102")
    assert finding.site.module == "*"
    assert finding.advice == (
        "`_, index = edges.t()` runs 3 times a step, too: run it once, with `.contiguous()`, before what repeats it,"
        " and hand its result on."
    )


def test_a_gradient_before_the_origin_is_no_payer_of_its_stream() -> None:
    """The copy in the backward of `view` stays when the origin is mended."""
    report = run(
        """
x = torch.randn(8, 100, 64)
project = torch.nn.Linear(64, 64)
norm = torch.nn.LayerNorm(16)
def program():
    q = project(x).view(8, 100, 4, 16).transpose(1, 2)
    (norm(q) * 2 + norm(q)).square().mean().backward()
"""
    )
    for finding in report.findings:
        if finding.code == "SW101":
            assert all("layer_norm" in payer.op for payer in finding.payers)


def test_payers_stand_in_one_order_whatever_each_took(tmp_path: Path) -> None:
    """Most bytes first, and equal ones as the program has them: times differ by chance from run to run."""
    norm = torch.nn.LayerNorm(100)
    with stridewise.record() as recording:
        x = torch.randn(8, 100, 64).transpose(1, 2)
        norm(x[:1])
        norm(x.detach())
        norm(x)
        recording.step()
    recording.save(tmp_path / "recording.json")
    trace = json.loads((tmp_path / "recording.json").read_text())
    _, first, _ = (event for event in trace["traceEvents"] if event.get("name") == "aten::clone")
    first["dur"] = 0
    (finding,) = stridewise.analyze(Recording(json.dumps(trace).encode())).findings
    assert [payer.site.expression for payer in finding.payers] == ["norm(x.detach())", "norm(x)", "norm(x[:1])"]


def test_an_empty_recording_is_not_called_fine() -> None:
    with stridewise.record() as recording:
        pass
    report = stridewise.analyze(recording)
    assert "fine" not in str(report)


def test_compiled_regions_and_onednn_are_said_not_to_be_looked_into() -> None:
    assert any("--library-copies" in note for note in run(CHANNELS_LAST_NETWORK).notes)
