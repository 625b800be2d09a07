"""SW208 baked-branch: a branch of the model on a tensor's layout was decided at export, and stays so.

What it means
    The model asks for a layout in Python, `x.is_contiguous()` or `x.stride(0)`, and does one thing or another. An
    exported or traced program has only the side that the example took. For inputs in other layouts the model in eager
    mode takes the other side: the program gives other values, without an error, or raises where eager is right.

Why it happens
    torch.export and torch.jit.trace run the model once and keep the operators that were called. They guard neither
    strides nor memory formats. torch.compile guards both: it compiles again for another layout, and is right.

How to fix it
    Let both sides give the same result, or make the layout the same in front of the branch:
    `x = x.clone(memory_format=torch.contiguous_format)`. torch.jit.script keeps the branch.

When to ignore it
    When inputs in other layouts never reach the program. The guard that `check_export` writes makes sure of it.
"""

from collections.abc import Sequence

from stridewise.checks.artefacts.facts import Asked
from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding, Severity

SEVERITY: Severity = "error"
WAY = "artefact"

_MODEL = """
import torch

class Scale(torch.nn.Module):
    def forward(self, x):
        if x.is_contiguous():
            return 2 * x
        return 3 * x

x = torch.randn(4, 6)
"""
FIRES = (
    _MODEL
    + """
def subject():
    return {"program": torch.export.export(Scale(), (x,)), "args": (x,), "model": Scale()}
""",
    _MODEL
    + """
def subject():
    return {"program": torch.jit.trace(Scale(), (x,)), "args": (x,), "model": Scale()}
""",
    """
import torch

class Flat(torch.nn.Module):
    def forward(self, x):
        return 2 * (x.view(-1) if x.is_contiguous() else x.clone(memory_format=torch.contiguous_format).view(-1))

def subject():
    x = torch.randn(4, 6)
    return {"program": torch.export.export(Flat(), (x,)), "args": (x,), "model": Flat()}
""",
)
QUIET = (
    """
import torch

class Scale(torch.nn.Module):
    def forward(self, x):
        x = x.clone(memory_format=torch.contiguous_format)
        if x.is_contiguous():
            return 2 * x
        return 3 * x

def subject():
    x = torch.randn(4, 6)
    return {"program": torch.export.export(Scale(), (x,)), "args": (x,), "model": Scale()}
""",
    """
import torch

class Same(torch.nn.Module):
    def forward(self, x):
        return torch.add(x, x) if x.is_contiguous() else 2 * x

def subject():
    x = torch.randn(4, 6)
    return {"program": torch.export.export(Same(), (x,)), "args": (x,), "model": Same()}
""",
)
_MOST = 3


def found(name: str, kind: str, seen: Sequence[tuple[str, str, Asked]], is_silent: bool, count: int) -> Finding:
    """The finding for a question. `seen` has layouts in words, what differs there, and what was asked."""
    asked = seen[0][2]
    question = " ".join((asked.site.expression or f".{asked.question}()").split())
    made = "traced" if kind == "TorchScript module" else "exported"
    ends = "gives other values than the model, and no error" if is_silent else "raises where the model is right"
    answers = f"`{question}` is {asked.home} in the layout it was made for, and {asked.other} for {seen[0][0]}"
    if asked.home == asked.other:  # memory: what the model does with it could not be seen
        answers = f"`{question}` gives the model memory, which lies otherwise for {seen[0][0]}"
    evidence = [answers]
    evidence += [f"{where}: {what}" for where, what, _ in seen[:_MOST]]
    return finding(
        __name__,
        Problem(
            asked.site,
            f"The model asks `{question}` here, and the answer was fixed when it was {made}: for layouts with another "
            f"answer `{name}` {ends}. torch.compile would compile again, and be right.",
            advice="Let the model do the same for every layout, as behind "
            "`x = x.clone(memory_format=torch.contiguous_format)`, or call the program through the guard.",
            evidence=tuple(evidence),
            severity="error" if is_silent else "warning",
            count=count,
            details=(name,),
        ),
    )
