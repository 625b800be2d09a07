"""Arrays are judged as torch judges them, without asking it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stridewise.checks.data import check_array
from stridewise.errors import InputError

_slices = st.builds(
    slice,
    st.none() | st.integers(-4, 4),
    st.none() | st.integers(-4, 4),
    st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]),
)


def is_taken(array: NDArray[np.float64]) -> bool:
    try:
        torch.from_numpy(array)
    except ValueError:
        return False
    return True


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.data())
def test_slices(sizes: list[int], data: st.DataObject) -> None:
    whole = np.zeros(sizes)
    view = whole[tuple(data.draw(_slices) for _ in sizes)]
    found = check_array(view)
    assert (not found) == is_taken(view)
    assert is_taken(view.copy())  # the advice
    assert not check_array(view.copy())


@pytest.mark.parametrize("count", [0, 1, 4])
def test_fields_of_packed_records(count: int) -> None:
    field = np.zeros(count, dtype=[("a", "u1"), ("b", "f4")])["b"]
    assert (not check_array(field)) == is_taken(field)


def test_what_it_says() -> None:
    image = np.zeros((8, 6, 3), np.uint8)[:, ::-1]
    (found,) = check_array(image, "image")
    assert found.code == "SW217"
    assert found.severity == "error"
    assert found.message == (
        "image, (8, 6, 3) of uint8 with strides (18, -3, 1) bytes, runs backwards over dimension 1: `from_numpy`, "
        "`as_tensor` and `default_collate` raise, and `from_dlpack` may abort the process."
    )
    assert found.site.file is not None
    assert found.site.file.endswith("test_arrays.py")


def test_ascontiguousarray_keeps_what_runs_backwards_over_one_position() -> None:
    """So the advice is `copy()`."""
    row = np.zeros((4, 3))[::-1][:1]
    (found,) = check_array(row)
    assert found.advice is not None
    assert "np.ascontiguousarray" in found.advice
    assert not is_taken(np.ascontiguousarray(row))
    assert "from_dlpack" not in found.message
    assert torch.from_dlpack(row).shape == (1, 3)


def test_no_array() -> None:
    with pytest.raises(InputError, match="the array is a list"):
        check_array([1, 2])
