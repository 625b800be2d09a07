"""Pinning host memory of strided tensors, and what is moved to a GPU then."""

from collections.abc import Callable

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.results.numbers import byte_count

_NO_GPU = "it takes a GPU to move something to"


def run(bench: Bench, rows: int, columns: int) -> None:
    """A dense tensor in another order, and a view with gaps."""
    host = {
        "contiguous": torch.randn(rows, columns),
        "transposed": torch.randn(columns, rows).t(),
        "every eighth column": torch.randn(rows, 8 * columns)[:, ::8],
    }
    _memory(bench, host)
    near = host["transposed"].to(bench.device.place)
    tidy = near.contiguous()
    ordered = tidy.stride() == (columns, 1) and tidy.data_ptr() != near.data_ptr()
    bench.expect(
        "C128", "it puts a tensor's elements in order", ordered, f"strides {near.stride()} become {tidy.stride()}"
    )
    moved = host["transposed"].contiguous()
    said = f"of a tensor in host memory, {host['transposed'].stride()} become {moved.stride()}"
    bench.expect("C128", "memory of a GPU alone is put in order", moved.stride() == host["transposed"].stride(), said)
    bench.compare("`.contiguous()` on this device", {"contiguous": tidy.contiguous, "transposed": near.contiguous})
    _moves(bench, host)


def _memory(bench: Bench, host: dict[str, Tensor]) -> None:
    """What pinning takes."""
    dense, gapped = "a transposed tensor takes the pinned memory of a contiguous one", "so does one with gaps"
    least = "to pin a view with gaps as it is takes no more pinned memory than to make it contiguous first"
    if not bench.on_gpu:
        for claim, text in (("C127", dense), ("C127", gapped), ("C129", least)):
            bench.untested(claim, text, "torch pins memory only beside a GPU")
        return
    taken = {name: _pinned(value).untyped_storage().nbytes() for name, value in host.items()}
    bench.count("Memory that pinning takes", "B", taken)
    small, same, large = taken.values()
    said = f"{byte_count(same)}, and {byte_count(small)} of a contiguous one"
    bench.expect("C127", dense, same == small, said)
    said = f"{byte_count(large)}, and {byte_count(small)} if made contiguous first"
    bench.expect("C127", gapped, large == small, said)
    bench.expect("C129", least, large <= small, said)


def _moves(bench: Bench, host: dict[str, Tensor]) -> None:
    """Orders of pinning, moving and copying."""
    if not bench.on_gpu:
        bench.untested("C129", "moving it is as fast as if it were made contiguous first", _NO_GPU)
        bench.untested("C130", "without `contiguous()` behind the move, pinning gains nothing", _NO_GPU)
        return

    def to(value: Tensor) -> Tensor:
        return value.to(bench.device.place, non_blocking=True)

    def mover(value: Tensor) -> Callable[[], Tensor]:
        return lambda: to(value)

    gapped, transposed = host["every eighth column"], host["transposed"]
    gaps = bench.compare(
        "A view with gaps on its way to the GPU",
        {
            "pinned, moved, made contiguous": lambda: to(_pinned(gapped)).contiguous(),
            "made contiguous, pinned, moved": lambda: to(_pinned(gapped.contiguous())),
        },
    )
    gain = bench.compare(
        "Moving a transposed tensor",
        {"move of a pinned tensor": mover(_pinned(transposed)), "move of one that is not pinned": mover(transposed)},
    )
    bench.predict("C129", gaps.no_slower("pinned, moved, made contiguous", than="made contiguous, pinned, moved"))
    bench.predict("C130", gain.no_slower("move of one that is not pinned", than="move of a pinned tensor"))


def _pinned(value: Tensor) -> Tensor:
    """The tensor itself where torch has no GPU: a stand-in for one runs this too."""
    return value.pin_memory() if torch.cuda.is_available() else value


EXPERIMENT = Experiment(
    name="pin-memory",
    title="Pinning strided tensors",
    method="What `.contiguous()` does on this device; and beside a GPU, the storage that a tensor's pinned twin has, "
    "and the time of moves in several orders.",
    claims={
        "C127": Claim(
            "6.2",
            "`pin_memory()` and `contiguous()` have nothing to do with each other.",
            "For dense tensors in any order. PyTorch's Memory.cpp pins a view with its gaps, and cuda/Copy.cu moves it "
            "by way of a dense copy that is not pinned.",
        ),
        "C128": Claim(
            "6.2",
            "`contiguous()` puts memory of the GPU in order.",
            "It makes a row-major copy on the device where the tensor is, the CPU too.",
        ),
        "C129": Claim(
            "6.2",
            "The right order is to pin, to move with `non_blocking=True`, and to make contiguous on the GPU.",
            "Make a view with gaps dense first, then pin, then move. A dense tensor, channels_last too, needs no "
            "`contiguous()` at all.",
        ),
        "C130": Claim(
            "6.2",
            "Without `contiguous()` behind the move, what pinning gained is lost again.",
            "The move is over by then, and a dense tensor of any order moves as one block.",
        ),
    },
    run=run,
    cpu={"rows": 256, "columns": 256},
    cuda={"rows": 2048, "columns": 2048},
)
