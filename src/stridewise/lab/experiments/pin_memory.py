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
    pinned = {name: _pinned_bytes(value) for name, value in host.items()}
    dense = {name: _pinned_bytes(value.contiguous()) for name, value in host.items()}
    bench.count("Memory that pinning takes", "B", pinned)
    same = pinned["transposed"] == dense["transposed"]
    small, large = (byte_count(found["every eighth column"]) for found in (dense, pinned))
    gapped = f"{large}, {small} if made contiguous first"
    said = f"{byte_count(pinned['transposed'])} either way"
    bench.expect("C127", "a transposed tensor takes the pinned memory of a contiguous one", same, said)
    bench.expect("C127", "so does one with gaps", pinned["every eighth column"] == dense["every eighth column"], gapped)
    text = "to pin a view with gaps as it is takes no more pinned memory than to make it contiguous first"
    bench.expect("C129", text, pinned["every eighth column"] <= dense["every eighth column"], gapped)

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

    gapped, transposed = _pinned(host["every eighth column"]), _pinned(host["transposed"])
    packed = _pinned(host["every eighth column"].contiguous())
    gaps = bench.compare(
        "Moving a view with gaps",
        {
            "pinned, moved, made contiguous": lambda: to(gapped).contiguous(),
            "made contiguous, pinned, moved": mover(packed),
        },
    )
    gain = bench.compare(
        "Moving a transposed tensor",
        {"pinned": mover(transposed), "not pinned": mover(host["transposed"])},
    )
    bench.predict("C129", gaps.no_slower("pinned, moved, made contiguous", than="made contiguous, pinned, moved"))
    bench.predict("C130", gain.no_slower("not pinned", than="pinned"))


def _pinned(value: Tensor) -> Tensor:
    return value.pin_memory() if torch.cuda.is_available() else value


def _pinned_bytes(value: Tensor) -> int:
    """What pinning takes: room for a tensor of these sizes and strides, which is the same without a GPU."""
    room = _pinned(value) if torch.cuda.is_available() else torch.empty_strided(value.size(), value.stride())
    return room.untyped_storage().nbytes()


EXPERIMENT = Experiment(
    name="pin-memory",
    title="Pinning strided tensors",
    method="The storage that a tensor's pinned twin has: of the twin on a GPU's host, elsewhere of an empty tensor of "
    "the same strides, as torch makes it. Moves are timed on a GPU alone.",
    claims={
        "C127": Claim(
            "6.2",
            "`pin_memory()` and `contiguous()` have nothing to do with each other.",
            "For dense tensors in any order. A view's gaps are pinned with it, and it is moved by way of a dense copy "
            "that is not pinned.",
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
