"""What really makes torch.compile copy."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.generated import can_compile, copies, generated, launches
from stridewise.results.compiled import Compiled, Copied
from stridewise.results.numbers import count

_ASKED = "x[:, ::2].contiguous() @ w"
"""Its copy is the program's own."""


def run(bench: Bench, channels: int, side: int, batch: int) -> None:
    """Library calls over operands that are contiguous, and over others."""
    if not can_compile(bench, EXPERIMENT.claims):
        return
    place = bench.device.place
    a, b, wide = bench.randn(side, side), bench.randn(side, side), bench.randn(side, 2 * side)
    image = bench.randn(batch, channels, side, side)
    conv = nn.Conv2d(channels, channels, 3, padding=1).to(place).eval()
    last = nn.Conv2d(channels, channels, 3, padding=1).to(place).eval()
    last.load_state_dict(conv.state_dict())
    last.weight.data = last.weight.data.contiguous(memory_format=torch.channels_last)
    dense, strided = "conv2d, all contiguous", "conv2d, all channels_last"
    programs: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "x.t() @ w": (lambda x, w: x.t() @ w, (a, b)),
        "x[:, ::2] @ w": (lambda x, w: x[:, ::2] @ w, (wide, b)),
        dense: (lambda x: torch.relu(conv(x)), (image,)),
        strided: (lambda x: torch.relu(last(x)), (image.contiguous(memory_format=torch.channels_last),)),
    }
    contiguous = {dense}
    if not bench.quick:
        programs[_ASKED] = (lambda x, w: x[:, ::2].contiguous() @ w, (wide, b))
        programs["x @ w"] = (lambda x, w: x @ w, (a, b))
        contiguous.add("x @ w")
    found = {name: generated(program, *args) for name, (program, args) in programs.items()}
    numbers = {name: copies(each) for name, each in found.items()}
    bench.count("Tensors that generated kernels only copy", "copies", numbers)

    given = {name: number for name, number in numbers.items() if name != _ASKED}
    alike = all((number > 0) == (name not in contiguous) for name, number in given.items())
    said = ", ".join(f"{name}: {number}" for name, number in given.items())
    bench.expect("C74", "copies are made where a library call gets what is not contiguous, and only there", alike, said)
    bench.expect("C74", f"{dense}, copies nothing", numbers[dense] == 0, count(numbers[dense], "copy", "copies"))
    bench.expect("C74", f"{strided}, copies something", numbers[strided] > 0, count(numbers[strided], "copy", "copies"))
    _side(bench, found[dense])
    if not bench.quick:
        runs = {name: torch.compile(programs[name][0]) for name in (dense, strided)}
        arms = {name: lambda name=name: runs[name](*programs[name][1]) for name in runs}
        bench.predict("C74", bench.compare("Compiled convolution and relu", arms).faster(dense, than=strided))


def _side(bench: Bench, found: Compiled) -> None:
    """Where the input of a convolution is converted, and into what."""
    conversions = [copied for graph in found.graphs for copied in graph.copied if copied.source.startswith("input")]
    convolution = min(
        (each.line for each in launches(found) if "convolution" in each.name and each.kind == "extern"), default=0
    )
    behind = "an input is converted behind its convolution"
    into = "what is put in makes it contiguous"
    if not conversions or not convolution:
        for text in (behind, into):
            bench.untested("C132", text, "torch.compile converts nothing here")
        return
    lines = [copied.line for copied in conversions]
    where = "behind it" if max(lines) > convolution else "in front of it"
    bench.expect("C132", behind, max(lines) > convolution, where)
    said = ", ".join(str(copied.written) for copied in conversions)
    bench.expect("C132", into, any(map(_is_contiguous, conversions)), said)


def _is_contiguous(copied: Copied) -> bool:
    if copied.written is None:
        return False
    expected = 1
    for size, stride in zip(reversed(copied.written.sizes), reversed(copied.written.strides), strict=True):
        if stride != expected:
            return False
        expected *= int(size)
    return True


EXPERIMENT = Experiment(
    name="compile-costs",
    title="What torch.compile copies for",
    method="Copies in the code that torch.compile generates for products and convolutions, of contiguous operands and "
    "of others.",
    claims={
        "C74": Claim(
            "3.4",
            "Contiguity is the line that divides what torch.compile optimizes well from what it does not.",
            "The costs lie at library calls. A product wants operands with a unit stride, which a transposed one has "
            "and every second column has not; on the CPU a convolution wants channels_last, so it is the contiguous "
            "input that is copied. New strides of an input cost a compilation.",
        ),
        "C132": Claim(
            "6.3",
            "The node that inductor puts in may come in the wrong place: behind a convolution, not in front of it.",
            "The input of a convolution is converted in front of it, and into channels_last. A copy behind one gives a "
            "result that leaves the graph the strides that it has in eager mode.",
        ),
    },
    run=run,
    cpu={"channels": 32, "side": 56, "batch": 8},
    cuda={"channels": 64, "side": 64, "batch": 16},
    quick={"channels": 16, "side": 32, "batch": 2},
)
