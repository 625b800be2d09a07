"""What to look for in generated code."""

import os

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.generated import can_compile, code, generated, launches
from stridewise.results.compiled import Compiled

VARIABLE = "TORCHINDUCTOR_CUDAGRAPHS"


def run(bench: Bench, side: int, channels: int) -> None:
    """Programs that are given copies, and one that asks for its own; the first with and without CUDA graphs."""
    if not can_compile(bench, EXPERIMENT.claims):
        return
    wide, square = bench.randn(side, 2 * side), bench.randn(side, side)
    conv = nn.Conv2d(channels, channels, 3).to(bench.device.place).eval()
    hidden = {
        "x[:, ::2] @ w": generated(_product, wide, square),
        "conv2d": generated(lambda x: torch.relu(conv(x)), bench.randn(2, channels, side, side)),
    }
    asked = generated(lambda x, w: x[:, ::2].contiguous() @ w, wide, square)
    names = {program: _copying(found) for program, found in hidden.items()}
    for program, kernels in names.items():
        if kernels:
            said = any("contiguous" in name for name in kernels)
            bench.expect("C116", f"the kernel that copies for `{program}` says contiguous", said, ", ".join(kernels))
            said = "contiguous" in code(hidden[program])
            bench.expect(
                "C116", f"the code of `{program}` says it somewhere", said, "it does" if said else "it does not"
            )
    own = _copying(asked)
    if own:
        said = any("contiguous" in name for name in own)
        bench.expect("C116", "the kernel of a `.contiguous()` of the program says it", said, ", ".join(own))
    if not own and not any(names.values()):
        bench.untested("C116", "the kernels that copy say contiguous", "torch.compile copies nothing here")
    found = {"given copies": sum(code(each).count("contiguous") for each in hidden.values())}
    found["asks for a copy"] = code(asked).count("contiguous")
    bench.count("How often generated code says contiguous", "times", found)
    _graphs(bench, wide, square)


def _graphs(bench: Bench, wide: Tensor, square: Tensor) -> None:
    """What the setting for CUDA graphs is, and whether kernels are others without them."""
    from torch._inductor import config

    on, off = "CUDA graphs are on unless they are switched off", "switched off, other kernels are generated"
    if VARIABLE in os.environ:
        for text in (on, off):
            bench.untested("C115", text, f"{VARIABLE} is set here")
        return
    bench.expect("C115", on, bool(config.triton.cudagraphs), f"triton.cudagraphs is {config.triton.cudagraphs}")
    kernels = []
    for graphs in (True, False):
        with config.patch({"triton.cudagraphs": graphs}):
            kernels.append(_kernels(generated(_product, wide, square)))
    same = kernels[0] == kernels[1]
    bench.expect("C115", off, not same, "the same kernels" if same else "other kernels")


def _kernels(found: Compiled) -> list[str]:
    """Lines of code in front of what calls them; without comments, which have a number that counts compilations."""
    lines = code(found).partition("async_compile.wait(")[0].splitlines()
    return [line for line in lines if not line.lstrip().startswith("#")]


def _product(x: Tensor, w: Tensor) -> Tensor:
    return x[:, ::2] @ w


def _copying(found: Compiled) -> list[str]:
    """Names of the kernels that copy."""
    return [launch.name for launch in launches(found) if launch.copies]


EXPERIMENT = Experiment(
    name="compile-names",
    title="Searching generated code",
    method="The code that torch.compile generates for programs that are given copies, and for one that asks for its "
    "own, is searched; and kernels are generated with CUDA graphs switched on, and off.",
    claims={
        "C115": Claim(
            "5.2",
            "`torch._inductor.config.triton.cudagraphs = False` makes inductor write Triton kernels that can be read.",
            "They are off by default, and change nothing in the kernels. `TORCH_LOGS=output_code` prints them.",
        ),
        "C116": Claim(
            "5.2",
            "A search for `contiguous` in the kernels finds where barriers were put.",
            "Kernels that copy are named after the library call that they copy for, or after `clone`. The word stands "
            "only in a comment, for a `.contiguous()` of the program itself. Look for kernels in front of "
            "`extern_kernels`.",
        ),
    },
    run=run,
    cpu={"side": 32, "channels": 8},
    cuda={"side": 64, "channels": 64},
)
