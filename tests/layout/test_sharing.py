"""Whether two views share an element: counted on the storage itself."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.layout import Layout, share_elements

from .chains import layout_of, views

few = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=4)


@st.composite
def layouts(draw):
    pairs = draw(few)
    return Layout(tuple(size for size, _ in pairs), tuple(stride for _, stride in pairs), draw(st.integers(0, 30)))


def addresses(layout):
    storage = torch.arange(5000)
    return set(storage.as_strided(layout.sizes, layout.strides, layout.offset).flatten().tolist())


@settings(max_examples=500)
@given(layouts(), layouts())
def test_it_is_what_is_counted(one, other):
    want = not addresses(one).isdisjoint(addresses(other))
    assert share_elements(one, other) == share_elements(other, one) == want


@settings(max_examples=200)
@given(views(max_length=3), views(max_length=3))
def test_it_is_what_is_counted_of_views(one, other):
    one, other = layout_of(one), layout_of(other)
    assert share_elements(one, other) == (not addresses(one).isdisjoint(addresses(other)))


def test_large_columns_lie_between_each_other():
    """As the weights of a query and a key that are cut out of one matrix."""
    query = Layout((4096, 4096), (12288, 1), 0)
    key = Layout((4096, 4096), (12288, 1), 4096)
    assert not share_elements(query, key)
    assert share_elements(query, Layout((4096, 4097), (12288, 1), 8191 - 4096))
    assert not share_elements(Layout((1 << 30,), (2,)), Layout((1 << 30,), (2,), 1))


def test_a_search_without_end_counts_as_sharing():
    strides = tuple(1_000_003 * 2 + 2 * index * index for index in range(12))
    odd = Layout((50,) * 12, strides, 0)
    assert share_elements(odd, Layout((), (), sum(strides) * 13 + 1))
