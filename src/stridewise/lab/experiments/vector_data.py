"""Whether the elements of a std::vector lie beside each other without reserve()."""

import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from stridewise.lab import cpp
from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment

_PROGRAM = """
#include <cstddef>
#include <cstdio>
#include <vector>

int main() {
    std::vector<int> grown;
    for (int i = 0; i < 1000; ++i) grown.push_back(i);
    int beside = 0;
    for (std::size_t i = 1; i < grown.size(); ++i)
        beside += &grown[i] == &grown[i - 1] + 1 && grown.data()[i] == static_cast<int>(i);
    std::printf("%d", beside);
}
"""


def run(bench: Bench) -> None:
    """Tensors stand beside it in the plot."""
    numbers = torch.arange(1000, device=bench.device.place)
    beside = {
        "torch.arange(1000)": _beside(numbers),
        "torch.arange(2000)[::2]": _beside(torch.arange(2000, device=bench.device.place)[::2]),
    }
    text = "some of 1000 elements, pushed back without reserve(), don't lie behind the one before"
    found = "left out of a quick run: it has to be compiled" if bench.quick else elements_beside()
    if isinstance(found, str):
        bench.untested("C43", text, found)
    else:
        beside["std::vector, no reserve()"] = found
        bench.expect("C43", text, found < 999, f"{found} of 999 do")
    bench.count("Elements that lie right behind the one before", "elements", beside)


def elements_beside() -> int | str:
    """Of the 999 behind the first of a vector that grew by itself; or why that can't be told."""
    with tempfile.TemporaryDirectory(prefix="stridewise-lab-") as folder:
        program = Path(folder, "vector")
        why = cpp.build(_PROGRAM, program)
        return why or int(subprocess.run([str(program)], capture_output=True, check=True).stdout)


def _beside(tensor: Tensor) -> int:
    return len(tensor) - 1 if tensor.stride(0) == 1 else 0


EXPERIMENT = Experiment(
    name="vector-data",
    title="std::vector",
    method="A C++ program pushes 1000 numbers into a vector, and compares the addresses of neighbours.",
    claims={
        "C43": Claim(
            "2.3",
            "`std::vector::data()` is contiguous only after `reserve()`, as a tensor is only after `contiguous()`.",
            "A vector is always contiguous, with access in constant time; `reserve()` only saves moves as it grows.",
        )
    },
    run=run,
)
