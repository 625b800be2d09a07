"""What the operators behind numeric libraries do with strided operands."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried
from stridewise.results.numbers import count

_DENSE, _STRIDED = "contiguous", "strided"
_COPYING = {
    f"aten::{name}" for name in ("contiguous", "clone", "copy_", "empty", "empty_like", "empty_strided", "resize_")
}


def run(bench: Bench, batch: int, channels: int, side: int) -> None:
    """Images are (batch, channels, side, side), matrices have `channels` columns."""
    image = bench.randn(batch, channels, side, side)
    weight = bench.randn(channels, channels, 3, 3)
    image_last, weight_last = (each.contiguous(memory_format=torch.channels_last) for each in (image, weight))
    left, right = bench.randn(side, batch, channels), bench.randn(batch, channels, side)
    counts = torch.randint(side, (channels, side), device=bench.device.place)
    ones, target = bench.randn(channels, side), bench.randn(side, channels)
    # operator: of a contiguous operand, of a strided one
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "conv2d": (lambda: F.conv2d(image, weight), lambda: F.conv2d(image.transpose(2, 3), weight)),
        "bmm": (
            lambda: torch.bmm(left.view(batch, side, channels), right),
            lambda: torch.bmm(left.transpose(0, 1), right),
        ),
        "scatter_": (
            lambda: target.scatter_(0, counts.view(side, channels), ones.view(side, channels)),
            lambda: target.scatter_(0, counts.t(), ones.t()),
        ),
    }
    found = {
        name: bench.compare(name, {_DENSE: dense, _STRIDED: strided}, timed=False)
        for name, (dense, strided) in pairs.items()
    }
    for name, each in found.items():
        more = sorted(_computing(each.records[_STRIDED].ops) - _computing(each.records[_DENSE].ops))
        text = f"`{name}` runs other operators for a view than for a contiguous tensor, copies aside"
        bench.predict("C5", each.seen(_STRIDED, text, bool(more), ", ".join(more) or "the same operators"))
    views = {
        "mm of a transposed matrix": lambda: torch.mm(ones.t(), ones),
        "bmm of a transposed batch": pairs["bmm"][1],
        "conv2d of channels_last": lambda: F.conv2d(image_last, weight_last),
    }
    copied = {name: len(bench.record(partial(tried, call)).hidden) for name, call in views.items()}
    for name, copies in copied.items():
        text = f"{name} copies for the library"
        if bench.on_gpu:
            refused = tried(views[name])
            said = refused.said if isinstance(refused, Refused) else count(copies, "copy", "copies")
            bench.expect("C12", text, copies > 0, said)
        else:
            bench.untested("C12", text, "no GPU library runs; the CPU's copies are in the table")
    bench.untested("C13", "cuDNN's kernels copy whole blocks by memcpy", "what a kernel does inside can't be recorded")
    _who_reorders(bench, [strided for _, strided in pairs.values()], len(found["conv2d"].records[_STRIDED].hidden))
    transposed = {
        f"{name} of a transposed operand": len(found[name].records[_STRIDED].hidden) for name in ("conv2d", "scatter_")
    }
    bench.count("Copies that nobody asked for, in one call", "copies", {**copied, **transposed})


def _computing(ops: Sequence[str]) -> set[str]:
    """The operators that are there for more than copies, and for views."""
    views = {"aten::transpose", "aten::t", "aten::as_strided", "aten::view"}
    return set(ops) - _COPYING - views


def _who_reorders(bench: Bench, calls: Sequence[Callable[[], object]], copies: int) -> None:
    raised = sum(isinstance(tried(call), Refused) for call in calls)
    bench.expect("C14", "some of these raise for a view", raised > 0, f"{raised} of {len(calls)} do")
    bench.expect("C14", "`conv2d` of a transposed image reorders nothing", copies == 0, count(copies, "copy", "copies"))


EXPERIMENT = Experiment(
    name="library-strides",
    title="What libraries are handed",
    method="conv2d, bmm, mm and scatter_ of contiguous and of strided operands: the operators that run, and the "
    "copies among them, as the recorder sees both.",
    claims={
        "C5": Claim(
            "1",
            "Whether `conv2d`, `bmm` and `scatter_` take their fast path depends on `is_contiguous()`.",
            "None of them asks it. What can't be passed on as it is gets copied, and the same path is taken.",
        ),
        "C12": Claim(
            "2.1",
            "All fast GPU libraries, such as cuDNN, cuBLAS and cuSPARSE, assume contiguous memory.",
            "cuBLAS takes a leading dimension and a transpose flag (PyTorch's cuBlasCommonArgs.h); cuDNN's "
            "descriptors have strides (cudnn/Descriptors.h), and torch hands it NCHW or NHWC. A transposed matrix or "
            "a channels_last image goes in as it is.",
        ),
        "C13": Claim(
            "2.1",
            "cuDNN's convolutions move a whole contiguous block into shared memory by memcpy.",
            "A multiprocessor has 228 kB of shared memory at most (CUDA C++ Programming Guide, compute capability "
            "9.0). Kernels load tiles of input and weight into it, again and again.",
        ),
        "C14": Claim(
            "2.1",
            "torch does not reorder a tensor by itself: it raises, or gets slower in silence.",
            "It copies in silence. The price is a hidden copy, not an error and not another kernel.",
        ),
    },
    run=run,
    cpu={"batch": 8, "channels": 16, "side": 24},
)
