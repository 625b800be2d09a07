"""`compare_ranks`: whether named tensors have the same layout on all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from stridewise.checks.ranks.agreement import Link, encoded, number_of
from stridewise.checks.rules import sw202
from stridewise.checks.words import layout_of
from stridewise.errors import UsageError
from stridewise.findings import Finding

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup


def _what() -> str:
    return "compare_ranks"


def compare_ranks(
    named_tensors: Iterable[tuple[str, Tensor]], process_group: ProcessGroup | None = None, *, timeout: float = 30.0
) -> tuple[Finding, ...]:
    """The tensors whose strides, sizes or dtypes differ between ranks (SW202); the same on every rank.

    `named_tensors`: pairs as `model.named_parameters()` gives them; names stand in messages as they are. Every rank of
    `process_group` (the default group if None) calls it. Layouts are compared over a gloo group apart from the job's,
    whatever its backend. Raises `UsageError` if there is no group, or, after `timeout` seconds, one that names the
    ranks that did not come.
    """
    import torch.distributed as dist

    if process_group is None:
        if not (dist.is_available() and dist.is_initialized()):
            raise UsageError(
                "compare_ranks: there is no process group", expected="torch.distributed.init_process_group was called"
            )
        process_group = dist.group.WORLD
        assert process_group is not None
    held = {}
    for name, tensor in named_tensors:
        given = layout_of(tensor)
        if given is not None:
            held[name] = sw202.Held(name, given.sizes, given.strides, str(tensor.dtype).removeprefix("torch."))
    link = Link(process_group, timeout, _what)
    if link.agree(number_of(tuple((name, each.key) for name, each in held.items())), False, _what):
        return ()
    every = link.exchange(encoded(held), _what)
    return sw202.in_model(
        {rank: msgspec.json.decode(text, type=dict[str, sw202.Held]) for rank, text in enumerate(every)}
    )
