"""SW305: a write to an expanded tensor changes all that share the memory, or raises."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise.linter.rules.sw305 import _ALIKE, FIRES

from ..texts import findings, fixed, run

MADE = ("x.expand(4, 3)", "x.expand((4, 3))", "x.expand_as(torch.zeros(4, 3))", "x.broadcast_to(4, 3)")
SILENT = ("y[0] = 5.0", "y[1, 2] = 5.0", "y[0].add_(5)", "y[-1] += 5.0", "y[2][1].fill_(5.0)", "y.T[0, 1] = 5.0")
RAISES = ("y.add_(1)", "y += 1", "y[:, 0] = 1.0", "y.copy_(torch.rand(4, 3))", "y.clamp_(min=1)", "y[:2].sub_(1)")
WARNS = ("y[torch.tensor([0])] = 5.0", "y.masked_fill_(torch.eye(4, 3) > 0, 5.0)")


def text(made: str, write: str) -> str:
    return f"import torch\ndef program(x):\n    y = {made}\n    {write}\n    return y\n"


@pytest.mark.parametrize("write", SILENT)
@pytest.mark.parametrize("made", MADE)
def test_all_rows_change_and_with_the_fix_one(made: str, write: str) -> None:
    x = torch.zeros(1, 3)
    y = run(text(made, write))["program"](x)
    assert x.any()
    assert all(torch.equal(row, y[0]) for row in y)
    x = torch.zeros(1, 3)
    repaired = fixed(text(made, write), "SW305")
    y = run(repaired)["program"](x)
    assert not x.any()
    assert sum(bool(row.any()) for row in y) == 1
    assert findings(repaired, "SW305") == ()


@pytest.mark.parametrize("write", RAISES)
@pytest.mark.parametrize("made", MADE)
def test_it_raises_and_with_the_fix_not(made: str, write: str) -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        run(text(made, write))["program"](torch.zeros(1, 3))
    run(fixed(text(made, write), "SW305"))["program"](torch.zeros(1, 3))


@pytest.mark.parametrize("write", WARNS)
def test_it_warns(write: str) -> None:
    with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
        run(text(MADE[0], write))["program"](torch.zeros(1, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(fixed(text(MADE[0], write), "SW305"))["program"](torch.zeros(1, 3))


@given(sizes=st.lists(st.integers(2, 4), min_size=1, max_size=3), rows=st.integers(2, 4))
def test_a_clone_of_an_expanded_tensor_has_memory_for_each(sizes: list[int], rows: int) -> None:
    wide = torch.zeros(sizes).expand(rows, *sizes).clone()
    wide[0] = 1.0
    assert wide.sum() == wide[0].numel()


def test_what_the_examples_do() -> None:
    first, second = (run(example.source)["program"]() for example in FIRES[:2])
    assert first.tolist() == [[1.0, 1.0, 1.0]] * 4
    assert second.tolist() == [1.0, 1.0, 1.0]
    for example in FIRES[2:]:
        with pytest.raises(RuntimeError, match="more than one element"):
            run(example.source)["program"]()
    first, second, third = (run(example.fixed)["program"]() for example in FIRES[:3] if example.fixed is not None)
    assert first.tolist() == [[1.0, 1.0, 1.0], *[[0.0, 0.0, 0.0]] * 3]
    assert second.tolist() == [0.0, 0.0, 0.0]
    assert third.tolist() == [[1.0, 1.0]] * 3


SEVERAL = ("torch.meshgrid(x, x, indexing='ij')", "torch.broadcast_tensors(x.view(1, 3), torch.zeros(3, 1))")


@pytest.mark.parametrize("made", SEVERAL)
def test_several_expanded_views_share_memory_with_what_went_in(made: str) -> None:
    found = []
    for name, write in (("a", "a[0, 1] = 7.0"), ("b", "b[1, 1] = 7.0"), ("a", "a += 1"), ("b", "b.clamp_(min=1)")):
        source = f"import torch\ndef program(x):\n    a, b = {made}\n    {write}\n    return {name}\n"
        found += findings(source, "SW305")
        assert found[-1].edits == ()
        if "7.0" in write:
            assert (run(source)["program"](torch.zeros(3)) == 7).sum() == 3
        else:
            with pytest.raises(RuntimeError, match="more than one element"):
                run(source)["program"](torch.zeros(3))
        cloned = source.replace(f"    {write}", f"    {name} = {name}.clone()\n    {write}")
        assert findings(cloned, "SW305") == ()
        run(cloned)["program"](torch.zeros(3))
    assert len(found) == 4


@pytest.mark.parametrize(
    "body",
    [
        "(a,) = torch.meshgrid(x, indexing='ij')\n    a += 1",
        "a, b = torch.meshgrid(x, x, indexing='ij')\n    a.fill_(1)\n    c = a + b\n    c += 1",
        "a, b = torch.broadcast_tensors(x, x)\n    a = a * 2\n    a += b",
    ],
)
def test_it_is_quiet_of_several(body: str) -> None:
    source = f"import torch\ndef program(x):\n    {body}\n"
    assert findings(source, "SW305") == ()
    run(source)["program"](torch.zeros(3))


def test_what_makes_all_alike_does_no_harm() -> None:
    for name in _ALIKE:
        y = torch.rand(1, 3).expand(4, 3)
        getattr(y, name)(*((2.0,) if name == "fill_" else ()))
        assert len(set(y.flatten().tolist())) == 1


@pytest.mark.parametrize(
    ("made", "write"),
    [
        ("x.expand(1, -1)", "y[0] = 1.0"),
        ("x.expand(-1, -1)", "y.add_(1)"),
        ("x.expand(4, 3).clone()", "y[0] = 1.0"),
        ("x.expand(4, 3).contiguous()", "y[0] = 1.0"),
        ("x.expand(4, 3).repeat(1, 1)", "y[0] = 1.0"),
        ("x.expand(4, 3) + 0", "y[0] = 1.0"),
        ("x.expand(4, 3)[[0, 1]]", "y[0] = 1.0"),
        ("x.expand(4, 3)", "y = y + 1\n    y[0] = 1.0"),
        ("x.expand(4, 3)", "y = torch.zeros(4, 3)\n    y[0] = 1.0"),
        ("x.expand(4, 3)", "y.zero_()"),
        ("x.expand(4, 3)", "y.requires_grad_()"),
        ("x.expand(4, 3)", "z = y[0]"),
        ("x.expand(4, 3)", "for y in x:\n        y[0] = 1.0"),
    ],
)
def test_it_is_quiet(made: str, write: str) -> None:
    assert findings(text(made, write), "SW305") == ()
    run(text(made, write))["program"](torch.zeros(1, 3))


@pytest.mark.parametrize("base", ["self", "'~/data'", "numpy"])
def test_it_is_quiet_of_what_is_no_tensor(base: str) -> None:
    assert findings(f"import numpy, torch\ndef f(self):\n    {base}.broadcast_to(3)[0] = 1\n", "SW305") == ()


def test_what_it_says() -> None:
    (finding,) = findings(FIRES[0].source, "SW305")
    assert finding.message == (
        "`y[0] = 1.0` writes to what `x.expand(4, 3)` gave, where one element in memory stands for many: all of them "
        "change, or it raises."
    )
    assert finding.advice == "Write `x.expand(4, 3).clone()`, which has memory for each."
    assert finding.edits[0].safety == "unsafe"


@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(2, 3).expand(2, 3)",
        "torch.zeros(2, 3).expand((2, 3))",
        "torch.zeros(3).expand(3)",
        "torch.zeros(2, 3).expand(-1, 3)",
        "torch.zeros(5).expand(1, 5)",
        "torch.broadcast_to(torch.zeros(2, 3), (2, 3))",
        "x.expand(x.shape)",
        "x.expand(*x.shape)",
        "x.expand(x.size())",
        "x.expand(x.size(0), x.size(1))",
        "x.expand(x.shape[0], -1, x.shape[2]) if x.dim() > 2 else x.expand(-1, x.shape[1])",
        "x.expand(x.shape[-2], x.shape[-1])",
        "x.expand_as(x)",
    ],
)
def test_what_has_these_sizes_already_repeats_nothing(made: str) -> None:
    source = f"import torch\ndef program(x):\n    y = {made}\n    y[0] = 1.0\n    y += 1\n    return y\n"
    assert findings(source, "SW305") == ()
    run(source)["program"](torch.zeros(2, 3))


@pytest.mark.parametrize("made", ["x.expand(x.size(0), -1)", "x.expand(x.size(-1), x.size(-1))", "x.expand(3, 3)"])
def test_the_sizes_of_a_row_may_be_put_in_front(made: str) -> None:
    source = f"import torch\ndef program(x):\n    y = {made}\n    y[0] = 1.0\n    return y\n"
    assert len(findings(source, "SW305")) == 1
    assert run(source)["program"](torch.zeros(3)).tolist() == [[1.0] * 3] * 3


def test_functions_are_given_what_they_expand_by_name() -> None:
    source = text("torch.broadcast_to(input=x, size=(2, 3))", "y[0] = 1.0")
    assert len(findings(source, "SW305")) == 1
    assert run(source)["program"](torch.zeros(3)).tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("view", ["y.view(2, -1, 3)", "y[:2].unsqueeze(-1)", "y.T.unflatten(1, (2, -1))[..., 0].T"])
def test_a_view_of_it_that_has_a_name_is_written(view: str) -> None:
    source = f"import torch\ndef program(x):\n    y = x.expand(4, 3)\n    n = {view}\n    n[0, 0] = 1.0\n    return x\n"
    (found,) = findings(source, "SW305")
    assert found.site.expression == "x.expand(4, 3)"
    assert run(source)["program"](torch.zeros(1, 3)).any()
    assert not run(fixed(source, "SW305"))["program"](torch.zeros(1, 3)).any()


@pytest.mark.parametrize("made", ["y.reshape(-1)", "y[:2].clone()", "y[[0, 1]]", "y[0] + 1", "y.T.contiguous()"])
def test_what_is_no_view_of_it_is_let_be(made: str) -> None:
    source = f"import torch\ndef program(x):\n    y = x.expand(4, 3)\n    n = {made}\n    n[0] = 1.0\n    return x\n"
    assert findings(source, "SW305") == ()
    assert not run(source)["program"](torch.zeros(1, 3)).any()
