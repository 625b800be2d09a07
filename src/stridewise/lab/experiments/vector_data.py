"""Whether the elements of a std::vector lie beside each other without reserve()."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

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
    found = None if bench.quick else elements_beside()
    if found is None:
        bench.untested("C43", text, "left out of a quick run" if bench.quick else "there is no C++ compiler")
    else:
        beside["std::vector, no reserve()"] = found
        bench.expect("C43", text, found < 999, f"{found} of 999 do")
    bench.count("Elements that lie right behind the one before", "elements", beside)


def elements_beside() -> int | None:
    """Of the 999 behind the first of a vector that grew by itself; None if nothing here compiles C++."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "vector.cpp"), Path(folder, "vector")
        source.write_text(_PROGRAM)
        built = subprocess.run([compiler, str(source), "-o", str(program)], capture_output=True)
        if built.returncode != 0:
            return None
        return int(subprocess.run([str(program)], capture_output=True, check=True).stdout)


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
