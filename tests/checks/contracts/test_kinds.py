"""Kinds of layout: the quick tests against the algebra and torch, and copies that fulfil them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise import layout
from stridewise.checks.contracts import kinds, same_as
from stridewise.checks.contracts.kinds import Kind, parse
from stridewise.checks.contracts.tensors import converted, fast_test, meets_when_traced
from stridewise.errors import UsageError
from stridewise.layout import Layout

NAMES = kinds.KINDS


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Permuted, sliced, stepped and expanded tensors of up to 5 dimensions, some empty."""
    sizes = draw(st.lists(st.integers(1, 4), max_size=5))
    tensor = torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)
    tensor = tensor.permute(draw(st.permutations(range(len(sizes)))))
    for dim in range(len(sizes)):
        step, start = draw(st.integers(1, 2)), draw(st.integers(0, 1))
        tensor = tensor[(slice(None),) * dim + (slice(start, None, step),)]
        if tensor.size(dim) == 1 and draw(st.booleans()):
            tensor = tensor.expand([3 if at == dim else -1 for at in range(len(sizes))])
    if len(sizes) and draw(st.booleans()):
        tensor = tensor.unfold(-1, min(2, tensor.size(-1)), 1) if len(sizes) < 5 else tensor
    return tensor


def layout_of(tensor: torch.Tensor) -> Layout:
    return Layout(tuple(tensor.shape), tensor.stride())


@given(tensors())
def test_numbers_say_what_the_algebra_says(tensor):
    found = layout_of(tensor)
    assert kinds.are_dense(tensor.shape, tensor.stride()) == layout.is_non_overlapping_and_dense(found)
    if kinds.are_nested(tensor.shape, tensor.stride()):
        assert not layout.is_overlapping(found)


@given(tensors(), st.sampled_from(NAMES))
def test_the_quick_test_never_passes_what_the_algebra_refuses(tensor, name):
    test = fast_test(Kind(name))
    assert test is not None
    meets = kinds.meets(name, layout_of(tensor))
    try:
        quick = test(tensor)
    except IndexError:  # the last stride of a tensor without dimensions: look closer
        quick = False
    assert meets or not quick
    assert meets_when_traced(name, tensor, None) or not quick
    if tensor.dim():
        assert quick == meets


@given(tensors(), st.sampled_from(NAMES))
def test_a_copy_fulfils_the_kind(tensor, name):
    found = layout_of(tensor)
    if not kinds.can_be_made(Kind(name), found):
        return
    made = converted(tensor, name)
    assert torch.equal(made, tensor)
    if not (tensor.numel() == 0 and name.startswith("channels")):
        assert kinds.meets(name, layout_of(made))
    assert made._version == 0


@given(tensors(), tensors())
def test_a_copy_is_laid_out_as_another(tensor, other):
    kind = Kind("same_as", other="other")
    values = torch.arange(other.numel(), dtype=torch.float32).reshape(other.shape)
    if not kinds.can_be_made(kind, layout_of(values), layout_of(other)):
        return
    made = converted(values, "same_as", other)
    assert torch.equal(made, values)
    assert kinds.meets("same_as", layout_of(made), layout_of(other))


@given(tensors(), st.sampled_from(NAMES))
def test_a_fault_is_named_for_all_that_break_a_kind(tensor, name):
    found = layout_of(tensor)
    if not kinds.meets(name, found):
        said = kinds.fault(Kind(name), found)
        assert not said[0].islower()
        assert said.endswith(".")
        assert "\n" not in said


@given(tensors(), st.sampled_from(("contiguous", "dense", "last_stride_1", "channels_last")))
def test_what_the_message_says_to_write_cures_it(tensor, name):
    found = layout_of(tensor)
    text = kinds.cure(Kind(name), "x", found)
    if kinds.meets(name, found) or text is None or tensor.numel() == 0:
        return
    made = eval(text, {"x": tensor, "torch": torch})
    assert kinds.meets(name, layout_of(made))


def test_the_last_stride_counts_at_size_1_too():
    one = torch.empty_strided((4, 1), (1, 2))
    assert one.is_contiguous()
    assert one.contiguous().stride(-1) == 2, "row 47: contiguous() gives it back as it is"
    assert not kinds.meets("last_stride_1", layout_of(one))
    assert converted(one, "last_stride_1").stride(-1) == 1
    assert "though its size is 1" in kinds.fault(Kind("last_stride_1"), layout_of(one))


@pytest.mark.parametrize("asks", ["contigous", "", "same_as", "same_as=", 3, None, torch.Tensor, ["contiguous"]])
def test_what_is_no_kind_is_refused_in_one_line(asks):
    with pytest.raises(UsageError, match="is no kind of layout; known are contiguous") as caught:
        parse("x", asks)
    assert "\n" not in str(caught.value)


def test_both_forms_of_same_as():
    assert parse("w", same_as("x")) == parse("w", "same_as = x") == Kind("same_as", other="x")
