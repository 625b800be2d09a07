"""The harness that the other tests of ranks stand on."""

import os

import pytest
import torch
import torch.distributed as dist

from .world import RankFailed, ends, world


def summed(rank: int, of: int) -> float:
    x = torch.full((3,), float(rank + of))
    dist.all_reduce(x)
    return float(x[0])


def fails_on_the_last(rank: int) -> int:
    if rank == 1:
        raise ValueError("not here")
    return rank


def dies_on_the_last(rank: int) -> int:
    if rank == 1:
        os._exit(9)
    return rank


def never_meets(rank: int) -> None:
    if rank == 0:
        dist.barrier()
    else:
        raise ValueError("does not come")


@pytest.mark.parametrize("size", [2, 4])
def test_it_gives_what_each_rank_returned(size: int) -> None:
    assert world(size, summed, 1) == [float(size * (size + 1) // 2)] * size


def test_it_says_which_rank_failed() -> None:
    with pytest.raises(RankFailed, match=r"rank 1: (.|\n)*not here"):
        world(2, fails_on_the_last)


def test_it_says_how_a_rank_died() -> None:
    assert ends(2, dies_on_the_last) == [(True, 0), (False, "ended with status 9")]


def test_a_rank_that_waits_for_a_failed_one_is_ended() -> None:
    assert [ok for ok, _ in ends(2, never_meets)] == [False, False]
