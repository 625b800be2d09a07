"""torch.compile over code that it was told to leave alone."""

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.generated import can_compile, copies, generated, launches
from stridewise.results.numbers import count


def product(x: Tensor, w: Tensor) -> Tensor:
    """Its first operand has no unit stride: compiled, it is copied."""
    return x[:, ::2] @ w


def run(bench: Bench, side: int) -> None:
    """The product inside a larger function, compiled and left alone."""
    if not can_compile(bench, EXPERIMENT.claims):
        return
    wide, square = bench.randn(side, 2 * side), bench.randn(side, side)
    alone = torch._dynamo.disable(product)
    compiled = generated(lambda x, w: torch.relu(product(x, w) + 1), wide, square)
    left = generated(lambda x, w: torch.relu(alone(x, w) + 1), wide, square)
    numbers = {"compiled": copies(compiled), "under torch._dynamo.disable": copies(left)}
    bench.count("Copies that are generated for `x[:, ::2] @ w`", "copies", numbers)
    if not copies(compiled):
        bench.untested("C133", "a disabled function is given the copy all the same", "compiled it is given none either")
        return
    text = "a disabled function is given the copy all the same"
    bench.expect(
        "C133",
        text,
        copies(left) > 0,
        f"{count(copies(left), 'copy', 'copies')}, and {copies(compiled)} without disable",
    )
    library = [each.name for each in launches(left) if each.kind == "extern"]
    text = "its product is in the generated code"
    bench.expect("C133", text, bool(library), ", ".join(library) or "no library call is in it")


EXPERIMENT = Experiment(
    name="compile-disable",
    title="Code that is left alone",
    method="Copies in the code that torch.compile generates for a function, and for the same function with its product "
    "under `torch._dynamo.disable`.",
    claims={
        "C133": Claim(
            "6.3",
            "The copies that inductor puts in can't be kept out with `torch._dynamo.disable()`.",
            "What is disabled runs in eager mode: no code and no copy is generated for it. What eager operators copy "
            "by themselves they copy still.",
        ),
    },
    run=run,
    cpu={"side": 64},
)
