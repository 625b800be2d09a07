"""The result of an elementwise operation has the strides that torch's kernels choose."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.layout import Layout, LayoutError, broadcast_sizes, clone, contiguous_strides, elementwise

from .chains import layout_of, views

KERNELS = {1: torch.neg, 2: torch.add, 3: torch.addcmul}


@st.composite
def operands(draw: st.DrawFn, count: int | None = None) -> list[torch.Tensor]:
    """Make operands that broadcast: of equal sizes or not, alike in their order or not, dense or not."""
    sizes = draw(st.lists(st.sampled_from((1, 2, 3, 1, 2, 3, 4, 0)), max_size=5))
    orders = draw(st.lists(st.permutations(range(len(sizes))), min_size=1, max_size=2))
    equal = draw(st.booleans())
    return [
        draw(strided_operand(sizes if equal else draw(broadcastable(sizes)), draw(st.sampled_from(orders))))
        for _ in range(count or draw(st.integers(1, 3)))
    ]


def broadcastable(sizes: list[int]) -> st.SearchStrategy[list[int]]:
    ones = st.tuples(*(st.sampled_from((size, size, 1)) for size in sizes))
    return st.builds(lambda kept, cut: list(kept)[cut:], ones, st.integers(0, len(sizes)))


@st.composite
def strided_operand(draw: st.DrawFn, sizes: list[int], order: list[int]) -> torch.Tensor:
    """Make memory in `order` of dimensions, then leave gaps, repeat dimensions, or shift size-1 strides."""
    order = [dim for dim in order if dim < len(sizes)]
    kinds = [draw(st.sampled_from(("dense", "dense", "dense", "gap", "repeat", "odd"))) for _ in sizes]
    if draw(st.booleans()):
        kinds = ["dense" for _ in sizes]
    strides, step = [0] * len(sizes), 1
    for dim in order:
        if kinds[dim] == "gap":
            step *= 2
        strides[dim] = 0 if kinds[dim] == "repeat" else step
        step *= max(sizes[dim], 1)
        if sizes[dim] == 1 and kinds[dim] == "odd":
            strides[dim] = draw(st.integers(0, 40))
    return torch.zeros(step + 1).as_strided(sizes, strides)


@settings(max_examples=900)
@given(operands())
def test_result_strides(tensors):
    result = KERNELS[len(tensors)](*tensors)
    assert elementwise([layout_of(tensor) for tensor in tensors]) == layout_of(result)


@settings(max_examples=200)
@given(operands(count=2), st.sampled_from((torch.float64, torch.int32)))
def test_an_operand_of_another_dtype_is_converted_first(tensors, dtype):
    tensors[0] = tensors[0].to(dtype)
    result = torch.add(*tensors)
    given = [layout_of(tensor) if tensor.dtype == result.dtype else clone(layout_of(tensor)) for tensor in tensors]
    assert elementwise(given) == layout_of(result)


@settings(max_examples=200)
@given(views(), st.booleans())
def test_result_strides_of_views(tensor, with_number):
    result = tensor + 1 if with_number else tensor.neg()
    assert elementwise([layout_of(tensor), *[Layout((), ())] * with_number]) == layout_of(result)


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(0, 3), max_size=4).map(tuple), min_size=1, max_size=3))
def test_broadcast_sizes(sizes):
    try:
        expected = tuple(torch.broadcast_shapes(*sizes))
    except RuntimeError:
        with pytest.raises(LayoutError):
            broadcast_sizes(sizes)
    else:
        assert broadcast_sizes(sizes) == expected


def test_the_first_operand_decides():
    nchw = Layout((2, 3, 4, 5), contiguous_strides((2, 3, 4, 5)))
    nhwc = Layout((2, 3, 4, 5), (60, 1, 15, 3))
    assert elementwise([nchw, nhwc]).strides == nchw.strides
    assert elementwise([nhwc, nchw]).strides == nhwc.strides


def test_no_operand():
    with pytest.raises(LayoutError, match="no operands"):
        elementwise([])
