"""A kernel that is given `data_ptr()`, and the assertion in front of it."""

import sysconfig
import tempfile
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stridewise.lab import cpp
from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment

_BINDING = """
#include <pybind11/pybind11.h>
extern "C" void twice(const float* input, float* output, long size) {
    for (long at = 0; at < size; ++at) output[at] = 2.0f * input[at];
}
PYBIND11_MODULE(pointers, module) { module.def("twice", &twice); }
"""
_GUARDED = """
def guarded(value, kernel):
    assert value.is_contiguous(), "must be contiguous"
    return kernel(value)
"""


def run(bench: Bench, rows: int, columns: int) -> None:
    """Kernels here are of a few lines of Python, which read a tensor's storage as theirs would its memory."""
    dense = bench.randn(rows, columns)
    view = dense.t()
    _pointers(bench)

    plain, optimized = (_guarded(optimize) for optimize in (0, 1))
    refused = _refuses(plain, view)
    bench.expect("C118", "the assertion stops a strided tensor", refused, "it does" if refused else "it does not")
    still = _refuses(optimized, view)
    bench.expect(
        "C118", "with `python -O` too", still, "it does" if still else "the kernel runs, on the wrong elements"
    )
    right = torch.equal(linear(dense), 2 * dense)
    bench.expect(
        "C118", "what passes it lies in memory row by row", right, "all elements are right" if right else "it does not"
    )

    kernels = {"reads on from the pointer": _registered(linear), "is given the strides": _registered(strided)}
    wrong = {name: int((kernel(view) != 2 * view).sum()) for name, kernel in kernels.items()}
    bench.count("Wrong elements of a kernel on a transposed tensor", "elements", wrong)
    for name, elements in wrong.items():
        said = f"{elements} of {view.numel()} elements are wrong"
        bench.expect("C119", f"a kernel that {name} needs a contiguous tensor", elements > 0, said)


def linear(value: Tensor) -> Tensor:
    """A kernel that reads as many elements as there are, one behind the other."""
    return 2 * value.as_strided((value.numel(),), (1,)).view(value.shape)


def strided(value: Tensor) -> Tensor:
    """A kernel that finds each element by the strides."""
    row, column = value.stride()
    rows, columns = (torch.arange(size, device=value.device) for size in value.shape)
    memory = value.as_strided((value.untyped_storage().nbytes() // value.element_size(),), (1,), 0)
    return 2 * memory[value.storage_offset() + rows[:, None] * row + columns * column]


def _registered(kernel: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """As an operator of torch, which hands over the tensors that the kernel sees."""
    operator: Callable[[Tensor], Tensor] = torch.library.custom_op(
        f"stridewise_lab::{kernel.__name__}", kernel, mutates_args=()
    )
    return operator


def _guarded(optimize: int) -> Any:
    """The article's wrapper, compiled as Python does with `-O` or without."""
    names: dict[str, Any] = {}
    exec(compile(_GUARDED, "guarded", "exec", optimize=optimize), names)
    return names["guarded"]


def _refuses(guarded: Any, value: Tensor) -> bool:
    try:
        guarded(value, linear)
    except AssertionError:
        return True
    return False


def _pointers(bench: Bench) -> None:
    """A C function of float pointers, bound with pybind11 and given integers."""
    text = "a function of `const float*` that is given `data_ptr()` reads and writes the tensors"
    if bench.quick:
        bench.untested("C117", text, "left out of a quick run: it has to be compiled")
        return
    value, output = torch.arange(1.0, 5.0), torch.zeros(4)
    with tempfile.TemporaryDirectory(prefix="stridewise-lab-") as folder:
        library = Path(folder, "pointers.so")
        why = _built(library)
        if why is not None:
            bench.untested("C117", text, why)
            return
        try:
            _imported(library).twice(value.data_ptr(), output.data_ptr(), len(value))
            said = f"of {value.tolist()} it makes {output.tolist()}, without an error"
        except TypeError as error:
            said = f"it is refused: {str(error).splitlines()[0]}"
    bench.expect("C117", text, torch.equal(output, 2 * value), said)


def _built(library: Path) -> str | None:
    """Why the binding could not be built, with the pybind11 that torch has; None if it was."""
    from torch.utils.cpp_extension import include_paths

    headers = [f"-I{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
    return cpp.build(_BINDING, library, "-shared", "-fPIC", *headers)


def _imported(library: Path) -> Any:
    loader = ExtensionFileLoader("pointers", str(library))
    module = module_from_spec(ModuleSpec("pointers", loader, origin=str(library)))
    loader.exec_module(module)
    return module


EXPERIMENT = Experiment(
    name="pointer-argument",
    title="Kernels that are given a pointer",
    method="The article's binding, compiled in a full run; its assertion, with and without Python's `-O`; and kernels "
    "that use the strides or don't, registered as operators of torch.",
    claims={
        "C117": Claim(
            "5.3",
            'Export a kernel as `extern "C"` with `const float*` arguments, and give it `data_ptr()` from Python.',
            "pybind11 takes the integer for a number, and hands over the address of a temporary float: the output "
            "stays as it was. Take tensors, check them, and ask them for their pointers in C++.",
        ),
        "C118": Claim(
            "5.3",
            "`assert value.is_contiguous()` in Python is a contract from end to end.",
            "`python -O` leaves assertions out. Raise an error, or check in C++.",
        ),
        "C119": Claim(
            "5.3",
            "A kernel of your own has to deal with contiguity.",
            "It has to if it counts on it. One that is given the strides does not.",
        ),
    },
    run=run,
    cpu={"rows": 64, "columns": 48},
)
