"""What a report says of why an operator copies, and what to do, is so: none of the operands shown has what is asked."""

import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stridewise
from stridewise.analysis.needs import lacking
from stridewise.findings import Finding
from stridewise.layout import Layout

CONTIGUOUS, SWAPPED = Layout((2, 4, 16, 8), (512, 128, 8, 1)), Layout((2, 4, 16, 8), (512, 8, 32, 1))
MATH = "batch and heads that fold into one without a copy, since it multiplies matrices here"
A_ONE = "matrices with a stride of 1 in one of their two dimensions"


@pytest.mark.parametrize(
    ("function", "given", "asked"),
    [
        ("scaled_dot_product_attention", SWAPPED, MATH),
        ("scaled_dot_product_attention", Layout((4, 8), (16, 2)), "a stride of 1 in the last dimension of query, key"),
        ("mm", Layout((4, 8), (16, 2)), A_ONE),
        ("bmm", Layout((3, 4, 8), (0, 0, 1)), "matrices whose rows or columns do not overlap"),
        ("linear", Layout((4, 8), (16, 2)), A_ONE),
        ("linear", Layout((4, 2, 8), (8, 32, 1)), "rows that can be folded into one matrix"),
        ("max_pool2d", Layout((2, 4, 8, 8), (256, 1, 32, 4)), "row-major input"),
        ("max_pool2d", Layout((2, 4, 8, 8), (256, 1, 4, 32)), "row-major or channels_last input"),
        ("layer_norm", Layout((4, 8), (1, 4)), "every normalised row in one piece"),
        ("roll", Layout((4, 8), (1, 4)), "its operand in another memory order"),
    ],
    ids=str,
)
def test_what_is_asked_for_is_not_there(function: str, given: Layout, asked: str) -> None:
    assert lacking(function, [given]).startswith(asked)


def findings(program: Callable[[], object], code: str) -> list[Finding]:
    with stridewise.record() as recording:
        program()
    found = [finding for finding in stridewise.analyze(recording, min_share=0).findings if finding.code == code]
    assert found
    return found


def swapped(batch: int) -> Tensor:
    return torch.randn(batch, 16, 4, 8).transpose(1, 2)


def plain(batch: int) -> Tensor:
    return torch.randn(batch, 4, 16, 8)


@pytest.mark.parametrize("makers", [m for m in product((swapped, plain), repeat=3) if swapped in m])
def test_attention_with_dropout_says_what_its_kernel_asks_for(makers: tuple[Callable[[int], Tensor], ...]) -> None:
    def attend(batch: int) -> None:
        with torch.no_grad():
            F.scaled_dot_product_attention(*(make(batch) for make in makers), dropout_p=0.1)

    for finding in findings(lambda: attend(2), "SW103"):
        assert "with strides (512, 8, 32, 1)" in finding.message
        assert MATH in finding.message
    with stridewise.record() as recording:
        attend(1)  # here they fold
    assert not stridewise.analyze(recording, min_share=0).copies


def test_code_without_source_gets_no_placeholder() -> None:
    program = """
import torch, stridewise
k = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
with stridewise.record() as recording:
    norm(k.permute(0, 2, 1))
(finding,) = stridewise.analyze(recording, min_share=0).findings
print(finding.site.expression, finding.advice, sep="|")
"""
    ran = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, check=True)
    expression, advice = ran.stdout.strip().split("|")
    assert expression == "None"
    assert advice == "Make the operand in the order that the operator needs; copying it earlier instead wins nothing."


def test_a_format_that_several_calls_bring_back() -> None:
    norm, conv, other = nn.InstanceNorm2d(8), nn.Conv2d(8, 8, 3), nn.ConvTranspose2d(8, 8, 3)
    conv, other = (module.to(memory_format=torch.channels_last) for module in (conv, other))
    image = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)

    def program() -> None:
        with torch.no_grad():
            lost = norm(image)
            conv(lost)
            other(lost)

    (finding,) = findings(program, "SW106")
    assert finding.message.endswith("`conv2d` and `conv_transpose2d` behind it convert it back.")


LIBRARY = """
import torch
net = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, bias=False), torch.nn.Conv2d(32, 48, 3, bias=False))
net = net.to(memory_format=torch.{format})
for _ in range(5):
    with torch.set_grad_enabled({train}):
        x = torch.randn(4, 16, 12, 12).to(memory_format=torch.{format})
        y = net(x)
        if {train}:
            y.sum().backward()
"""
CHANNELS_LAST = "Make the network and its input channels_last: only weights and their gradients are converted then."
FREEZE = "Freeze the weights for inference: they are converted once then."


@pytest.mark.parametrize(
    ("memory_format", "train", "advice"),
    [
        ("channels_last", True, {None}),
        ("channels_last", False, {FREEZE}),
        ("contiguous_format", True, {CHANNELS_LAST}),
        ("contiguous_format", False, {CHANNELS_LAST}),
    ],
)
def test_what_a_library_converts_is_not_to_be_mended_twice(
    tmp_path: Path, memory_format: str, train: bool, advice: set[str | None]
) -> None:
    script, saved = tmp_path / "train.py", tmp_path / "saved.json.gz"
    script.write_text(LIBRARY.format(format=memory_format, train=train))
    command = [sys.executable, "-m", "stridewise", "run", "--library-copies", "--quiet", "--save", str(saved)]
    subprocess.run([*command, str(script)], check=True, capture_output=True, cwd=tmp_path)
    found = [each for each in stridewise.analyze(saved, min_share=0).findings if each.code == "SW107"]
    assert {each.advice for each in found} == advice
    if advice == {None}:
        assert {each.severity for each in found} == {"note"}
        said = sorted(each.message.partition("call. ")[2] for each in found)
        assert said == [
            "They are weights and their gradients, which change in each step of training.",
            "They are weights, which change in each step of training.",
        ]


def test_copies_behind_the_last_step_are_told_of() -> None:
    x = torch.ones(8, 4)
    with stridewise.record() as recording:
        stridewise.step()
        x.t().contiguous()
    assert any(
        note.startswith("1 layout copy came after the last step") for note in stridewise.analyze(recording).notes
    )
    with stridewise.record() as recording:
        x.t().contiguous()
        stridewise.step()
    assert not any("after the last step" in note for note in stridewise.analyze(recording).notes)


def test_a_recording_that_lost_its_end_is_not_asked_for_lines(tmp_path: Path) -> None:
    with stridewise.record() as recording:
        F.layer_norm(torch.ones(8, 4).t(), (8,))
    path = tmp_path / "recording.json"
    recording.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b'"stridewise"')])
    report = stridewise.analyze(path)
    assert report.copies
    assert any("its call log was lost" in note for note in report.notes)
    assert not any("names no source lines" in note for note in report.notes)
