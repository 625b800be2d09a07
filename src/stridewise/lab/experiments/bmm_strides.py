"""bmm over the strides of an operand: which are passed on, and which are copied."""

from functools import partial
from itertools import product

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.copy_in_front import copy_in_front
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried
from stridewise.results.numbers import count

Pair = tuple[str, int]
"""A layout of the matrices, and the step between them."""


def run(bench: Bench, batch: int, rows: int, width: int) -> None:
    """All pairs of a layout of the matrices and a step between them; then the times of some."""
    operands = _operands(bench, batch, rows, width)
    keys = bench.randn(batch, width, rows)
    refused = {pair for pair, each in operands.items() if isinstance(tried(partial(torch.bmm, each, keys)), Refused)}
    taken = [pair for pair in operands if pair not in refused]
    ops = bench.record(lambda: [torch.bmm(operands[pair], keys) for pair in taken]).ops
    _enumerated(bench, operands, dict(zip(taken, copies_by_product(ops), strict=True)), refused)

    q = bench.randn(rows, batch, width).transpose(0, 1)
    innermost = q.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    times = bench.compare(
        "bmm over the strides of one operand",
        {
            "batch and rows swapped": lambda: torch.bmm(q, keys),
            "batch and rows swapped, `.contiguous()` in front": lambda: torch.bmm(q.contiguous(), keys),
            "batch innermost": lambda: torch.bmm(innermost, keys),
            "batch innermost, `.contiguous()` in front": lambda: torch.bmm(innermost.contiguous(), keys),
        },
    )
    for arm in ("batch and rows swapped", "batch innermost"):
        bench.predict("C88", times.faster(f"{arm}, `.contiguous()` in front", than=arm))
    seen = times.records["batch and rows swapped"]
    for arm in ("batch and rows swapped", "batch innermost"):
        text, launched = f"{arm}: it launches a kernel for each matrix", len(times.records[arm].kernels)
        if bench.on_gpu:
            bench.expect("C55", text, launched >= batch, f"{launched} for {batch} matrices")
        else:
            bench.untested("C55", text, "it takes the kernels of a GPU")
    bench.untested("C53", "`cublasGemmBatched` is what is called", "no trace names the library's functions")
    _overlap(bench, q, keys)
    text = f"the matrices of `q.transpose(0, 1)` have the strides ({width}, 1)"
    bench.expect("C60", text, q.stride()[1:] == (width, 1), q.stride()[1:])
    flag, leading = gemm_operand(q) or ("none", 0)
    refusal = times.refusal("batch and rows swapped")
    said = f"flag {flag}, leading dimension {leading}; {refusal or count(len(seen.hidden), 'copy', 'copies')}"
    bench.expect("C60", "they can't be passed on as they are", refusal is not None or bool(seen.hidden), said)


def _operands(bench: Bench, batch: int, rows: int, width: int) -> dict[Pair, Tensor]:
    """Views of one storage, which may overlap: they are only read."""
    inner = {
        "row-major": (width, 1),
        "row-major, rows apart": (batch * width, 1),
        "column-major": (1, rows),
        "column-major, columns apart": (1, 2 * rows),
        "every second column": (2 * width, 2),
        "batch innermost": (width * batch, batch),
        "one row repeated": (0, 1),
    }
    steps = (rows * width, 0, 1, width, 2 * rows * width)
    room = bench.randn(4 * batch * rows * width + 2 * rows * width * batch)
    return {
        (name, step): room.as_strided((batch, rows, width), (step, *inner[name]))
        for name, step in product(inner, steps)
    }


def _enumerated(bench: Bench, operands: dict[Pair, Tensor], made: dict[Pair, int], refused: set[Pair]) -> None:
    """What the copies of every operand say; one that is refused isn't passed on as it is, either."""
    by_layout: dict[str, list[Pair]] = {}
    for pair in operands:
        by_layout.setdefault(pair[0], []).append(pair)
    most = {name: max(made.get(pair, 0) for pair in pairs) for name, pairs in by_layout.items()}
    bench.count("Copies that bmm makes of one operand", "copies", most)
    kept = {pair: pair not in refused and made[pair] == 0 for pair in operands}
    also = f"; {count(len(refused), 'operand')} refused" if refused else ""
    for name in ("row-major, rows apart", "column-major, columns apart"):
        text = f"{name}: such matrices are copied"
        if bench.on_gpu:
            passed_on = all(kept[pair] for pair in by_layout[name])
            bench.expect("C54", text, not passed_on, f"{count(most[name], 'copy', 'copies')}{also}")
        else:
            bench.untested("C54", text, "cuBLAS takes a GPU; the CPU's copies are in the table")
    alike = [name for name, pairs in by_layout.items() if len({kept[pair] for pair in pairs}) == 1]
    text = "the strides inside of the matrices alone decide what is copied, never the step between them"
    said = f"so for {len(alike)} of {len(by_layout)} layouts of the matrices{also}"
    bench.expect("C59", text, len(alike) == len(by_layout), said)
    agreed = sum((gemm_operand(operand) is not None) == kept[pair] for pair, operand in operands.items())
    text = "what is copied is what the rule for a matrix says"
    bench.expect("C59", text, agreed == len(operands), f"for {agreed} of {len(operands)} operands{also}")


def gemm_operand(operand: Tensor) -> tuple[str, int] | None:
    """The flag and leading dimension with which cuBLAS could read the matrices of a 3-D operand; None: copied first.

    One of the two inner strides has to be 1, and the other has to reach over the matrix; the step between the matrices
    is free. By `prepare_batch_matrix_for_cublas` of torch's Blas.cpp; the flags are those of a row-major result.
    """
    _, rows, columns = operand.shape
    _, row, column = operand.stride()
    if column == 1 and row >= max(1, columns):
        return "N", row
    if row == 1 and column >= max(1, rows):
        return "T", column
    return None


def copies_by_product(ops: list[str]) -> list[int]:
    """How many copies each `aten::bmm` made, in the order of their calls."""
    found: list[int] = []
    for op in ops:
        if op == "aten::bmm":
            found.append(0)
        elif op == "aten::copy_" and found:
            found[-1] += 1
    return found


def _overlap(bench: Bench, q: Tensor, keys: Tensor) -> None:
    """Whether calls one behind the other wait for the device."""
    if not bench.on_gpu:
        text = "a loop of products takes as long as one that waits for the device each time"
        bench.untested("C56", text, "it takes a device that calls don't wait for")
        return

    def looped(wait: bool) -> list[Tensor]:
        found = []
        for one, other in zip(q, keys, strict=True):
            found.append(torch.mm(one, other))
            if wait:
                bench.device.wait()
        return found

    free, waiting = "one after the other", "one after the other, waiting for each"
    times = bench.compare("A product for each matrix", {free: lambda: looped(False), waiting: lambda: looped(True)})
    bench.predict("C56", times.no_slower(waiting, than=free))


EXPERIMENT = Experiment(
    name="bmm-strides",
    title="bmm over the strides of an operand",
    method="Every pair of seven layouts of the matrices and five steps between them: the copies that bmm makes, and "
    "what torch's rule for cuBLAS says of these strides.",
    claims={
        "C53": Claim(
            "3.2",
            "`torch.bmm` is cuBLAS's `cublasGemmBatched`.",
            "PyTorch's CUDABlas.cpp calls the strided variant: one pointer, a leading dimension and a step between "
            "the matrices.",
        ),
        "C54": Claim(
            "3.2",
            "It takes column-major matrices that are contiguous, and no others.",
            "A flag says row-major or column-major, and the leading dimension lets rows lie apart: PyTorch's Blas.cpp "
            "hands both on.",
        ),
        "C55": Claim(
            "3.2",
            "Of operands that are not contiguous it makes a loop of one `cublasSgemm` a matrix.",
            "PyTorch's Blas.cpp passes strides on if one of the two inner ones is 1 and the other large enough. "
            "Otherwise it copies the operand once; on the CPU torch copies matrix by matrix.",
        ),
        "C56": Claim(
            "3.2",
            "Launches that follow one another can't overlap: each call synchronizes.",
            "Launches are asynchronous; many small ones cost their launches, no synchronization.",
        ),
        "C59": Claim(
            "3.2",
            "What `bmm` looks at are the matrices, not the tensor as a whole.",
            "It is so; that is why a transposed batch costs nothing.",
        ),
        "C60": Claim(
            "3.2",
            "The matrices of `q.transpose(0, 1)` have the strides (D, 1), which is not column-major, and that is what "
            "slows `bmm` down.",
            "Neighbouring rows are one whole sample apart, and row-major is as good as column-major: they are passed "
            "on.",
        ),
        "C88": copy_in_front(
            "It pays for bmm where neither inner stride is 1, on the CPU, which copies such matrices one by one.",
        ),
    },
    run=run,
    cpu={"batch": 64, "rows": 128, "width": 64},
    quick={"batch": 32, "rows": 64, "width": 64},
)
