"""SW202 ranks-disagree: the same tensor has other strides on one rank than on another.

What it means
    Two ranks hand tensors of one shape to a collective, or hold a parameter of one shape, with unequal strides: one is
    channels_last and the other is not. A collective that moves memory flat pairs elements by their place in memory,
    so values land at, or are added to, other indices. There is no error.

Why it happens
    Backends take every dense tensor and send its bytes. One rank loaded a checkpoint, ran `to(memory_format=...)`, or
    got its tensor out of an operator that chose another layout. DistributedDataParallel compares strides once, when
    it is made; there one rank raises and the others see a closed connection.

How to fix it
    Bring the tensor into one layout on all ranks before the call: `.contiguous()`, or
    `.contiguous(memory_format=torch.channels_last)`. `guard_collectives(mode="convert", across_ranks=True)` does that
    where ranks differ.

When to ignore it
    Where the tensors are not the same thing, and each rank takes apart what it gets.
"""

from msgspec import Struct

from stridewise import layout
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described
from stridewise.findings import Finding, Severity, Site
from stridewise.layout import Layout

SEVERITY: Severity = "error"
WAY = "guard"

_START = """
import threading
import torch
import torch.distributed as dist
from stridewise import guard_collectives

def group(rank, store):
    made = dist.ProcessGroup(store, rank, 2)
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, 2)
    made._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    return made

def program():
    # Two ranks, here in two threads of one process.
    store, errors = dist.HashStore(), []

    def rank(number):
        try:
            run(number, group(number, store))
        except Exception as error:
            errors.append(error)

    with guard_collectives(across_ranks=True):
        threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in errors:
        raise error
"""
FIRES = (
    _START
    + """
def run(rank, ranks):
    image = torch.ones(1, 3, 2, 2)
    if rank == 1:
        image = image.to(memory_format=torch.channels_last)
    ranks.allreduce([image]).wait()
""",
)
QUIET = (
    _START
    + """
def run(rank, ranks):
    image = torch.ones(1, 3, 2, 2).to(memory_format=torch.channels_last)
    ranks.allreduce([image]).wait()
    if rank == 1:
        image = image.contiguous()
    ranks.allgather([[torch.empty(1, 3, 2, 2) for _ in range(2)]], [image]).wait()
""",
)


class Held(Struct, frozen=True):
    """A tensor on one rank."""

    name: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def words(self) -> str:
        """Its layout and dtype."""
        return f"{described(Layout(self.sizes, self.strides))}, {self.dtype}"

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for tensors whose elements meet when memory is moved flat."""
        given = Layout(self.sizes, self.strides)
        if layout.is_contiguous(given):
            return layout.numel(given), None, self.dtype
        strides = tuple(stride if size > 1 else 0 for size, stride in zip(self.sizes, self.strides, strict=True))
        return self.sizes, strides, self.dtype


def in_call(site: Site, ops: dict[int, str], held: dict[int, tuple[Held, ...]]) -> Finding:
    """Ranks that called one collective with tensors that don't meet, as numbers of the group."""
    shown = f"`{' '.join((site.expression or 'A collective').split())}`"
    if len(set(ops.values())) > 1:
        message = f"{shown}: ranks are in different collectives."
    else:
        message = f"{shown} gets tensors that differ between ranks. {_harm(held)}"
    return finding(
        __name__,
        Problem(
            site,
            message,
            advice=(
                "Bring them into one layout on all ranks, as with `.contiguous()`, or let "
                '`guard_collectives(mode="convert", across_ranks=True)` do it.'
            ),
            evidence=tuple(
                f"rank {rank}: {ops[rank]}, {'; '.join(f'{each.name} {each.words}' for each in held[rank])}"
                for rank in sorted(ops)
            ),
            details=tuple(sorted(set(ops.values()))),
        ),
    )


def in_model(held: dict[int, dict[str, Held]]) -> tuple[Finding, ...]:
    """Named tensors, such as parameters, that differ between the ranks that hold them."""
    names = dict.fromkeys(name for of_rank in held.values() for name in of_rank)
    found = []
    for name in names:
        ranks = {rank: of_rank.get(name) for rank, of_rank in sorted(held.items())}
        have = {rank: each for rank, each in ranks.items() if each is not None}
        if len({each.key for each in have.values()}) == 1 and len(have) == len(ranks):
            continue
        found.append(_of_name(name, ranks, {rank: (each,) for rank, each in have.items()}))
    return tuple(found)


def _of_name(name: str, ranks: dict[int, Held | None], have: dict[int, tuple[Held, ...]]) -> Finding:
    missing = [str(rank) for rank, each in ranks.items() if each is None]
    message = f"{name} differs between ranks. {_harm(have)}"
    if missing:
        message = f"{name} is missing on rank {', '.join(missing)}."
    return finding(
        __name__,
        Problem(
            Site(module=None, expression=name),
            message,
            advice="Bring it into one layout on all ranks before it is wrapped, as with `model.to(memory_format=...)`.",
            evidence=tuple(
                f"rank {rank}: {'none' if each is None else each.words}" for rank, each in sorted(ranks.items())
            ),
        ),
    )


def _harm(held: dict[int, tuple[Held, ...]]) -> str:
    every = list(held.values())
    if len({tuple(each.dtype for each in of_rank) for of_rank in every}) > 1:
        return "Dtypes are unequal, and bytes are moved as they are."
    if len({tuple(each.sizes for each in of_rank) for of_rank in every}) > 1:
        return "Sizes are unequal."
    return "Strides are unequal: memory is moved flat, so values land at other indices, without an error."
