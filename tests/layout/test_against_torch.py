"""Whatever the algebra says of a layout or makes of one, torch says and makes too."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.layout import (
    LayoutError,
    chunk,
    classes,
    clone,
    contiguous,
    flatten,
    is_contiguous,
    is_expanded,
    is_gapped,
    is_non_overlapping_and_dense,
    is_overlapping,
    reshape,
    span,
    split,
    storage_needed,
    stored,
    to,
    unbind,
)

from .chains import DTYPE_OPS, MEMORY_FORMATS, OPS, REFUSALS, SOURCE_DTYPES, apply, dims, layout_of, view_sizes, views


@settings(max_examples=40)
@pytest.mark.parametrize("name", OPS)
@given(data=st.data())
def test_view_operation(name, data):
    tensor = data.draw(views(max_length=2))
    apply(OPS[name], tensor, data.draw(OPS[name].arguments(layout_of(tensor))))


@settings(max_examples=100)
@pytest.mark.parametrize("name", DTYPE_OPS)
@given(data=st.data())
def test_view_as_other_elements(name, data):
    view = data.draw(views(max_length=3) | channel_pairs())
    storage = torch.zeros(view.untyped_storage().nbytes(), dtype=SOURCE_DTYPES[name])
    tensor = storage.as_strided(view.shape, view.stride(), view.storage_offset())
    apply(DTYPE_OPS[name], tensor, data.draw(DTYPE_OPS[name].arguments(layout_of(tensor))))


@settings(max_examples=400)
@given(views())
def test_predicates(tensor):
    layout = layout_of(tensor)
    for name, memory_format in MEMORY_FORMATS.items():
        assert is_contiguous(layout, name) == tensor.is_contiguous(memory_format=memory_format)
        assert (name in classes(layout)) == is_contiguous(layout, name)
    assert is_non_overlapping_and_dense(layout) == torch.ops.aten.is_non_overlapping_and_dense.default(tensor)


@settings(max_examples=400)
@given(views())
def test_memory(tensor):
    layout = layout_of(tensor)
    # Which elements are addressed, and by how many indices: counted on the storage itself.
    storage = torch.zeros(tensor.untyped_storage().nbytes(), dtype=torch.int64)
    addresses = torch.arange(storage.numel()).as_strided(layout.sizes, layout.strides, layout.offset).flatten()
    storage.index_add_(0, addresses, torch.ones_like(addresses))
    used = storage.nonzero().flatten().tolist()
    assert stored(layout) == len(used)
    assert span(layout) == (used[-1] - used[0] + 1 if used else 0)
    assert storage_needed(layout) == (used[-1] + 1 if used else 0)
    assert is_overlapping(layout) == bool((storage > 1).any())
    assert is_gapped(layout) == (len(used) < span(layout))
    assert not is_expanded(layout) or is_overlapping(layout)


@settings(max_examples=400)
@given(views(), st.data())
def test_reshape_copies_where_torch_does(tensor, data):
    sizes = data.draw(view_sizes(layout_of(tensor)))
    check_outcome(tensor, lambda x: x.reshape(sizes), lambda a: reshape(a, sizes))


@settings(max_examples=200)
@given(views(), st.data())
def test_flatten_copies_where_torch_does(tensor, data):
    start, end = data.draw(dims(layout_of(tensor))), data.draw(dims(layout_of(tensor)))
    check_outcome(tensor, lambda x: x.flatten(start, end), lambda a: flatten(a, start, end))


@settings(max_examples=300)
@given(views())
def test_new_memory_like_another(tensor):
    layout = layout_of(tensor)
    assert clone(layout) == layout_of(tensor.clone())
    assert clone(layout) == layout_of(torch.empty_like(tensor))
    assert clone(layout) == layout_of(tensor.to(torch.float32))


@settings(max_examples=150)
@pytest.mark.parametrize("name", MEMORY_FORMATS)
@given(tensor=views())
def test_new_memory_in_a_format(name, tensor):
    memory_format = MEMORY_FORMATS[name]
    check_outcome(tensor, lambda x: x.contiguous(memory_format=memory_format), lambda a: contiguous(a, name))
    # This pins suggested_format as well: `to` copies unless C++'s suggest_memory_format says that format.
    check_outcome(tensor, lambda x: x.to(memory_format=memory_format), lambda a: to(a, name))
    try:
        cloned = layout_of(tensor.clone(memory_format=memory_format))
    except REFUSALS:
        with pytest.raises(LayoutError):
            clone(layout_of(tensor), name)
    else:
        assert clone(layout_of(tensor), name) == cloned
        assert cloned == layout_of(torch.empty_like(tensor, memory_format=memory_format))


@settings(max_examples=200)
@given(views(), st.data())
def test_parts(tensor, data):
    dim = data.draw(dims(layout_of(tensor)))
    size = data.draw(st.integers(-1, 4) | st.lists(st.integers(0, 3), max_size=3))
    count = data.draw(st.integers(0, 5))
    for on_tensor, on_layout in (
        (lambda x: torch.split(x, size, dim), lambda a: split(a, size, dim)),
        (lambda x: torch.chunk(x, count, dim), lambda a: chunk(a, count, dim)),
        (lambda x: torch.unbind(x, dim), lambda a: unbind(a, dim)),
    ):
        try:
            expected = tuple(layout_of(part) for part in on_tensor(tensor))
        except REFUSALS:
            with pytest.raises(LayoutError):
                on_layout(layout_of(tensor))
        else:
            assert on_layout(layout_of(tensor)) == expected


@st.composite
def channel_pairs(draw):
    """Make layouts that elements of another size mostly fit."""
    strides = draw(st.lists(st.sampled_from((2, 4, 4, 8, 12)), max_size=3))
    sizes = draw(st.tuples(*[st.integers(0, 3)] * len(strides)))
    last = draw(st.sampled_from((1, 2, 2, 4, 4, 8)))
    return torch.zeros(200).as_strided((*sizes, last), (*strides, 1), draw(st.sampled_from((0, 4, 2, 1))))


def check_outcome(tensor, on_tensor, on_layout):
    try:
        result = on_tensor(tensor)
    except REFUSALS:
        with pytest.raises(LayoutError):
            on_layout(layout_of(tensor))
        return
    outcome = on_layout(layout_of(tensor))
    assert outcome.layout == layout_of(result)
    assert outcome.copied == (result.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr())
