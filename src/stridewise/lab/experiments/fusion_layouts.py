"""What a fused kernel takes: tensors of one layout, or of any."""

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.generated import can_compile, code, copies, generated, kernels
from stridewise.results.numbers import count

OPERATORS = 4
"""Of the chain."""


def chain(x: Tensor, y: Tensor) -> Tensor:
    """Four operators that work element by element."""
    return torch.relu(x * 2 + y) + 1


def run(bench: Bench, side: int) -> None:
    """The chain over pairs of layouts, and an addition whose result is not contiguous in front of relu."""
    if not can_compile(bench, EXPERIMENT.claims):
        return
    a, b = bench.randn(side, side), bench.randn(side, side)
    columns = bench.randn(side, 2 * side)[:, ::2]
    same = "both contiguous"
    pairs = {
        same: (a, b),
        "transposed, contiguous": (a.t(), b),
        "every second column, transposed": (columns, b.t()),
        "contiguous, expanded": (a, b[:1].expand(side, side)),
    }
    if not bench.quick:
        pairs |= {"contiguous, transposed": (a, b.t()), "every second column, contiguous": (columns, b)}
    small = {name: generated(chain, x, y) for name, (x, y) in pairs.items()}
    numbers = {"in eager mode": OPERATORS} | {name: kernels(found) for name, found in small.items()}
    bench.count("Kernels of `relu(x * 2 + y) + 1`", "kernels", numbers)

    bench.expect(
        "C68", f"{OPERATORS} operators become one kernel", numbers[same] == 1, count(numbers[same], "kernel", "kernels")
    )
    strided = [name for name in pairs if name != same]
    for name in strided:
        bench.expect(
            "C69",
            f"the chain over {name} takes several kernels",
            numbers[name] > 1,
            count(numbers[name], "kernel", "kernels"),
        )
        copied = copies(small[name])
        bench.expect("C131", f"the chain over {name} is given copies", copied > 0, count(copied, "copy", "copies"))
    named = [name for name in strided if "aten.contiguous" in code(small[name])]
    bench.expect("C131", "`aten.contiguous` is in the generated code", bool(named), ", ".join(named) or "in none")

    both = generated(lambda x, y: torch.relu(x + y), a.t(), b.t())
    text = "an addition whose result is not contiguous, and relu behind it, are two kernels"
    bench.expect("C70", text, kernels(both) > 1, count(kernels(both), "kernel", "kernels"))
    bench.expect("C70", "a copy is put between them", copies(both) > 0, count(copies(both), "copy", "copies"))
    if not bench.quick:
        _timed(bench, {name: pairs[name] for name in (same, "contiguous, transposed")})


def _timed(bench: Bench, pairs: dict[str, tuple[Tensor, Tensor]]) -> None:
    compiled = torch.compile(chain)
    for name, (x, y) in pairs.items():
        times = bench.compare(
            f"`relu(x * 2 + y) + 1`, {name}",
            {"eager": lambda x=x, y=y: chain(x, y), "compiled": lambda x=x, y=y: compiled(x, y)},  # type: ignore[misc]
        )
        bench.predict("C68", times.faster("compiled", than="eager"))


EXPERIMENT = Experiment(
    name="fusion-layouts",
    title="Fusion of tensors of several layouts",
    method="Kernels and copies in the code that torch.compile generates for a chain of four operators over pairs of "
    "layouts. A full run builds it and times it too.",
    claims={
        "C68": Claim(
            "3.4",
            "What inductor is for is to fuse many operators into one kernel, without memory for what is between them.",
            "Four operators that work element by element become one kernel.",
        ),
        "C69": Claim(
            "3.4",
            "Only tensors of the same layout can be fused.",
            "A fused kernel computes the address of each operand from that operand's strides: layouts may differ.",
        ),
        "C70": Claim(
            "3.4",
            "An addition whose result is not contiguous can't be fused with relu: a contiguous node comes between.",
            "They become one kernel with no copy, and the result keeps its strides.",
        ),
        "C131": Claim(
            "6.3",
            "Where inductor fuses and finds an input that is not contiguous, it puts an `aten.contiguous` in.",
            "A generated kernel reads any strides. inductor copies in front of library calls that need another "
            "layout, and no graph of it holds `aten.contiguous`: a call of `.contiguous()` is `aten.clone` in it.",
        ),
    },
    run=run,
    cpu={"side": 1024},
    cuda={"side": 4096},
    quick={"side": 64},
)
