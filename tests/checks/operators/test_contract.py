"""The weakest contract that keeps out what fails: no failing layout fulfils it, and the next weaker one some does."""

import pytest
import torch

from stridewise.checks.contracts import expect_layout
from stridewise.checks.operators.case import Arrangement, Case, Outcome
from stridewise.checks.operators.check import check_op
from stridewise.checks.operators.contract import contract_for, source_of
from stridewise.layout import Layout

from . import kernels as K

ANY = Arrangement("x")
SUM = Arrangement("expanded, as behind sum()", expanded=(-1,))


def failing(*layouts, name="x", gradient=None):
    return [
        Outcome(Case({name: ANY}, gradient=gradient), "ran", layouts={name: each} if each else {}) for each in layouts
    ]


@pytest.mark.parametrize(
    ("layouts", "kind"),
    [
        ([Layout((3, 4), (0, 1)), Layout((3, 4), (1, 1))], "non_overlapping"),
        ([Layout((3, 4), (8, 1))], "dense"),
        ([Layout((3, 4), (8, 1)), Layout((3, 4), (0, 1))], "dense"),
        ([Layout((2, 3, 4), (12, 1, 3)), Layout((2, 3, 4), (24, 8, 2))], "last_stride_1"),
        ([Layout((2, 3, 4), (12, 1, 3)), Layout((2, 3, 4), (24, 4, 1))], "contiguous"),
        ([Layout((3, 4), (1, 3))], "contiguous"),  # in 2 dimensions its last stride tells nothing of more
        ([Layout((3, 4), (8, 1)), None], "contiguous"),
    ],
)
def test_the_weakest(layouts, kind):
    assert contract_for(failing(*layouts)) == {"x": kind}


@pytest.mark.parametrize(
    "strides", [(0, 1), (8, 1), (1, 3), (8, 2)], ids=["expanded", "gaps", "permuted", "every second"]
)
def test_it_refuses_what_fails(strides):
    given = torch.zeros(64).as_strided((3, 4), strides)
    (kind,) = contract_for(failing(Layout((3, 4), strides))).values()
    with pytest.raises(Exception, match="needs `x`"):
        expect_layout(x=kind)(lambda x: x)(given)


def test_gradients_and_containers():
    assert contract_for([Outcome(Case(gradient=SUM), "ran")]) == {"grads": "contiguous"}
    assert contract_for(failing(Layout((4,), (2,)), name="states[0]")) == {"states": "dense"}


def test_none_helps_where_contiguous_operands_fail_or_have_no_name():
    assert contract_for([Outcome(Case(), "crashed")]) is None
    assert contract_for(failing(Layout((4,), (2,)), name="input 0")) is None


def test_source():
    assert source_of({"x": "dense", "grads": "contiguous"}) == (
        '@stridewise.expect_layout(x="dense", grads="contiguous", mode="convert")'
    )


@pytest.mark.parametrize(
    ("name", "contract"),
    [
        ("assumes_contiguous", 'x="contiguous"'),
        ("both_flat", 'x="dense"'),
        ("in_place_on_copy", 'x="contiguous"'),
        ("FlatBackward", 'grads="contiguous"'),
    ],
)
def test_it_is_tried(name, contract):
    fn = getattr(K, name)
    found = check_op(fn, *K.sample(), contract=True)
    assert found.contract == f'@stridewise.expect_layout({contract}, mode="convert")'
    assert found.contract_holds is True
    assert not check_op(fn, *K.sample()).ok  # what was given is as wrong as before


def test_a_right_operator_needs_none():
    found = check_op(K.copies_first, *K.sample(), contract=True)
    assert (found.contract, found.contract_holds, found.notes) == (None, None, ())


def test_it_says_so_where_none_helps():
    found = check_op(K.reads_beyond, *K.sample(), contract=True)
    assert found.contract is None
    assert "No contract of layouts keeps out what goes wrong here." in found.notes
