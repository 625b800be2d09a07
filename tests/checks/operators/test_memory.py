"""Tensors in watched memory: they hold their values, and every write around them shows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise.checks.operators.case import Arrangement
from stridewise.checks.operators.grid import CONTIGUOUS, grid
from stridewise.checks.operators.memory import Watched, arranged_values, canaries

VALUES = torch.arange(1.0, 13).reshape(3, 4)
SIZES = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)


@given(SIZES, st.sampled_from([torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16]))
def test_each_layout_holds_the_values(sizes, dtype):
    count = torch.Size(sizes).numel()
    values = torch.arange(count).reshape(sizes).to(dtype)
    for arrangement in (CONTIGUOUS, *grid(sizes, read_only=True)):
        own = arranged_values(values, arrangement)
        watched = Watched(own, arrangement, 0)
        assert torch.equal(watched.tensor, own)
        assert torch.equal(watched.values(), own)
        assert not watched.damage()
        assert not watched.is_changed()


@given(SIZES)
def test_values_that_are_shared_are_the_same_however_often_they_are_laid_out(sizes):
    values = torch.arange(torch.Size(sizes).numel()).reshape(sizes)
    for arrangement in grid(sizes, read_only=True):
        once = arranged_values(values, arrangement)
        assert torch.equal(arranged_values(once, arrangement), once)


@pytest.mark.parametrize("arrangement", grid((3, 4), read_only=False), ids=lambda arrangement: arrangement.name)
def test_writes_around_it_show_and_its_own_do_not(arrangement):
    watched = Watched(VALUES, arrangement, 0)
    watched.tensor.mul_(2)
    assert watched.is_changed()
    assert not watched.damage()
    memory = watched.tensor.as_strided((watched.tensor.untyped_storage().nbytes() // 4,), (1,), 0)
    memory[watched.tensor.storage_offset() - 1] = 7
    memory[-1] = 7
    assert watched.damage().in_front == 1
    assert watched.damage().behind == 1
    assert watched.damage().words == "1 element in front of it and 1 element behind it were written"


def test_writes_between_its_elements_show():
    watched = Watched(VALUES, Arrangement("x[:, ::2]", steps=(1, 2), after=(0, 1)), 0)
    watched.tensor.as_strided((1,), (1,), watched.tensor.storage_offset() + 1).fill_(0)
    assert watched.damage().words == "1 element between its own was written"


def test_nan_that_stays_is_no_write():
    watched = Watched(torch.full((2,), torch.nan), CONTIGUOUS, 0)
    assert not watched.is_changed()


def test_canaries_of_fractions_are_none_of_the_values():
    for fill in (0, 1):
        assert not torch.isin(canaries(VALUES, 8, fill), VALUES).any()
    assert not torch.equal(canaries(VALUES, 8, 0), canaries(VALUES, 8, 1))


def test_canaries_of_indices_are_valid_ones():
    indices = torch.tensor([3, 0, 2])
    assert torch.isin(canaries(indices, 9, 0), indices).all()


@pytest.mark.parametrize(
    "values", [torch.full((3,), torch.inf), torch.full((3,), 3e38), torch.empty(0)], ids=["inf", "huge", "empty"]
)
def test_canaries_are_finite(values):
    assert torch.isfinite(canaries(values, 4, 0)).all()
