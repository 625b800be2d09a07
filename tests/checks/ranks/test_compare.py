"""`compare_ranks` on 2 and 4 ranks, and when one of them does not come."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from stridewise.checks.ranks import compare_ranks
from stridewise.errors import UsageError
from stridewise.findings import Finding

from .world import world


def model(rank: int, last: int) -> nn.Module:
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    return made.to(memory_format=torch.channels_last) if rank == last else made


def compared(rank: int, last: int) -> tuple[Any, ...]:
    made = model(rank, last)
    before = [(name, tensor.stride(), tensor._version) for name, tensor in made.state_dict().items()]
    sequence = dist.group.WORLD._get_sequence_number_for_group()
    found = compare_ranks(made.named_parameters()), compare_ranks(made.named_buffers())
    after = [(name, tensor.stride(), tensor._version) for name, tensor in made.state_dict().items()]
    return *found, before == after and sequence == dist.group.WORLD._get_sequence_number_for_group()


@pytest.mark.parametrize("size", [2, 4])
def test_it_names_what_differs(size: int) -> None:
    for parameters, buffers, is_unchanged in world(size, compared, size - 1):
        assert [found.code for found in parameters] == ["SW202"]
        assert parameters[0].site.expression == "0.weight"  # not the one whose size-1 dimensions differ
        assert len(parameters[0].evidence) == size
        assert parameters[0].evidence[-1].startswith(f"rank {size - 1}: channels_last")
        assert buffers == ()
        assert is_unchanged


def test_equal_ranks_are_silent() -> None:
    assert all(found[:2] == ((), ()) for found in world(2, compared, -1))


def odd(rank: int) -> tuple[Finding, ...]:
    named = [("a", torch.zeros(2, 3)), ("b", torch.zeros(3, dtype=torch.float16 if rank else torch.float32))]
    return compare_ranks(named if rank else [*named, ("c", torch.zeros(1))])


def test_what_else_may_differ() -> None:
    for found in world(2, odd):
        assert [each.site.expression for each in found] == ["b", "c"]
        assert "Dtypes" in found[0].message
        assert found[1].message == "c is missing on rank 1."


def without_the_last(rank: int) -> str:
    store = dist.distributed_c10d._get_default_store()
    if rank == 2:
        store.wait(["over/0", "over/1"])
        return ""
    try:
        compare_ranks([("a", torch.zeros(2))], timeout=0.5)
    except UsageError as error:
        store.set(f"over/{rank}", "1")
        return str(error)
    return "silent"


def test_who_does_not_come_is_named() -> None:
    messages = world(3, without_the_last)
    assert all(each.startswith("compare_ranks: rank 2 did not come") for each in messages[:2])


def test_it_takes_a_group() -> None:
    with pytest.raises(UsageError, match="no process group"):
        compare_ranks([])
