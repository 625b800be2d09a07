"""SW207 unchecked-layout: an exported program gives wrong results, and no error, for layouts it was not made for.

What it means
    The program was compiled, exported or traced with the strides of its example inputs, and uses them whatever it is
    given. A tensor of the same sizes and values in another layout, such as a transposed one, a slice or a
    channels_last image, is read at the wrong places: the result is wrong, and nothing tells so.

Why it happens
    AOTInductor compiles strides in as constants, and its check of the inputs is off unless the environment variable
    AOTI_RUNTIME_CHECK_INPUTS is 1. In torch.export and torch.jit.trace numbers that come from `stride()` become
    constants, as in `as_strided`, and an operator of the program's own may ignore strides.

How to fix it
    Give the program what it was made for: `x.contiguous()`, or the memory format of the example, in front of the
    call. The guard that `check_export` writes does so for every input, or raises. With AOTI_RUNTIME_CHECK_INPUTS=1
    a package raises, at every call.

When to ignore it
    When all callers are known to give the one layout. They tend to change later than the package does.
"""

from collections.abc import Sequence

from stridewise.checks.artefacts.facts import Facts, Input
from stridewise.checks.operators.group import Group
from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding, Severity
from stridewise.layout import MemoryFormat, contiguous_strides, format_order, format_strides

SEVERITY: Severity = "error"
WAY = "artefact"

FIRES = (
    """
import torch

class Halves(torch.nn.Module):
    def forward(self, x):
        return 2 * x.as_strided((4, 3), (x.stride(0), 2 * x.stride(1)))

def subject():
    x = torch.randn(4, 6)
    return {"program": torch.export.export(Halves(), (x,)), "args": (x,)}
""",
    """
import torch

class Rows(torch.nn.Module):
    def forward(self, x):
        return (2 * x + 1).sum(1)

def subject():
    x = torch.randn(24, 4)
    program = torch.export.export(Rows(), (x,))
    return {"program": torch._inductor.aoti_compile_and_package(program)}
""",
)
QUIET = (
    """
import torch

class Halves(torch.nn.Module):
    def forward(self, x):
        return 2 * x[:, ::2]

def subject():
    x = torch.randn(4, 6)
    return {"program": torch.export.export(Halves(), (x,)), "args": (x,)}
""",
    """
import torch

def subject():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    image = torch.randn(2, 3, 8, 8)
    return {"program": torch.jit.trace(model, (image,)), "args": (image,), "model": model}
""",
)

_FORMATS: tuple[MemoryFormat, ...] = ("channels_last", "channels_last_3d")


def found(group: Group, inputs: Sequence[Input], facts: Facts, if_asked: str | None) -> Finding:
    """The finding for inputs whose other layouts go wrong. `if_asked` is the error where it is made to check."""
    ends = any(outcome.status in ("crashed", "hung") for outcome in group.failed)
    does = "crashes or hangs" if ends else "gives wrong results, and no error,"
    made = ", ".join(f"`{one.name}` of {one.sizes} with strides {one.strides}" for one in inputs)
    where = f"for {group.names} in other layouts{' together' if len(inputs) > 1 else f': {group.layouts}'}"
    baked = {
        "no": " It does not compare strides.",
        "only if asked": " It compares strides only where AOTI_RUNTIME_CHECK_INPUTS=1 is set.",
        "at run time": "",
    }[facts.checks]
    evidence = list(group.evidence)
    if if_asked:
        evidence.append(f"with AOTI_RUNTIME_CHECK_INPUTS=1 it raises: {if_asked}")
    return finding(
        __name__,
        Problem(
            group.site,
            f"`{group.op}` {does} {where}. It was made for {made}.{baked}",
            advice=_advice(inputs, if_asked),
            evidence=tuple(evidence),
            count=len(group.failed),
            details=group.operands,
        ),
    )


def _advice(inputs: Sequence[Input], if_asked: str | None) -> str:
    calls = [call for one in inputs if (call := converted(one)) is not None]
    first = f"Call it with {' and '.join(f'`{call}`' for call in calls)}" if calls else "Call it"
    guard = ", or through the guard" if calls else " through the guard"
    asked = " AOTI_RUNTIME_CHECK_INPUTS=1 in the environment makes it raise an error instead." if if_asked else ""
    return f"{first}{guard}.{asked}"


def converted(one: Input) -> str | None:
    """The call that gives an input the layout it was made for; None if none does."""
    if one.strides == contiguous_strides(one.sizes):
        return f"{one.name}.contiguous()"
    for name in _FORMATS:
        if format_order(name, len(one.sizes)) is not None and one.strides == format_strides(one.sizes, name):
            return f"{one.name}.contiguous(memory_format=torch.{name})"
    return None
