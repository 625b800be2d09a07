"""What contiguous() costs: time, copies, waiting and memory."""

import time

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.results.numbers import byte_count, count, share

_CALLS = 20


def run(bench: Bench, size: int) -> None:
    """A square matrix, and its transpose."""
    x = bench.randn(size, size)
    _views(bench, x)
    times = bench.compare(
        "contiguous() of a matrix",
        {
            "x.contiguous()": lambda: x.contiguous(),
            "x.t().contiguous().t()": lambda: x.t().contiguous().t(),
        },
    )
    copies = len(times.records["x.contiguous()"].copies)
    bench.expect("C35", "`x.contiguous()` of a contiguous tensor copies", copies > 0, count(copies, "copy", "copies"))
    text = "the copy of `x.t()` is a memcpy"
    kernels = times.records["x.t().contiguous().t()"].kernels
    if kernels:
        bench.expect("C35", text, any("memcpy" in name.lower() for name in kernels), ", ".join(kernels))
    else:
        bench.untested("C35", text, "no kernel of a GPU was seen")
    _waits(bench, x)
    _memory(bench, x)


def _views(bench: Bench, x: Tensor) -> None:
    def views() -> list[Tensor]:
        return [
            x.t(),
            x[::2],
            x[:, 1:],
            x.view(-1),
            x.unsqueeze(0).expand(3, *x.shape),
            x.permute(1, 0),
            x.narrow(1, 0, 2),
            x.unfold(0, 2, 1),
            x.diagonal(),
        ]

    made = len(views())
    copies = len(bench.record(views).copies)
    bench.expect("C34", f"{made} ways to look at a tensor copy nothing", copies == 0, count(copies, "copy", "copies"))


def _waits(bench: Bench, x: Tensor) -> None:
    text = "it returns only when the work that was queued before it is done"
    if not bench.on_gpu:
        bench.untested("C36", text, "a CPU queues nothing")
        return
    waited = 0.0
    for _ in range(2):  # the first time loads kernels
        bench.device.wait()
        begin = time.perf_counter()
        for _ in range(_CALLS):
            torch.mm(x, x)
        x.t().contiguous()
        returned = time.perf_counter()
        bench.device.wait()
        waited = (returned - begin) / (time.perf_counter() - begin)
    bench.expect("C36", text, waited > 0.5, f"it returned after {share(waited)} of the time")


def _memory(bench: Bench, x: Tensor) -> None:
    text = f"{_CALLS} copies, each dropped before the next, make torch reserve more of a GPU's memory than one does"
    if not bench.on_gpu:
        bench.untested("C37", text, "it takes the memory of a GPU")
        return
    x.t().contiguous()
    one = torch.cuda.memory_reserved()
    for _ in range(_CALLS):
        x.t().contiguous()
    more = torch.cuda.memory_reserved() - one
    bench.expect("C37", text, more > 0, f"{byte_count(more)} more")


EXPERIMENT = Experiment(
    name="contiguous-costs",
    title="What contiguous() costs",
    method="`contiguous()` of a matrix and of its transpose: time and copies, whether the call waits for work queued "
    "before it, and on a GPU what copies take that are made and dropped one after the other.",
    claims={
        "C34": Claim(
            "2.3",
            "torch prefers views, which copy nothing.",
            "Reshaping, slicing and reordering only write new sizes, strides and offsets.",
        ),
        "C35": Claim(
            "2.3",
            "Every `.contiguous()` is a `cudaMemcpyAsync`.",
            "Of a contiguous tensor it does nothing. Otherwise it is one strided copy kernel.",
        ),
        "C36": Claim(
            "2.3",
            "`.contiguous()` brings in a point of synchronisation.",
            "PyTorch's cuda/Copy.cu queues a copy on one device on the current stream, as any kernel is; the host goes "
            "on.",
        ),
        "C37": Claim(
            "2.3",
            "`.contiguous()` fragments memory.",
            "It costs memory of the tensor's size while both live. What is given back stays with torch's "
            "allocator, for the next that asks.",
        ),
    },
    run=run,
    cpu={"size": 1024},
    cuda={"size": 4096},
    quick={"size": 512},
)
