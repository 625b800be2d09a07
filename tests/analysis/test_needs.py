"""Whether a requested copy stands for one that an operator would make: held against the program without it."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stridewise
from stridewise.recording.handle import Recording
from stridewise.results import Report

Use = Callable[[Tensor], object]


def swapped(*sizes: int) -> Tensor:
    """The last two dimensions in the other order."""
    return torch.randn(*sizes[:-2], sizes[-1], sizes[-2]).transpose(-1, -2)


def report_of(program: Callable[[], object]) -> Report:
    with torch.no_grad():
        program()
        with stridewise.record() as recording:
            program()
            recording.step()
    return stridewise.analyze(recording, min_share=0)


def channels_last(*sizes: int) -> Tensor:
    return torch.randn(sizes).contiguous(memory_format=torch.channels_last)


HEADS = torch.randn(2, 16, 4, 8).transpose(1, 2)
"""Heads in front of positions, as views of a projection: batch dimensions that do not fold."""

NEEDED: dict[str, tuple[Tensor, Use]] = {
    "layer_norm": (swapped(4, 16, 8), lambda x: F.layer_norm(x, (8,))),
    "softmax": (swapped(4, 16, 8), lambda x: x.softmax(-1)),
    "linear": (swapped(4, 16, 8), nn.Linear(8, 3)),
    "matmul": (HEADS, lambda x: x @ torch.ones(2, 4, 8, 8)),
    "instance_norm": (channels_last(2, 4, 8, 8), lambda x: F.instance_norm(x)),
    "group_norm": (swapped(2, 4, 8, 8), lambda x: F.group_norm(x, 2)),
    "view": (swapped(4, 16, 8), lambda x: x.view(4, -1)),
}
NOT_NEEDED: dict[str, tuple[Tensor, Use]] = {
    "linear of no parameter": (swapped(4, 16, 8), lambda x: F.linear(x, torch.ones(3, 8))),
    "elementwise": (swapped(4, 16, 8), lambda x: x + 1),
    "bmm": (swapped(4, 16, 8), lambda x: torch.bmm(x, torch.ones(4, 8, 3))),
    "mm": (swapped(16, 8), lambda x: x @ torch.ones(8, 3)),
    "linear on a matrix": (swapped(16, 8), lambda x: F.linear(x, torch.ones(3, 8))),
    "a product of swapped matrices": (swapped(2, 4, 16, 8), lambda x: x @ torch.ones(2, 4, 8, 3)),
    "group_norm": (channels_last(2, 4, 8, 8), lambda x: F.group_norm(x, 2)),
    "max_pool2d": (channels_last(2, 4, 8, 8), lambda x: F.max_pool2d(x, 2)),
    "attention": (HEADS, lambda x: F.scaled_dot_product_attention(x, x, x)),
    "a view that there is": (HEADS, lambda x: x.view(2, 4, 16, 2, 4) + 1),
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_copy_that_stands_for_an_operators_own_is_a_note(name: str) -> None:
    x, use = NEEDED[name]
    (finding,) = report_of(lambda: use(x.contiguous())).findings
    assert (finding.code, finding.severity, finding.advice) == ("SW114", "note", None)
    assert f"`{name}` behind it needs" in finding.message
    if name == "view":
        with pytest.raises(RuntimeError, match="view"):
            use(x)
        return
    copies = [copy for copy in report_of(lambda: use(x)).copies if copy.taxed]
    assert [(copy.call or "").endswith(name) for copy in copies] == [True]


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_a_copy_that_nothing_needs_is_one_to_leave_out(name: str) -> None:
    x, use = NOT_NEEDED[name]
    (finding,) = report_of(lambda: use(x.contiguous())).findings
    assert finding.code == "SW114"
    assert re.search("Leave it out|each copy otherwise|would work in channels_last without it", finding.advice or "")
    assert not report_of(lambda: use(x)).totals.copies


def test_the_order_is_needed_behind_a_view() -> None:
    x, norm = torch.randn(2, 8, 4, 4), nn.LayerNorm(8)
    (finding,) = report_of(lambda: norm(x.permute(0, 2, 3, 1).contiguous().view(2, 16, 8))).findings
    assert finding.severity == "note"
    assert finding.advice is None


def test_following_the_advice_of_a_hidden_copy_gives_no_advice_against_it() -> None:
    x, norm = torch.randn(8, 64, 500, requires_grad=True), nn.LayerNorm(64)

    def step(*, contiguous: bool) -> Report:
        def program() -> None:
            y = x.transpose(1, 2)
            norm(y.contiguous() if contiguous else y).square().mean().backward()

        program()
        with stridewise.record() as recording:
            program()
            recording.step()
        return stridewise.analyze(recording, min_share=0)

    (before,) = step(contiguous=False).findings
    assert before.code == "SW103"
    assert "1 copy of 2 MB a step instead of 2 that move 4.1 MB" in (before.advice or "")
    after = step(contiguous=True)
    assert after.totals.copies == 1
    assert [(finding.code, finding.severity, finding.advice) for finding in after.findings] == [("SW114", "note", None)]


# -- what a copy at the origin saves -----------------------------------------------------------------------------------


def test_a_stream_says_what_one_copy_saves() -> None:
    x, norm = torch.randn(8, 64, 32), nn.LayerNorm(64)

    def stream(y: Tensor) -> None:
        for _ in range(3):
            y = y + norm(y)

    before = report_of(lambda: stream(x.permute(0, 2, 1)))
    after = report_of(lambda: stream(x.permute(0, 2, 1).contiguous()))
    (finding,) = before.findings
    assert finding.code == "SW101"
    assert "1 copy of 131 kB a step instead of 3 that move 393 kB." in (finding.advice or "")
    assert (before.totals.copies, before.totals.bytes_moved) == (3, 393216)
    assert (after.totals.copies, after.totals.bytes_moved) == (1, 131072)


def test_a_copy_at_the_origin_that_saves_no_bytes_is_not_advised() -> None:
    """Each product copies its own part of the tensor; what swaps dimensions once more is copied all the same."""
    y = torch.randn(4, 64, 3, 4, 8)

    def attention(x: Tensor) -> None:
        q, k, v = x
        (q @ k.transpose(-2, -1)).softmax(-1) @ v

    before = report_of(lambda: attention(y.permute(2, 0, 3, 1, 4)))
    after = report_of(lambda: attention(y.permute(2, 0, 3, 1, 4).contiguous()))
    (finding,) = before.findings
    assert finding.code == "SW101"
    assert (finding.advice or "").startswith("Leave it")
    assert (after.totals.bytes_moved or 0) >= (before.totals.bytes_moved or 0)


# -- what a copy takes away --------------------------------------------------------------------------------------------


def test_a_copy_out_of_channels_last_says_what_it_takes_away() -> None:
    x, pool, conv = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1)

    def program() -> None:
        y = x.contiguous()
        conv(y * 2 + pool(y).mean())

    (finding,) = report_of(program).findings
    assert (finding.code, finding.severity) == ("SW114", "note")
    assert finding.message == (
        "`contiguous` copies input 0, (2, 8, 16, 16) with strides (2048, 1, 128, 8) out of channels_last, once for the"
        " 2 calls that use it."
    )
    assert (finding.advice or "").startswith(
        "`max_pool2d` and `conv2d` behind it would work in channels_last without it"
    )
    assert "`stridewise fix`" in (finding.advice or "")


def test_a_copy_of_images_that_no_such_operator_uses_says_nothing_of_the_kind() -> None:
    x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
    (finding,) = report_of(lambda: x.contiguous().sum(1)).findings
    assert "channels_last" not in f"{finding.message}{finding.advice}"


# -- what lies inside torch --------------------------------------------------------------------------------------------


def recorded(layer: nn.Module, x: torch.Tensor) -> Recording:
    def program() -> None:
        layer(x).square().mean().backward()

    program()
    with stridewise.record() as recording:
        program()
        recording.step()
    return recording


def trained(layer: nn.Module, x: torch.Tensor) -> Report:
    return stridewise.analyze(recorded(layer, x), min_share=0)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import stridewise
print([finding.advice for finding in stridewise.analyze(sys.argv[1], min_share=0).findings])
"""


def test_a_recording_says_the_same_where_torch_is_not_installed(tmp_path: Path) -> None:
    recording = recorded(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(8, 32, 64))
    recording.save(tmp_path / "step.json.gz")
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "step.json.gz")],
        capture_output=True,
        text=True,
        check=True,
    )
    advice = [finding.advice for finding in stridewise.analyze(recording, min_share=0).findings]
    assert any("begins inside torch" in (text or "") for text in advice)
    assert told.stdout.strip() == str(advice)


def test_of_an_earlier_recording_it_is_not_known_what_is_torch_own() -> None:
    recording = recorded(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(8, 32, 64))
    assert recording.trace.log is not None
    recording.trace.log.of_torch = None
    advice = [finding.advice or "" for finding in stridewise.analyze(recording, min_share=0).findings]
    assert not any("begins inside torch" in text for text in advice)


def test_nobody_is_told_to_copy_behind_an_expression_where_the_order_never_leaves_torch() -> None:
    report = trained(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(8, 32, 64))
    inside = [row for row in report.findings if row.origin is not None and row.origin.via and row.code != "SW114"]
    assert {row.code for row in inside} >= {"SW103", "SW110"}
    for finding in inside:
        assert "begins inside torch, at torch/nn/modules/activation.py:" in (finding.advice or "")
        assert "`layer(x)`" not in (finding.advice or "")


def test_what_a_layer_of_torch_gives_can_be_copied_behind_it() -> None:
    x, norm = torch.randn(8, 64, 500, requires_grad=True), nn.LayerNorm(64)
    split = nn.Sequential(nn.Flatten(2), nn.Identity())

    def program() -> None:
        y = split(x.transpose(1, 2))
        norm(y).square().mean().backward()

    program()
    with stridewise.record() as recording:
        program()
        recording.step()
    (finding,) = (row for row in stridewise.analyze(recording, min_share=0).findings if row.code == "SW103")
    assert "`.contiguous()` behind `x.transpose(1, 2)`" in (finding.advice or "")
