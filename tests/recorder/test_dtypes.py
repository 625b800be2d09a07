"""The tables of dtypes, held against torch."""

import warnings

import pytest
import torch

import stridewise
from stridewise.recording.dtypes import CPP_NAMES, ITEM_SIZES, from_cpp

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for name in dir(torch)
    if isinstance(dtype := getattr(torch, name), torch.dtype)
}
"""All that this torch has."""


def empty(name: str) -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):  # complex halves are experimental, and say so
        if name.startswith(("qint", "quint")):
            return torch._empty_affine_quantized([4, 4], scale=1.0, zero_point=0, dtype=DTYPES[name])
        return torch.empty(4, 4, dtype=DTYPES[name])


def can_be_copied(name: str) -> bool:
    try:
        empty(name).copy_(empty(name))
    except (NotImplementedError, RuntimeError):  # the narrow integers are names without kernels
        return False
    return True


COPYABLE = sorted(name for name in DTYPES if can_be_copied(name))


def test_only_names_without_kernels_can_not_be_copied() -> None:
    narrow = {f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)} | {"quint4x2", "quint2x4"}
    assert set(DTYPES) - set(COPYABLE) <= narrow


@pytest.mark.parametrize("name", COPYABLE)
def test_every_dtype_has_its_item_size(name: str) -> None:
    assert ITEM_SIZES.get(name) == DTYPES[name].itemsize


@pytest.mark.parametrize("name", COPYABLE)
def test_the_name_that_a_trace_has_for_a_dtype_is_known(name: str) -> None:
    destination, source = empty(name), empty(name)
    with stridewise.record() as recording:
        destination.copy_(source)
    [op] = recording.trace.ops.named("aten::copy_")
    types = recording.trace.ops.args[op].types
    assert [from_cpp(cpp) for cpp in types[:2]] == [name, name], types


@pytest.mark.parametrize("name", COPYABLE)
def test_a_copy_writes_its_elements_times_the_item_size(name: str) -> None:
    destination, source = empty(name), empty(name).t()
    with stridewise.record() as recording:
        destination.copy_(source)
    [copy] = stridewise.analyze(recording).copies
    assert (copy.dtype, copy.source_dtype, copy.cast) == (name, name, False)
    assert copy.bytes_written == 16 * DTYPES[name].itemsize


def test_a_cast_has_both_dtypes() -> None:
    with stridewise.record() as recording:
        torch.ones(4, 6).t().to(torch.bfloat16, memory_format=torch.contiguous_format)
    [copy] = stridewise.analyze(recording).copies
    assert (copy.source_dtype, copy.dtype, copy.cast) == ("float32", "bfloat16", True)
    assert copy.bytes_written == 24 * 2
    assert copy.bytes_moved == 24 * 4 + 24 * 2


def test_the_tables_fit_together() -> None:
    assert set(CPP_NAMES.values()) == set(ITEM_SIZES)


def test_an_unknown_name_has_no_dtype() -> None:
    assert from_cpp("") is None
    assert from_cpp("Scalar") is None
