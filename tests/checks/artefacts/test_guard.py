"""Guards stand by themselves, and give a program the layouts that it was made for."""

import collections
import subprocess
import sys

import pytest
import torch

import stridewise
from stridewise.checks.artefacts.check import check_export
from stridewise.checks.artefacts.guarded import guarded
from stridewise.errors import UsageError

from . import models
from .models import exported

Pair = collections.namedtuple("Pair", "first second")


def flat():
    return exported(models.Flat(), torch.randn(4, 6))


def test_the_text_needs_nothing_of_ours(tmp_path):
    program = flat()
    result = check_export(program)
    torch.export.save(program, tmp_path / "flat.pt2")
    (tmp_path / "guard.py").write_text(result.guard)
    script = (
        "import sys, torch, guard\n"
        "program = guard.guard(torch.export.load('flat.pt2').module())\n"
        "x = torch.randn(6, 4).t()\n"
        "assert torch.equal(program(x), 2 * x.reshape(-1))\n"
        "assert not any(name.startswith('stridewise') for name in sys.modules)\n"
        "try:\n    guard.guard(program, 'raise')(x)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert ran.stderr == ""
    assert ran.stdout == ("input 0: sizes (4, 6) with strides (1, 4); the program was made for strides (6, 1)\n")


def test_a_guard_hands_on_what_is_as_it_was_made_for():
    seen = []
    x, y = torch.randn(4, 6), torch.randn(6, 4).t()
    call = guarded(lambda *args, **kwargs: seen.append((args, kwargs)), {"0": ((4, 6), (6, 1))})
    call(x, 3, y=y)
    assert seen[0][0][0] is x
    assert seen[0] == ((x, 3), {"y": y})


def test_containers_stay_what_they_are():
    made_for = {"0.a": ((2, 3), (3, 1)), "1.0": ((2, 3), (3, 1)), "pair.1": ((2, 3), (3, 1))}
    call = guarded(lambda *args, **kwargs: (args, kwargs), made_for)
    turned = torch.arange(6.0).reshape(3, 2).t()
    (first, second), kwargs = call({"a": turned, "b": turned}, [turned], pair=Pair(turned, turned))
    assert first["a"].stride() == second[0].stride() == kwargs["pair"].second.stride() == (3, 1)
    assert first["b"] is turned
    assert kwargs["pair"].first is turned
    assert torch.equal(first["a"], turned)


@pytest.mark.parametrize(
    ("sizes", "made", "strides"),
    [
        ((4, 6), ((4, 6), (1, 4)), (1, 4)),
        ((5, 3), ((4, 6), (1, 4)), (1, 5)),
        ((2, 3, 5, 4), ((1, 3, 8, 8), (192, 1, 24, 3)), (60, 1, 12, 3)),
    ],
)
def test_other_sizes_get_the_same_order_of_dimensions(sizes, made, strides):
    given = torch.randn(sizes)
    laid = guarded(lambda x: x, {"0": made})(given)
    assert laid.stride() == strides
    assert torch.equal(laid, given)


def test_what_shares_elements_is_not_made():
    call = guarded(lambda x: x, {"0": ((4, 6), (1, 0))})
    with pytest.raises(ValueError, match="made for strides"):
        call(torch.randn(4, 6))


def test_modes_are_two():
    result = check_export(flat())
    with pytest.raises(UsageError, match="A mode of 'silent'"):
        stridewise.guard_artefact(flat(), result, mode="silent")
    with pytest.raises(ValueError, match="a mode is"):
        guarded(None, {}, "silent")


def test_where_every_layout_is_right_there_is_no_guard():
    result = check_export(exported(models.Rows(), torch.randn(4, 6)))
    program = models.Rows()
    assert result.guard is None
    assert stridewise.guard_artefact(program, result) is program
