"""What only trials and replays can tell: SW104 and SW109, on their own examples and in their words."""

import re
from pathlib import Path

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from stridewise.findings import Cost, Edit, Finding, Payer, Site
from stridewise.repair.candidate import Kind
from stridewise.repair.kinds import drop_copy
from stridewise.repair.plan.slow import Operand, Slow
from stridewise.repair.rules import TrialRule, all_rules, sw104, sw109
from stridewise.report.codes import all_docs
from stridewise.results.repair import Trial

from .running import context_of, load, proposals, slow_calls

SITE = Site(file="model.py", line=7, column=4, end_line=7, end_column=12, function="f", expression="y.sum(0)")
SLOW = Slow(
    function="torch.Tensor.sum",
    site=SITE,
    count=3,
    operands=(Operand(0, (0,), (64, 256, 128), (32768, 1, 256)),),
    tensors=1,
    format="contiguous",
    recorded_ns=8_200_000,
    op_ns=350_000,
    with_copy_ns=2_900_000,
    backward=False,
    pays_for_copy=True,
)
LOST = msgspec.structs.replace(SLOW, with_copy_ns=9_000_000, pays_for_copy=False)
TRIAL = Trial(
    ratio=0.9,
    low=0.88,
    high=0.92,
    pairs=12,
    equal=True,
    difference=0.0,
    verdict="won",
    reason=None,
    copies_before=3,
    copies_after=2,
    tax_before=Cost(3, 6_000_000),
    tax_after=Cost(2, 4_000_000),
    peak_before=None,
    peak_after=None,
    candidate="drop-copy",
    what="leave out `.contiguous()`",
    answers="",
    site=Site(file="model.py", line=9, function="f", expression="y.contiguous()"),
    findings=(),
    edits=(Edit("model.py", (10, 23), "", "unsafe"),),
    kept=True,
)


def text(finding: Finding) -> str:
    cost = finding.cost
    counted = f"{finding.severity}, {finding.count} times"
    figures = f"{counted}, {cost.copies:g} copies, {cost.duration_ns:.0f} ns, {cost.share:.3f}"
    title = f"{finding.code} {finding.title}: {finding.message}"
    return "\n".join([title, *finding.evidence, finding.advice or "", figures])


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_it_is_documented(rule: TrialRule) -> None:
    assert rule.summary.endswith(".")
    headings = re.findall(r"^(\w.*)$", rule.doc, flags=re.MULTILINE)
    assert headings == ["What it means", "Why it happens", "How to fix it", "When to ignore it"]
    assert rule in all_docs()


def test_the_words_are_those_of_the_docstrings() -> None:
    assert [(rule.code, rule.title) for rule in all_rules()] == [(rule.CODE, rule.TITLE) for rule in (sw104, sw109)]


# --------------------------------------------------------------------------------------------------------------- SW109


def program_of(source: str, folder: Path) -> object:
    return load(folder, f"import torch\n{source}").program


@pytest.mark.parametrize("source", sw109.FIRES)
def test_slow_kernel_fires(source: str, tmp_path: Path) -> None:
    (finding,) = sw109.findings(slow_calls(program_of(source, tmp_path)), step_ns=1e6)
    assert finding.code == "SW109"
    assert finding.site.file
    assert finding.site.line is not None


@pytest.mark.parametrize("source", sw109.QUIET)
def test_slow_kernel_keeps_quiet(source: str, tmp_path: Path) -> None:
    assert slow_calls(program_of(source, tmp_path)) == ()


@pytest.mark.parametrize(
    "slow",
    [
        SLOW,
        LOST,
        msgspec.structs.replace(SLOW, format="channels_last", backward=True),
    ],
    ids=["pays", "does-not-pay", "channels-last"],
)
def test_what_it_says(slow: Slow, snapshot: SnapshotAssertion) -> None:
    (finding,) = sw109.findings([slow], step_ns=1e9, min_share=0.01)
    assert text(finding) == snapshot


def test_equal_places_are_one_finding_costliest_first() -> None:
    larger = msgspec.structs.replace(
        SLOW, count=2, operands=(Operand(0, (0,), (640, 2, 2), (4, 1, 2)),), recorded_ns=9e7
    )
    other = msgspec.structs.replace(SLOW, site=msgspec.structs.replace(SITE, line=8, expression="z.sum(0)"))
    first, second = sw109.findings([SLOW, other, larger], step_ns=None)
    assert (first.count, second.count) == (5, 3)
    assert first.cost.duration_ns == pytest.approx(SLOW.loss_ns + larger.loss_ns)
    assert "(640, 2, 2)" in first.message
    assert first.cost.share is None
    assert first.severity == "note"
    assert first.fingerprint == sw109.fingerprint_of(SLOW) == sw109.fingerprint_of(larger)


@pytest.mark.parametrize(("step_ns", "severity"), [(1e9, "warning"), (1e10, "note")])
def test_a_small_share_is_a_note(step_ns: float, severity: str) -> None:
    (finding,) = sw109.findings([SLOW], step_ns=step_ns, min_share=0.01)
    assert finding.severity == severity
    assert finding.cost.share == pytest.approx(SLOW.loss_ns / step_ns)


def test_a_call_that_copies_is_left_to_the_finding_that_has_the_copy() -> None:
    hidden = msgspec.structs.replace(
        sw109.findings([SLOW], step_ns=None)[0],
        code="SW103",
        payers=(Payer(msgspec.structs.replace(SITE, module="block.0"), "aten::sum", None, Cost(1)),),
    )
    assert sw109.findings([SLOW], step_ns=None, others=[hidden]) == []


def test_the_recording_and_the_replay_name_the_same_call(tmp_path: Path) -> None:
    source = """
import torch
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    with torch.no_grad():
        return norm(x.transpose(1, 2))
"""
    context = context_of(load(tmp_path, source))
    assert [finding.code for finding in context.report.findings] == ["SW103"]
    slow = [msgspec.structs.replace(entry, pays_for_copy=False) for entry in context.slow]
    assert len(sw109.findings(slow, step_ns=None)) == 1
    assert sw109.findings(slow, step_ns=None, others=context.report.findings) == []


# --------------------------------------------------------------------------------------------------------------- SW104


def needless(source: str, folder: Path) -> list[bool]:
    context = context_of(load(folder, f"import torch\n{source}"))
    return [candidate.needless for candidate in proposals(Kind.from_module(drop_copy), context)]


@pytest.mark.parametrize("source", sw104.FIRES)
def test_needless_copies_are_candidates(source: str, tmp_path: Path) -> None:
    assert needless(source, tmp_path) == [True]


@pytest.mark.parametrize("source", sw104.QUIET)
def test_needed_copies_are_none(source: str, tmp_path: Path) -> None:
    assert needless(source, tmp_path) == []


def test_what_a_needless_copy_says(snapshot: SnapshotAssertion) -> None:
    finding = sw104.finding(TRIAL, step_ns=2e7, min_share=0.001)
    assert text(finding) == snapshot
    assert finding.edits == TRIAL.edits
    assert finding.site == TRIAL.site
    assert (finding.cost.copies, finding.cost.bytes_moved) == (1, 2_000_000)


def test_a_needless_copy_without_figures_claims_none() -> None:
    bare = msgspec.structs.replace(TRIAL, ratio=None, low=None, high=None, tax_before=None, difference=0.1)
    finding = sw104.finding(bare, step_ns=None)
    assert finding.severity == "note"
    assert finding.cost == Cost(1, None, None, None)
    assert finding.evidence == ()
    assert "agree within the tolerance" in finding.message
