"""SW312 discarded-channels-last: a batch of images that is channels_last for free is copied into NCHW.

What it means
    An image batch of shape (N, H, W, C) that is contiguous is channels_last once it is permuted to (N, C, H, W): that
    is a view, and it costs nothing. `.permute(0, 3, 1, 2).contiguous()` copies all of it into the other order, and
    what follows is a layer that takes channels_last as it is, or an image that such layers will get.

Why it happens
    `permute` makes `is_contiguous()` false, and that is read as a fault. For convolutions, pooling, batch and group
    normalization and interpolation it is none: they have kernels for channels_last, and give channels_last.

How to fix it
    Leave `.contiguous()` out, and measure both. On CPUs convolutions in channels_last are mostly the faster ones, on
    GPUs those of half precision; weights are best converted once: `model.to(memory_format=torch.channels_last)`. The
    fix is shown only, because the layout lives on in what follows: a `.view(…)` of a later result may raise, where
    `.reshape(…)` or `.flatten(1)` does not.

When to ignore it
    Where the model is faster in NCHW, or what gets the tensor reads its memory itself: a kernel of your own, numpy.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from stridewise.findings import Edit
from stridewise.linter.facts.indexing import literal
from stridewise.linter.facts.value import STRIDED, Value
from stridewise.linter.module import Module
from stridewise.linter.names import last_name
from stridewise.linter.reading.chains import before, contiguous, has_comment, receiver
from stridewise.linter.rule import Fires, Problem

SEVERITY = "note"
WORDS = ("contiguous",)

TAKERS = {
    4: (
        *("Conv2d", "ConvTranspose2d", "BatchNorm2d", "GroupNorm", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d"),
        *("Upsample", "PixelShuffle", "conv2d", "conv_transpose2d", "batch_norm", "group_norm", "max_pool2d"),
        *("avg_pool2d", "adaptive_avg_pool2d", "interpolate", "pixel_shuffle"),
    ),
    5: (
        *("Conv3d", "ConvTranspose3d", "BatchNorm3d", "GroupNorm", "MaxPool3d", "Upsample", "conv3d"),
        *("conv_transpose3d", "batch_norm", "group_norm", "max_pool3d", "interpolate"),
    ),
}
"""By rank, the layers and functions that take channels_last without a copy of it, and give it. A test runs each."""
_FORMATS = {4: ("channels_last", "NHWC", "NCHW"), 5: ("channels_last_3d", "NDHWC", "NCDHW")}
_SWAPS = ("transpose", "swapaxes", "swapdims")
_READ_MEMORY = ("view", "view_as", "data_ptr", "numpy", "stride", "is_contiguous")
_IMAGES = re.compile(r"(?:^|_)(?:image|img|frame|video|pixel|pixel_value|photo|picture)s?$")

FIRES = (
    Fires(
        """
import torch
import torch.nn.functional as F

def program():
    image = torch.zeros(2, 8, 8, 3)
    return F.max_pool2d(image.permute(0, 3, 1, 2).contiguous(), 2)
""",
        fixed="""
import torch
import torch.nn.functional as F

def program():
    image = torch.zeros(2, 8, 8, 3)
    return F.max_pool2d(image.permute(0, 3, 1, 2), 2)
""",
    ),
    Fires(
        """
import torch
from torch import nn

class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, tokens):
        x = torch.permute(tokens, (0, -1, 1, 2))
        x = x.contiguous()
        return self.conv(x)

def program():
    return Stem()(torch.zeros(2, 8, 8, 3))
"""
    ),
    Fires(
        """
import numpy as np
import torch

def program():
    batch = np.zeros((2, 8, 8, 3), np.float32)
    return torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()
""",
        fixed="""
import numpy as np
import torch

def program():
    batch = np.zeros((2, 8, 8, 3), np.float32)
    return torch.from_numpy(batch).permute(0, 3, 1, 2)
""",
    ),
)
QUIET = (
    """
import torch

def program():
    tokens = torch.zeros(2, 8, 8, 3)
    return tokens.permute(0, 3, 1, 2).contiguous().view(2, -1)
""",
    """
import torch

def program():
    bias = torch.zeros(2, 8, 8, 3)
    return bias.permute(0, 3, 1, 2).contiguous()
""",
    """
import torch
import torch.nn.functional as F

def program():
    image = torch.zeros(2, 8, 8, 3)
    x = image.permute(0, 3, 1, 2).contiguous()
    return F.max_pool2d(x, 2), x.view(2, 3, 64)
""",
    """
import torch

def program(frames=torch.zeros(2, 8, 8, 3)):
    if frames.shape[-1] == 3:
        frames = frames.permute(0, 3, 1, 2).contiguous()
    frames[0] = 1
    return frames
""",
    """
import torch

def program():
    image = torch.zeros(2, 8, 8, 3)
    return image.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
""",
    """
import torch
import torch.nn.functional as F

def program():
    image = torch.zeros(2, 8, 8, 3)
    return F.max_pool2d(image.permute(0, 3, 2, 1).contiguous(), 2)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Contiguous copies of what is permuted from channels last to channels first, if images are what it is."""
    for call in module.calls("contiguous"):
        base = contiguous(module, call)
        value = module.value(base) if base is not None else None
        if base is None or value is None or not isinstance(value.node, ast.Call) or module.parent(call) is None:
            continue
        permuted = value.node
        ranks, batch = _ranks(module, value)
        if not ranks or (batch is not None and batch.state in STRIDED):
            continue
        takers, is_read, rank = _taken(module, call, ranks)
        if is_read or not (takers or (len(ranks) == 1 and _is_image(module, permuted, call))):
            continue
        name, old, new = _FORMATS[rank]
        taker = f"`{module.text(takers[0].func)}`, which gets it," if takers else "What resizes or convolves it"
        yield Problem(
            call,
            f"`{module.text(call)}` copies into {new} order what is {name} already, without a copy, if the {old} "
            f"batch is contiguous. {taker} takes {name} as it is.",
            advice="Leave `.contiguous()` out, and measure both.",
            edits=_fix(module, base, call),
            origin=permuted if permuted is not base else None,
        )


def _ranks(module: Module, value: Value) -> tuple[tuple[int, ...], Value | None]:
    """The ranks that what was permuted from channels last to channels first may have, and what it was permuted of."""
    assert isinstance(value.node, ast.Call)
    rank = _rank(module, value.node)
    if rank:
        return (rank,), value.of
    if _numbers(module, value.node, "movedim", "moveaxis") == [-1, 1]:
        return tuple(TAKERS), value.of
    before = value.of
    if before is not None and isinstance(before.node, ast.Call):
        swaps = [_numbers(module, each, *_SWAPS) for each in (before.node, value.node)]
        known = [{at % 4 for at in swap} for swap in swaps if len(swap) == 2]
        if known == [{1, 3}, {2, 3}]:
            return (4,), before.of
    return (), None


def _numbers(module: Module, call: ast.Call, *names: str) -> list[int]:
    """The dimensions that a method of one of some names is given; none for other calls."""
    base = receiver(module, call, *names)
    numbers = [literal(each) for each in call.args]
    return [each for each in numbers if each is not None] if base is not None and None not in numbers else []


def _taken(module: Module, copy: ast.Call, ranks: Sequence[int]) -> tuple[list[ast.Call], bool, int]:
    """The uses of the copy, for the first rank of which there are takers. Of several ranks a taker has to name one."""
    for rank in ranks:
        takers, is_read = _uses(module, copy, rank)
        if len(ranks) > 1:
            ops = ((each, module.value(each, module.scope(copy)).op or "") for each in takers)
            takers = [each for each, op in ops if op.endswith(f"{rank - 2}d")]
        if takers or is_read:
            return takers, is_read, rank
    return [], False, ranks[0]


def _rank(module: Module, call: ast.Call) -> int:
    """The rank of what a call permutes from channels last to channels first; 0 for other calls."""
    name = module.name(call.func)
    if name == "einops.rearrange":
        return _rank_of_pattern(call.args[1] if len(call.args) > 1 else None)
    if name == "torch.permute":
        arguments: Sequence[ast.expr] = call.args[1:]
    elif name is None and isinstance(call.func, ast.Attribute) and call.func.attr == "permute":
        arguments = call.args
    else:
        return 0
    if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)):
        arguments = arguments[0].elts
    rank = len(arguments)
    places = [literal(each) for each in arguments]
    wanted = [0, rank - 1, *range(1, rank - 1)]
    alike = all(place in (want, want - rank) for place, want in zip(places, wanted, strict=True))
    return rank if rank in TAKERS and alike else 0


def _rank_of_pattern(pattern: ast.expr | None) -> int:
    """The rank of einops' `b h w c -> b c h w`."""
    if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str):
        return 0
    left, _, right = pattern.value.partition("->")
    axes = left.split()
    is_plain = all(axis.isidentifier() for axis in axes) and len(axes) in TAKERS
    return len(axes) if is_plain and right.split() == [axes[0], axes[-1], *axes[1:-1]] else 0


def _uses(module: Module, copy: ast.Call, rank: int) -> tuple[list[ast.Call], bool]:
    """The calls that take the copy and would take channels_last, and whether anything needs the copy itself."""
    scope = module.scope(copy)
    statement = module.parent(copy)
    names = {each.id for each in getattr(statement, "targets", ()) if isinstance(each, ast.Name)}
    takers: list[ast.Call] = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and node.args and module.value(node.args[0], scope).node is copy:
            takers += [node] if module.value(node, scope).op in TAKERS[rank] else []
        tensor = _read_or_written(node)
        # By name as well: behind a branch it is not known any more whether it is the copy.
        if tensor is None:
            continue
        value = module.value(tensor, scope)
        is_unknown = value.op is None and isinstance(tensor, ast.Name) and tensor.id in names
        if value.node is copy or is_unknown:
            return [], True
    return takers, False


def _read_or_written(node: ast.AST) -> ast.expr | None:
    """A tensor whose memory is read in its own order, or written to."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return node.value
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute):
        return None
    is_in_place = function.attr.endswith("_") and not function.attr.startswith("_")
    return function.value if is_in_place or function.attr in _READ_MEMORY else None


def _is_image(module: Module, permuted: ast.Call, copy: ast.Call) -> bool:
    """Whether a batch is one of images by its name, or comes from numpy, and its copy is not worked on at once."""
    if isinstance(module.parent(copy), ast.Attribute):
        return False
    is_method = module.name(permuted.func) is None and isinstance(permuted.func, ast.Attribute)
    batch = permuted.func.value if is_method else permuted.args[0]  # type: ignore[attr-defined]
    if isinstance(batch, ast.Call):
        return module.name(batch.func) == "torch.from_numpy"
    return _IMAGES.search(last_name(batch).lower()) is not None


def _fix(module: Module, base: ast.expr, call: ast.Call) -> tuple[Edit, ...]:
    text = before(module, call).rstrip()
    statement = module.parent(call)
    is_own = isinstance(statement, ast.Assign) and [module.text(each) for each in statement.targets] == [text]
    if is_own or has_comment(module, base, call):
        return ()
    return (Edit(module.source.name, module.source.span(call), text, "display"),)
