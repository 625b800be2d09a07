"""SW506 elided-contiguous: a copy that the source makes is not in the exported program, which raises without it.

What it means
    `x.contiguous()` and `x.reshape(…)` copy only where they must. For the example that a program was exported with
    there was nothing to copy, so the program holds no copy, only a view. For an input in another layout, with which
    the model works in eager mode, that view raises: `view size is not compatible with input tensor's size and stride`.

Why it happens
    torch.export drops a `contiguous()` that changes nothing, and writes a `reshape` as the view that it was for the
    example. `run_decompositions` does it for more operators: `flatten`, or `linear` with three dimensions. Layouts are
    no part of what it guards, so nothing is said before the view.

How to fix it
    Copy always, `x.clone(memory_format=torch.contiguous_format)`, which stays in the program; export with an example
    in the layout that will be given; or convert inputs in front of the call, as the guard of `check_export` does.

When to ignore it
    When every caller gives the layout of the example: then nothing was lost.
"""

from collections.abc import Sequence

from stridewise.checks.artefacts.facts import Input, Node
from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding, Severity

SEVERITY: Severity = "warning"
WAY = "artefact"

FIRES = (
    """
import torch

class Flat(torch.nn.Module):
    def forward(self, x):
        return 2 * x.contiguous().view(-1)

def subject():
    x = torch.randn(4, 6)
    return {"program": torch.export.export(Flat(), (x,)), "args": (x,), "model": Flat()}
""",
    """
import torch

def subject():
    x = torch.randn(2, 3, 4)
    program = torch.export.export(torch.nn.Flatten(), (x,)).run_decompositions()
    return {"program": program, "args": (x,)}
""",
)
QUIET = (
    """
import torch

class Flat(torch.nn.Module):
    def forward(self, x):
        return 2 * x.clone(memory_format=torch.contiguous_format).view(-1)

def subject():
    x = torch.randn(4, 6)
    return {"program": torch.export.export(Flat(), (x,)), "args": (x,), "model": Flat()}
""",
    """
import torch

class Flat(torch.nn.Module):
    def forward(self, x):
        return 2 * x.view(-1)

def subject():
    x = torch.randn(4, 6)
    return {"program": torch.export.export(Flat(), (x,)), "args": (x,), "model": Flat()}
""",
)


def found(name: str, node: Node, inputs: Sequence[Input], evidence: tuple[str, ...], count: int) -> Finding:
    """The finding for a view at which a program raises."""
    made = ", ".join(f"`{one.name}` of {one.sizes} with strides {one.strides}" for one in inputs)
    line = " ".join((node.inner or node.site.text or "").split())
    if node.elided is not None and ".contiguous(" not in node.inner:
        gone = f"`{node.elided.expression}`, in front of it, had nothing to copy and is not in `{name}`"
    elif ".contiguous(" in node.inner:
        gone = f"the `contiguous()` in `{line}` had nothing to copy and is not in `{name}`"
    elif not line:
        gone = f"nothing had to be copied, and `{name}` has a view where the model copies"
    else:
        gone = f"`{line}` needed no copy and is a view in `{name}`"
    return finding(
        __name__,
        Problem(
            node.elided or node.site,
            f"For {made}, which it was exported with, {gone}: for other layouts it raises at node `{node.name}`, "
            f"{node.target}.",
            advice="Copy always, with `clone(memory_format=torch.contiguous_format)`, export with the layout that "
            "will be given, or call the program through the guard.",
            evidence=evidence,
            count=count,
            details=(name, node.name),
        ),
    )
