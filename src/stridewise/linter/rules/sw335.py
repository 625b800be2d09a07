"""SW335 contiguous-after-transfer: a tensor is made contiguous straight after it was moved to a device.

What it means
    `x.to("cuda").contiguous()`: a transfer keeps the strides of what is dense, and makes what has gaps dense. After
    it `.contiguous()` does nothing to a batch that a loader made, which is contiguous, and turns one that is
    channels_last into NCHW by a copy on the device: what convolutions were to gain is lost.

Why it happens
    It is passed on as a rule: "always make it contiguous after `.to('cuda')`". No operator asks for that; those that
    need another layout copy by themselves.

How to fix it
    Leave `.contiguous()` out. If the model runs in channels_last, say so in the transfer:
    `x.to("cuda", memory_format=torch.channels_last)`. The fix is shown only: where the tensor was transposed it was
    made row-major here, and a `.view(…)` behind it may rely on that.

When to ignore it
    Where a kernel of your own gets the tensor, or it was transposed before. The source does not show what the loader
    hands over, so the rule is off unless asked for.
"""

import ast
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.linter.module import Module
from stridewise.linter.names import last_name
from stridewise.linter.reading.chains import before, contiguous, has_comment, receiver
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
DEFAULT = False
WORDS = ("contiguous",)

FIRES = (
    Fires(
        """
import torch

def program(device=torch.device("cpu")):
    x = torch.zeros(2, 3, 4, 5)
    return x.to("cpu").contiguous(), x.to(device, non_blocking=True).contiguous()
""",
        fixed="""
import torch

def program(device=torch.device("cpu")):
    x = torch.zeros(2, 3, 4, 5)
    return x.to("cpu"), x.to(device, non_blocking=True)
""",
        count=2,
    ),
    Fires(
        """
import torch

def program(batch=torch.zeros(2, 3)):
    return batch.cuda().contiguous() if torch.cuda.is_available() else batch.to(device="cpu").contiguous()
""",
        fixed="""
import torch

def program(batch=torch.zeros(2, 3)):
    return batch.cuda() if torch.cuda.is_available() else batch.to(device="cpu")
""",
        count=2,
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    return x.to(torch.float16).contiguous()
""",
    """
import torch

def program():
    x = torch.zeros(2, 3, 4, 5)
    return x.to("cpu").contiguous(memory_format=torch.channels_last)
""",
    """
import torch

def program():
    x = torch.zeros(2, 3)
    return x.t().to("cpu").contiguous()
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Calls of `contiguous` on what was just moved to a device and is not strided by the source."""
    for call in module.calls("contiguous"):
        moved = contiguous(module, call)
        if not isinstance(moved, ast.Call) or not _is_transfer(module, moved):
            continue
        base = receiver(module, moved, "to", "cuda")
        if base is None or module.value(base).is_strided:
            continue
        fix: tuple[Edit, ...] = ()
        if not has_comment(module, moved, call):
            fix = (Edit(module.source.name, module.source.span(call), before(module, call).rstrip(), "display"),)
        yield Problem(
            call,
            f"`{module.text(moved)}` keeps the order that `{module.text(base)}` has in memory: `.contiguous()` does "
            "nothing if that was contiguous, and undoes channels_last by a copy if it was that.",
            advice="Leave `.contiguous()` out; for channels_last add `memory_format=torch.channels_last` to the "
            "transfer.",
            edits=fix,
        )


def _is_transfer(module: Module, call: ast.Call) -> bool:
    """Whether a call names a device."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "cuda" or any(keyword.arg == "device" for keyword in call.keywords):
        return True
    first = call.args[0] if call.args and call.func.attr == "to" else None
    if isinstance(first, ast.Constant):
        return isinstance(first.value, (str, int))
    if isinstance(first, ast.Call):
        return module.name(first.func) == "torch.device"
    return last_name(first).endswith("device")
