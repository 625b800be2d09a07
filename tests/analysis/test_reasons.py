"""What a report says of why an operator copies, and what to do, is so: none of the operands shown has what is asked."""

import json
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
        said = sorted({each.message.partition("call: ")[2] for each in found})
        assert said == [
            "its weight and the gradient of its weight. Weights change in each step of training.",
            "its weight. Weights change in each step of training.",
        ]


CONVOLUTIONS = """
import json, sys, torch, stridewise
from torch.nn import functional as F
name, stride, groups, of_input, of_weight = sys.argv[1], *map(int, sys.argv[2:4]), *sys.argv[4:]
formats = {"row": torch.contiguous_format, "last": torch.channels_last}
given = torch.randn(4, 16, 12, 12).to(memory_format=formats[of_input])
shape = (16, 32 // groups, 3, 3) if "transpose" in name else (32, 16 // groups, 3, 3)
weight = torch.randn(shape).to(memory_format=formats[of_weight])
if name.endswith("1d"):
    given, weight = given[:, :, 0].clone(), weight[:, :, 0].clone()
given.requires_grad_(), weight.requires_grad_()
with stridewise.record(library_copies=True) as recording:
    result = getattr(F, name)(given, weight, stride=stride, groups=groups)
    result.backward(torch.ones_like(result))
report = stridewise.analyze(recording, min_share=0)
print(json.dumps([[f.code, f.message, f.advice, [p.operand for p in f.payers]] for f in report.findings]))
"""
ALL_THREE = "its input, its weight and its result."
NO_FORMAT = "Sequences have no channels_last."
OF_RESULT = "the kernel that ran gives it in channels_last, and it is handed on in row-major order."


def of_convolution(*arguments: object) -> list[tuple[str, str, str | None, list[str]]]:
    """Code, message, advice and operands of the findings on one convolution and its backward."""
    command = [sys.executable, "-c", CONVOLUTIONS, *map(str, arguments)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(ran.stdout.splitlines()[-1])
    if not any(code == "SW107" for code, *_ in found):
        pytest.skip("this oneDNN converts nothing here")
    return [tuple(each) for each in found]


def test_a_convolution_names_what_its_library_converts() -> None:
    found = of_convolution("conv2d", 1, 1, "row", "row")
    forward, backward = sorted((said for code, said, *_ in found if code == "SW107"), key=len)
    assert forward.endswith(f"on each call: {ALL_THREE}")
    roles = ("the gradient of its result", "its weight", "the gradient of its input", "its input", "of its weight")
    assert all(role in backward for role in roles)
    operands = [operand for *_, operands in found for operand in operands]
    assert all(operand.startswith(("its ", "the gradient of its ")) for operand in operands)


@pytest.mark.parametrize("name", ["conv_transpose2d", "conv2d"])
@pytest.mark.parametrize("groups", [1, 4])
def test_a_channels_last_convolution_converts_weights_and_nothing_else(name: str, groups: int) -> None:
    found = of_convolution(name, 2, groups, "last", "last")
    assert {code for code, *_ in found} == {"SW107"}
    said = {message.partition("call: ")[2].partition(".")[0] for _, message, *_ in found}
    assert said <= {"its weight", "its weight and the gradient of its weight", "its weight (twice)"}


def test_the_result_that_a_transposed_convolution_brings_into_order_is_no_mixture_of_formats() -> None:
    found = of_convolution("conv_transpose2d", 2, 1, "row", "row")
    copied = [(message, advice) for code, message, advice, _ in found if code == "SW103"]
    if not copied:
        pytest.skip("this oneDNN computes it in another layout")
    ((message, advice),) = copied
    assert message.startswith("`conv_transpose2d` copies its own result, (4, 32, 25, 25) with strides")
    assert message.endswith(OF_RESULT)
    assert advice == "Make the network and its input channels_last: the result is handed on as it is then."


@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d"])
def test_a_sequence_is_not_told_to_become_channels_last(name: str) -> None:
    found = of_convolution(name, 1, 1, "row", "row")
    assert all((advice or "").startswith(NO_FORMAT) for _, _, advice, _ in found)
    assert any(message.endswith(ALL_THREE) for _, message, *_ in found)


@pytest.mark.parametrize("formats", [("row", "last"), ("last", "row")])
def test_mixed_formats_are_said_of_the_one_that_is_converted(formats: tuple[str, str]) -> None:
    (found,) = [each for each in of_convolution("conv2d", 1, 1, *formats) if each[0] == "SW105"]
    _, message, advice, operands = found
    converted = "input" if formats[0] == "row" else "weight"
    assert message.endswith(f"it converts the {converted} on every call.")
    assert operands[0].startswith("input 0" if converted == "input" else "input 1")
    assert advice is not None
    assert "backward" not in advice


def test_a_gradient_that_comes_in_channels_last_is_no_fault_of_the_formats() -> None:
    found = of_convolution("conv2d", 2, 1, "row", "row")
    for code, message, advice, _ in found:
        if code == "SW110":
            assert message.endswith("computes a gradient in channels_last, and hands it on in row-major order.")
            assert advice is not None
            assert advice.startswith("Make the network and its input channels_last")


def test_a_product_that_copies_what_it_saved_is_not_said_to_copy_its_gradient() -> None:
    left, right = torch.randn(64, 256)[:, ::2].requires_grad_(), torch.randn(128, 96).requires_grad_()
    (finding,) = findings(lambda: torch.mm(left, right).sum().backward(), "SW103")
    assert finding.message.endswith("Its backward copies it again.")


def test_a_blocked_layout_that_stays_is_no_copy(tmp_path: Path) -> None:
    line = (
        "onednn_verbose,v1,primitive,exec,cpu,reorder,jit_direct_copy:uni,undef,"
        "src:f32::blocked:{}::f0 dst:f32::blocked:BAcd16a16b::f0,,,32x16x3x3,1.5\n"
    )
    log, counts = tmp_path / "onednn.log", []
    for tag in ("BAcd16a16b", "abcd"):
        log.write_text(line.format(tag))
        counts.append(len(stridewise.analyze(log).copies))
    assert counts == [0, 1]


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
