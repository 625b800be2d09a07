"""Which cases are run: those that a kernel can fail in, the most telling first, and not too many."""

import pytest
from msgspec.structs import replace

from stridewise.checks.operators.case import Arrangement, Case, Described, Operand
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.plan import MOST_CASES, kind_of, plan

X = Operand("x", "input", (2, 3, 4), "float32", is_float=True, requires_grad=False)
Y = replace(X, name="y")
IMAGE = replace(X, name="image", sizes=(2, 3, 4, 5))


def described(*operands, **fields):
    usual = Described(
        op="op",
        operands=operands,
        outputs=("output",),
        differentiable=True,
        random=False,
        noise=0.0,
        tolerance=1e-5,
        tolerance_words="",
        magnitudes={},
        has_fake=True,
    )
    return replace(usual, **fields)


def kinds(cases):
    return {tuple(kind_of(each) for each in case.arrangements.values()) for case in cases}


def test_each_operand_alone_comes_before_all_together():
    cases = plan(described(X, Y), Options())
    assert cases[0] == Case()
    alone = [at for at, case in enumerate(cases) if case.aspect == "values" and len(case.arrangements) == 1]
    together = [at for at, case in enumerate(cases) if len(case.arrangements) == 2]
    sized = [at for at, case in enumerate(cases) if case.sizes]
    assert max(at for at in alone if not cases[at].sizes) < min(together)
    assert max(together) < min(sized)


def test_every_kind_of_layout_is_among_them():
    cases = plan(described(IMAGE), Options())
    names = [each.name for case in cases for each in case.arrangements.values()]
    wanted = ["channels_last", "::2", "1:-1", "chunk", "expanded over dimension", "windows", "one element into"]
    assert [word for word in wanted if not any(word in name for name in names)] == []
    for small in (0, 1):
        assert any(small in sizes for case in cases for sizes in case.sizes.values())


def test_operands_are_mixed():
    cases = plan(described(X, Y), Options())
    both = kinds(case for case in cases if len(case.arrangements) == 2)
    assert {("permuted", "permuted"), ("permuted", "gaps"), ("gaps", "permuted"), ("expanded", "permuted")} <= both


@pytest.mark.parametrize("role", ["in place", "out"])
def test_what_is_written_shares_no_elements(role):
    cases = plan(described(X, replace(Y, role=role)), Options())
    given = [case.arrangements["y"] for case in cases if "y" in case.arrangements]
    assert given
    assert all(arrangement.writable for arrangement in given)


def test_gradients_come_in_every_layout():
    cases = plan(described(X), Options())
    alone = {case.gradient.name for case in cases if case.gradient and not case.arrangements}
    assert {"contiguous", "expanded, as behind sum()", "transposed", "a part of a cat on the last dimension"} <= alone
    assert any(case.gradient and case.arrangements for case in cases)


@pytest.mark.parametrize(
    ("fields", "options", "missing"),
    [
        ({"differentiable": False}, Options(second_order=True), {"gradient", "second order"}),
        ({"random": True}, Options(second_order=True), {"gradient", "second order"}),
        ({"has_fake": False}, Options(), {"fake", "second order"}),
        ({}, Options(), {"second order"}),
        ({}, Options(second_order=True), set()),
    ],
)
def test_only_what_can_be_compared_is_run(fields, options, missing):
    every = {"values", "gradient", "second order", "fake"}
    assert {case.aspect for case in plan(described(X, **fields), options)} == every - missing


def test_none_is_run_twice():
    cases = plan(described(X, Y), Options(second_order=True))
    assert len({repr(case) for case in cases}) == len(cases)


def test_there_is_an_end():
    many = [replace(IMAGE, name=f"x{at}") for at in range(24)]
    cases = plan(described(*many), Options(second_order=True))
    assert len(cases) == MOST_CASES
    assert {name for case in cases for name in case.arrangements} == {operand.name for operand in many}


@pytest.mark.parametrize(
    ("arrangement", "kind"),
    [
        (Arrangement("", order=(1, 0)), "permuted"),
        (Arrangement("", steps=(1, 2)), "gaps"),
        (Arrangement("", after=(0, 3)), "gaps"),
        (Arrangement("", order=(1, 0), before=(0, 1)), "permuted with gaps"),
        (Arrangement("", expanded=(0,)), "expanded"),
        (Arrangement("", windows=0), "windows"),
        (Arrangement("", odd_ones=True), "odd strides of size 1"),
        (Arrangement("", offset=1), "offset"),
    ],
)
def test_kinds(arrangement, kind):
    assert kind_of(arrangement) == kind
