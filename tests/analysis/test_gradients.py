"""What SW110 names as the origin of a gradient's order, against autograd's own hooks; and what its advice does."""

import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import stridewise
from stridewise.analysis.functions import CONVOLUTIONS, DECIDE_GRADIENT_ORDER
from stridewise.findings import Finding
from stridewise.results import Report

Program = Callable[[], object]


def report_of(program: Program) -> Report:
    program()
    with stridewise.record() as recording:
        program()
        recording.step()
    return stridewise.analyze(recording, min_share=0)


def gradient_findings(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == "SW110"]


# -- networks ----------------------------------------------------------------------------------------------------------


class ChannelNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = super().forward(x)
        return x.permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dw = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.norm = ChannelNorm(dim)
        self.down = nn.Conv2d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.norm(self.dw(x))))


class Attention(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        y = self.qkv(self.norm(x)).view(b, n, 3, 4, d // 4)
        q, k, v = y.permute(2, 0, 3, 1, 4)
        z = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        z = z.transpose(1, 2)
        return x + self.out(z.reshape(b, n, d))


class ResidualThenAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks, self.attention = (
            nn.Conv2d(3, 16, 4, 4),
            nn.Sequential(Block(16), Block(16)),
            Attention(16),
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.stem(images))
        x = x.flatten(2)
        x = x.transpose(1, 2)
        return self.attention(x).mean(1)


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.position = nn.Parameter(torch.randn(1, 64, 16))
        self.layers = nn.Sequential(Attention(16), Attention(16))

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch(images).flatten(2)
        x = x.transpose(1, 2)
        return self.layers(x + self.position).mean(1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, padding=1)
        self.up, self.last, self.head = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Tensor:
        wide = F.silu(self.down1(images))
        x = self.up(F.silu(self.down2(wide)))
        x = F.silu(self.last(torch.cat([wide, x], 1)))
        x = x.permute(0, 2, 3, 1)
        return self.head(x)


NETWORKS = {
    "residual blocks, then attention": (
        ResidualThenAttention,
        {"x.transpose(1, 2)", "x.permute(0, 2, 3, 1)", "y.permute(2, 0, 3, 1, 4)", "z.transpose(1, 2)"},
    ),
    "vision transformer": (VisionTransformer, {"x.transpose(1, 2)", "y.permute(2, 0, 3, 1, 4)", "z.transpose(1, 2)"}),
    "U-Net": (UNet, {"x.permute(0, 2, 3, 1)"}),
}


def in_order(gradient: Tensor) -> bool:
    return gradient.is_contiguous()


class Nodes(TorchFunctionMode):
    """Of each line: the gradients that the nodes of its calls were given and handed back, whether in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[int, str], list[tuple[list[bool], list[bool]]]] = defaultdict(list)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        frame = sys._getframe(1)
        if isinstance(result, Tensor) and result.grad_fn is not None and frame.f_code.co_filename == __file__:
            seen = self.seen[frame.f_lineno, func.__name__]

            def hook(back: tuple[Tensor | None, ...], given: tuple[Tensor | None, ...]) -> None:
                seen.append(
                    ([in_order(g) for g in given if g is not None], [in_order(g) for g in back if g is not None])
                )

            result.grad_fn.register_hook(hook)
        return result


@pytest.mark.parametrize("name", NETWORKS)
def test_the_origin_is_given_a_gradient_in_order_and_hands_it_back_out_of_order(name: str) -> None:
    make, origins = NETWORKS[name]
    torch.manual_seed(0)
    network, images = make(), torch.randn(4, 3, 32, 32)

    def program() -> None:
        network(images).square().sum().backward()

    found = [finding.origin for finding in gradient_findings(report_of(program)) if finding.origin is not None]
    assert {origin.expression for origin in found} == origins
    with Nodes() as nodes:
        program()
    for origin in found:
        assert origin.line is not None
        seen = [entry for (line, _), entries in nodes.seen.items() if line == origin.line for entry in entries]
        assert seen
        assert all(given == [True] and back == [False] for given, back in seen)


def test_an_operator_that_hands_a_gradient_back_in_the_order_of_its_operand() -> None:
    a, gate = nn.Linear(16, 16), torch.randn(8, 16, 32).transpose(1, 2)
    x = torch.randn(8, 32, 16)

    def program() -> None:
        y = gate * a(x)
        F.relu(y).square().mean().backward()

    def mended() -> None:
        y = a(x) * gate
        F.relu(y).square().mean().backward()

    (finding,) = gradient_findings(report_of(program))
    assert finding.origin is not None
    assert "relu" in (finding.origin.expression or "") or "square" in (finding.origin.expression or "")
    assert "whose operands are" in (finding.advice or "")
    assert not gradient_findings(report_of(mended))


# -- advice that works -------------------------------------------------------------------------------------------------


class Heads(nn.Module):
    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.qkv, self.how = nn.Linear(32, 96), how

    def forward(self, x: Tensor) -> Tensor:
        y = self.qkv(x).view(4, 64, 3, 4, 8)
        if self.how == "split first":
            q, k, v = (part.transpose(1, 2) for part in y.unbind(2))
        elif self.how == "contiguous behind":
            q, k, v = y.permute(2, 0, 3, 1, 4).contiguous()
        else:
            q, k, v = y.permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v)


class Residual(nn.Module):
    def __init__(self, how: str = "", kind: type[nn.Conv1d] | type[nn.Conv2d] = nn.Conv1d) -> None:
        super().__init__()
        self.convolutions, self.how = nn.ModuleList(kind(16, 16, 3, padding=1) for _ in range(3)), how
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = x + F.silu(convolution(x))
        if self.how == "hook":
            x.register_hook(lambda gradient: gradient.contiguous())
        x = x.flatten(2).transpose(1, 2)
        return self.head(x.contiguous() if self.how == "contiguous behind" else x)


def gradient_copies(network: nn.Module, *inputs: Tensor) -> tuple[float, float, str]:
    """Copies of gradients that nobody asked for, all bytes that copies move, and the advice."""
    report = report_of(lambda: network(*inputs).square().sum().backward())
    found = gradient_findings(report)
    copies = sum(finding.cost.copies or 0 for finding in found)
    return copies, report.totals.bytes_moved or 0, " ".join(finding.advice or "" for finding in found)


def test_splitting_before_dimensions_are_swapped_spares_the_copy() -> None:
    x = torch.randn(4, 64, 32)
    copies, moved, advice = gradient_copies(Heads(), x)
    assert copies == 1
    assert "qkv.unbind(2)" in advice
    assert gradient_copies(Heads("contiguous behind"), x)[1] > moved
    assert gradient_copies(Heads("split first"), x)[:2] == (0, 0)


def test_one_hook_spares_the_copies_of_several_calls() -> None:
    x = torch.randn(4, 16, 256)
    copies, moved, advice = gradient_copies(Residual(), x)
    assert copies >= 2
    assert "register_hook" in advice
    assert gradient_copies(Residual("contiguous behind"), x)[0] == copies
    mended = report_of(lambda: Residual("hook")(x).square().sum().backward())
    assert not gradient_findings(mended)
    assert (mended.totals.bytes_moved or 0) < moved
    hook = [finding for finding in mended.findings if "gradient into order" in finding.message]
    assert [(finding.code, finding.severity, finding.cost.copies) for finding in hook] == [("SW114", "note", 1)]


def test_channels_last_spares_the_copies_of_convolutions() -> None:
    x = torch.randn(4, 16, 16, 16)
    copies, _, advice = gradient_copies(Residual(kind=nn.Conv2d), x)
    assert copies >= 2
    assert "channels_last" in advice
    mended = Residual(kind=nn.Conv2d).to(memory_format=torch.channels_last)
    assert gradient_copies(mended, x.to(memory_format=torch.channels_last))[:2] == (0, 0)


def test_where_nothing_in_forward_helps_it_is_a_note_that_says_so() -> None:
    class One(nn.Module):
        def __init__(self, *, contiguous: bool) -> None:
            super().__init__()
            self.norm, self.head, self.contiguous = nn.LayerNorm(32), nn.Linear(64, 8), contiguous

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(x).transpose(1, 2)
            return self.head(y.contiguous() if self.contiguous else y)

    x = torch.randn(8, 64, 32)
    (finding,) = gradient_findings(report_of(lambda: One(contiguous=False)(x).square().sum().backward()))
    assert finding.severity == "note"
    assert "Nothing in forward" in (finding.advice or "")
    assert gradient_copies(One(contiguous=True), x)[0] == finding.cost.copies == 1


# -- which functions decide --------------------------------------------------------------------------------------------

Call = Callable[[Tensor], Tensor]
IMAGE, ROWS, MATRIX = (4, 8, 6, 6), (4, 6, 8), (6, 8)


def weight(*sizes: int) -> Tensor:
    return torch.ones(sizes)


DECIDING: dict[str, tuple[tuple[int, ...], Call]] = {
    "layer_norm": (ROWS, lambda x: F.layer_norm(x, (8,))),
    "group_norm": (IMAGE, lambda x: F.group_norm(x, 2)),
    "instance_norm": (IMAGE, lambda x: F.instance_norm(x)),
    "batch_norm": (IMAGE, lambda x: F.batch_norm(x, None, None, training=True)),
    "softmax": (ROWS, lambda x: x.softmax(-1)),
    "log_softmax": (ROWS, lambda x: x.log_softmax(-1)),
    "linear": (ROWS, lambda x: F.linear(x, weight(7, 8))),
    "matmul": (ROWS, lambda x: x @ weight(4, 8, 7)),
    "bmm": (ROWS, lambda x: x.bmm(weight(4, 8, 7))),
    "baddbmm": (ROWS, lambda x: torch.baddbmm(weight(4, 6, 7), x, weight(4, 8, 7))),
    "mm": (MATRIX, lambda x: x.mm(weight(8, 7))),
    "addmm": (MATRIX, lambda x: torch.addmm(weight(7), x, weight(8, 7))),
    "einsum": (ROWS, lambda x: torch.einsum("abc,cd->abd", x, weight(8, 7))),
    "scaled_dot_product_attention": ((4, 2, 6, 8), lambda x: F.scaled_dot_product_attention(x, x, x)),
    "relu": (ROWS, F.relu),
    "prelu": (ROWS, lambda x: F.prelu(x, weight(1))),
    "glu": (ROWS, F.glu),
    "cumsum": (ROWS, lambda x: x.cumsum(1)),
    "index_select": (ROWS, lambda x: x.index_select(1, torch.tensor([0, 2]))),
    "max_pool1d": (ROWS, lambda x: F.max_pool1d(x, 2)),
    "max_pool2d": (IMAGE, lambda x: F.max_pool2d(x, 2)),
    "max_pool3d": ((4, 2, 4, 4, 4), lambda x: F.max_pool3d(x, 2)),
    "avg_pool1d": (ROWS, lambda x: F.avg_pool1d(x, 2)),
    "avg_pool2d": (IMAGE, lambda x: F.avg_pool2d(x, 2)),
    "avg_pool3d": ((4, 2, 4, 4, 4), lambda x: F.avg_pool3d(x, 2)),
    "adaptive_avg_pool1d": (ROWS, lambda x: F.adaptive_avg_pool1d(x, 2)),
    "adaptive_avg_pool2d": (IMAGE, lambda x: F.adaptive_avg_pool2d(x, 3)),
    "adaptive_avg_pool3d": ((4, 2, 4, 4, 4), lambda x: F.adaptive_avg_pool3d(x, 2)),
    "conv1d": (ROWS, lambda x: F.conv1d(x, weight(5, 6, 3))),
    "conv2d": (IMAGE, lambda x: F.conv2d(x, weight(5, 8, 3, 3))),
    "conv3d": ((4, 2, 4, 4, 4), lambda x: F.conv3d(x, weight(5, 2, 3, 3, 3))),
    "conv_transpose1d": (ROWS, lambda x: F.conv_transpose1d(x, weight(6, 5, 3))),
    "conv_transpose2d": (IMAGE, lambda x: F.conv_transpose2d(x, weight(8, 5, 3, 3))),
    "conv_transpose3d": ((4, 2, 4, 4, 4), lambda x: F.conv_transpose3d(x, weight(2, 5, 3, 3, 3))),
    "convolution": (
        IMAGE,
        lambda x: torch.convolution(x, weight(5, 8, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ),
}
HANDING_ON: dict[str, tuple[tuple[int, ...], Call]] = {
    "gelu": (ROWS, F.gelu),
    "silu": (ROWS, F.silu),
    "mul": (ROWS, lambda x: x * weight(*ROWS)),
    "add": (ROWS, lambda x: x + weight(*ROWS)),
    "clone": (ROWS, torch.clone),
    "cat": (ROWS, lambda x: torch.cat([x, x], 1)),
    "dropout": (ROWS, F.dropout),
}


def gradient_orders(sizes: tuple[int, ...], call: Call) -> list[tuple[int, ...]]:
    """The strides of the gradient handed back for one that is given in order, and for one out of order."""
    found = []
    for swapped in (False, True):
        x = torch.randn(sizes, requires_grad=True)
        y = call(x)
        given = torch.randn(y.shape)
        if swapped:
            given = given.transpose(1, -1).contiguous().transpose(1, -1)
        found.append(torch.autograd.grad(y, x, given)[0].stride())
    return found


def test_every_deciding_function_has_an_example() -> None:
    assert set(DECIDING) == DECIDE_GRADIENT_ORDER
    assert CONVOLUTIONS < DECIDE_GRADIENT_ORDER
    assert not set(HANDING_ON) & DECIDE_GRADIENT_ORDER


@pytest.mark.parametrize("name", DECIDING)
def test_a_function_that_decides_the_order_of_its_gradient(name: str) -> None:
    in_order, out_of_order = gradient_orders(*DECIDING[name])
    assert in_order == out_of_order


@pytest.mark.parametrize("name", HANDING_ON)
def test_a_function_that_hands_the_order_on(name: str) -> None:
    in_order, out_of_order = gradient_orders(*HANDING_ON[name])
    assert in_order != out_of_order


# -- where gradients are kept ------------------------------------------------------------------------------------------


def report_of_keeping(leaf: Tensor, call: Callable[[Tensor], Tensor]) -> Report:
    def program() -> None:
        leaf.grad = None  # as `zero_grad` leaves it: what is added to a gradient that is there is copied nowhere
        call(leaf).square().sum().backward()

    return report_of(program)


def test_a_gradient_is_copied_into_the_order_of_the_leaf_that_keeps_it() -> None:
    def call(leaf: Tensor) -> Tensor:
        return leaf @ torch.ones(8, 64, 32)

    leaf = torch.randn(8, 64, 512).transpose(1, 2).requires_grad_()
    (finding,) = gradient_findings(report_of_keeping(leaf, call))
    assert (
        "the backward of `matmul` gives is copied from strides (32768, 64, 1) into (32768, 1, 512)" in finding.message
    )
    assert finding.advice == "Make that tensor contiguous before it requires a gradient."
    assert leaf.grad is not None
    assert leaf.grad.stride() == leaf.stride()
    assert not gradient_findings(report_of_keeping(leaf.detach().contiguous().requires_grad_(), call))


def test_no_advice_where_a_leaf_with_gaps_keeps_a_contiguous_gradient() -> None:
    leaf = torch.randn(32, 64)[:, ::2].requires_grad_()
    (finding,) = gradient_findings(report_of_keeping(leaf, lambda leaf: torch.ones(8, 32) @ leaf.t()))
    assert "is copied from strides (1, 32) into (32, 1)" in finding.message
    assert finding.advice is None


# -- what arranges its operands ----------------------------------------------------------------------------------------


class Listener(nn.Module):
    def __init__(self, *, in_order: bool) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 16, 5, padding=2)
        self.rnn = nn.LSTM(16, 16, batch_first=True)
        self.out = nn.Linear(16, 10)
        self.in_order = in_order

    def forward(self, sound: Tensor) -> Tensor:
        x = self.conv(sound).transpose(1, 2)
        x, _ = self.rnn(x.contiguous() if self.in_order else x)
        return self.out(x)


def test_what_batch_first_swaps_is_laid_to_no_operand() -> None:
    """An operand in order is copied as well, and so is what comes out: nothing is to be won in front of the LSTM."""
    sound, as_it_is, in_order = torch.randn(4, 8, 100), Listener(in_order=False), Listener(in_order=True)
    report = report_of(lambda: as_it_is(sound).square().mean().backward())
    assert report_of(lambda: in_order(sound).square().mean().backward()).totals.copies > report.totals.copies
    assert "SW101" not in [finding.code for finding in report.findings]
    (linear,) = (finding for finding in report.findings if "linear" in finding.message)
    assert linear.origin is not None
    assert linear.origin.expression == "self.rnn(x.contiguous() if self.in_order else x)"
    (conv,) = (finding for finding in gradient_findings(report) if "conv1d" in finding.message)
    assert conv.advice == "`lstm` computes it so: another form of the operation may not."
