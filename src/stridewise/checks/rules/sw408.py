"""SW408 broken-contract: a function was given a tensor in a layout that it says it can't take.

What it means
    The function is decorated with `expect_layout`, and a tensor in its arguments, or a gradient that came into its
    backward, has other strides than that asks for. Nothing was computed: the error comes before the function runs.

Why it happens
    Kernels that take a data pointer, or an operator of C++ or Triton that derives strides from sizes, read other
    elements than the caller means, or read and write outside of a view, unless a tensor lies in memory as they take for
    granted. A `transpose`, a slice, an `expand`, the gradient of a `sum()` or another memory format is enough; a batch
    of one can hide it, since dimensions of size 1 do not count.

How to fix it
    Write what the message says at the call, or better where the tensor left its layout, which a recording shows:
    `with stridewise.record(): ...`. With `mode="convert"` the function makes the copy itself. A kernel that is handed
    the strides needs no contract.

When to ignore it
    Never while the kernel behind it is as it is: the contract is there because it gives wrong values. If the kernel
    takes the layout by now, take the kind out of the decorator.
"""

from __future__ import annotations

from msgspec import Struct

from stridewise.checks.contracts.kinds import Kind, cure, fault
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described
from stridewise.findings import Finding, Severity, Site
from stridewise.layout import Layout

SEVERITY: Severity = "error"
WAY = "contract"

FIRES = (
    """
import torch
from stridewise.checks.contracts import expect_layout

@expect_layout(x="contiguous")
def double(x):
    return x * 2

def program():
    double(torch.randn(3, 4).t())
""",
    """
import torch
from stridewise.checks.contracts import expect_layout

@expect_layout(grads="contiguous")
def double(x):
    return x * 2

def program():
    double(torch.randn(3, 4, requires_grad=True)).sum().backward()
""",
    """
import torch
from stridewise.checks.contracts import expect_layout

class Scale(torch.nn.Module):
    @expect_layout(image="channels_last")
    def forward(self, image):
        return image * 2

def program():
    Scale()(torch.randn(2, 3, 4, 4))
""",
)
QUIET = (
    """
import torch
from stridewise.checks.contracts import expect_layout

@expect_layout(x="contiguous", mode="convert")
def double(x):
    return x * 2

def program():
    assert double(torch.randn(3, 4).t()).is_contiguous()
""",
    # A dimension of size 1 may have any stride.
    """
import torch
from stridewise.checks.contracts import expect_layout

@expect_layout(x="contiguous")
def double(x):
    return x * 2

def program():
    double(torch.randn(1, 4).t())
""",
)


class Broken(Struct, frozen=True):
    """A tensor that is not what a contract asks for."""

    function: str
    argument: str
    """As the signature has it, with a path into containers; or `the gradient of output 0`."""
    kind: Kind
    given: Layout | None
    """None if it has no strides: `instead` says what it is."""
    other: Layout | None = None
    """Of the argument that it was to be laid out as."""
    instead: str = ""
    is_gradient: bool = False
    can_convert: bool = True
    """The contract would accept `mode="convert"` for it."""
    site: Site = Site()
    """Where the function was called."""
    origin: Site | None = None
    """Where the tensor left its layout, if a recording shows that."""


def judge(broken: Broken) -> Finding:
    """The finding for a tensor that breaks a contract."""
    return finding(
        __name__,
        Problem(
            site=broken.site,
            message=given_line(broken),
            advice=advice_line(broken),
            evidence=(why_line(broken),),
            origin=broken.origin,
            details=(broken.function, broken.argument, broken.kind.name),
        ),
    )


def given_line(broken: Broken) -> str:
    """Which function, which argument, what it needs and what it got."""
    got = described(broken.given) if broken.given is not None else broken.instead
    return f"`{broken.function}` needs {_named(broken)} to be {broken.kind.shown}; it got one that is {got}."


def why_line(broken: Broken) -> str:
    """The dimension at fault, and where the tensor left its layout."""
    if broken.given is None:
        return "It has no strides, and the function reads its memory."
    text = fault(broken.kind, broken.given, broken.other)
    origin = broken.origin
    if origin is None:
        return text
    if origin.file is None:
        return f"{text} Already {origin.where} came without it."
    what = f": `{origin.expression}`" if origin.expression else ""
    return f"{text} It left that layout at {origin.where}{what}."


def advice_line(broken: Broken) -> str:
    """What to write."""
    convert = 'mode="convert" in the contract' if broken.can_convert else ""
    if broken.is_gradient:
        made = cure(broken.kind, "grad", broken.given, broken.other)
        write = f"Make it so in the backward, `{made}`" if made else "Change what comes behind the function"
        return f"{write}, or write {convert}." if convert else f"{write}."
    if broken.given is None:
        return f"Write `{broken.argument}.to_dense()` in the call."
    made = cure(broken.kind, broken.argument, broken.given, broken.other)
    write = f"Write `{made}` in the call" if made else "Pass a tensor that fulfils it"
    return f"{write}, or {convert}." if convert else f"{write}."


def _named(broken: Broken) -> str:
    return broken.argument if broken.is_gradient else f"`{broken.argument}`"
