"""SW504 compiled-strides: what is compiled gives other strides than eager mode, or fails because an operator does.

What it means
    The same values lie elsewhere in memory: code behind the call that views the result, hands its address to a kernel
    or sends it to other ranks may fail or take other values in the compiled program than in eager mode. The same
    fault can raise inside of the graph: `expected size 3==3, stride 12==3`.

Why it happens
    While tracing, operators run on tensors without data, by a second implementation that only says sizes and strides
    (a fake or meta kernel). Where that promises other strides than the real kernel gives, everything behind is
    compiled for a layout that never comes. Layout optimization may also give gradients of convolutions as
    channels_last.

How to fix it
    `reshape` in the place of `view` behind the operator; `.contiguous()` on its input or on its result, if the layout
    matters there. An operator of your own: let its fake kernel allocate as the real one does.

When to ignore it
    If nothing behind the call looks at strides.
"""

from collections.abc import Iterator

from stridewise.checks.rule import Problem, finding
from stridewise.compiled.facts import Facts
from stridewise.findings import Finding, Severity

SEVERITY: Severity = "warning"
WAY = "compile"
FIRES = (
    """
import torch

@torch.library.custom_op("sw504_example::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).contiguous()

@twice.register_fake
def _(x):
    return torch.empty_like(x)

def op(x):
    return twice(x)

def subject():
    return {"fn": op, "args": (torch.randn(6, 4).t(),), "compare": False}
""",
)
QUIET = (
    """
import torch

@torch.library.custom_op("sw504_healthy::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).contiguous()

@twice.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)

def op(x):
    return twice(x)

def subject():
    return {"fn": op, "args": (torch.randn(6, 4).t(),), "compare": False}
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    """One for results that lie otherwise, one for an operator that makes the compiled program fail."""
    evidence = tuple(
        f"{promise.op}: its fake kernel promises strides {promise.promised.strides}, its result has"
        f" {promise.given.strides}, for sizes {promise.given.sizes}"
        for promise in facts.promises[:4]
    )
    places = [promise.site for promise in facts.promises if promise.site.file is not None]
    functions = [graph.function for graph in facts.result.graphs]
    if facts.failed is not None and facts.promises:
        first = facts.promises[0]
        message = (
            f"The compiled program raises, and eager mode does not: {facts.failed.rstrip('.')}. `{first.op}` gives"
            " other strides than its fake kernel promises."
        )
        advice = (
            "Use `reshape` in the place of `view` behind it, or call `.contiguous()` on its input; of an operator of"
            " your own, let the fake kernel allocate as the real one does."
        )
        yield finding(
            __name__,
            Problem(places[0] if places else first.site, message, advice, evidence, "error", details=(first.op,)),
        )
    differing = [output for output in facts.result.outputs if not output.same]
    if not differing:
        return
    names = ", ".join(output.name for output in differing[:4])
    more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
    message = f"Compiled, {names}{more} lies in memory otherwise than in eager mode."
    rows = tuple(f"{output.name}: eager {output.eager}, compiled {output.compiled.strides}" for output in differing[:4])
    only_gradients = all(output.name.startswith("gradient") for output in differing)
    advice = (
        "Let nothing behind the step rely on the strides of gradients, or call `.contiguous()` on them."
        if only_gradients
        else "Call `.contiguous()` on the result where its layout matters, and `reshape` instead of `view` behind it."
    )
    site = next(iter((*places, *functions)), None)
    problem = Problem(site or facts.result.graphs[0].function, message, advice, (*rows, *evidence), details=(names,))
    yield finding(__name__, problem)
