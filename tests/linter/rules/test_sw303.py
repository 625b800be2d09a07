"""SW303: `to` with the contiguous format does nothing where it has nothing to convert."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise.linter.rules.sw303 import _CHANNELS_LAST, FIRES

from ..texts import findings, fixed, run

FORMAT = "memory_format=torch.contiguous_format"
VIEWS = ("x.transpose(1, 2)", "x.mT", "x.permute(1, 0, 2)", "x.permute((2, 1, 0))", "x.swapaxes(0, 1)")
CALLS = [f".to({FORMAT})", f".to(torch.float32, {FORMAT})", f".to(dtype=torch.float32, {FORMAT})", f".float({FORMAT})"]
TEXTS = [
    pytest.param(f"import torch\ndef program(x):\n    return {view}{call}\n", id=view + call)
    for view in VIEWS
    for call in CALLS
]


@pytest.mark.parametrize("text", TEXTS)
@given(sizes=st.tuples(*[st.integers(2, 4)] * 3))
def test_the_layout_stays_and_its_fix_changes_it(text: str, sizes: tuple[int, ...]) -> None:
    x = torch.rand(sizes)
    before = run(text)["program"](x)
    assert not before.is_contiguous()
    assert before.data_ptr() == x.data_ptr()
    after = run(fixed(text, "SW303"))["program"](x)
    assert after.is_contiguous()
    assert torch.equal(after, before)


@pytest.mark.parametrize("text", [each for each in TEXTS if "float" in str(each.id)])
def test_it_depends_on_the_dtype(text: str) -> None:
    assert run(text)["program"](torch.rand(2, 3, 4, dtype=torch.float64)).is_contiguous()
    assert not run(text)["program"](torch.rand(2, 3, 4)).is_contiguous()


def test_the_fix_costs_nothing_where_it_did_convert() -> None:
    y = (
        torch.rand(2, 3, 4, dtype=torch.float64)
        .transpose(1, 2)
        .to(torch.float32, memory_format=torch.contiguous_format)
    )
    assert y.contiguous() is y


def test_what_the_examples_do() -> None:
    for example in FIRES:
        assert not run(example.source)["program"]().is_contiguous()
        assert run(example.fixed or "")["program"]().is_contiguous()


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_which_permutations_have_an_effect(rank: int) -> None:
    x = torch.rand((2, 3, 4, 5, 6)[:rank])
    for order in itertools.permutations(range(rank)):
        view = x.permute(order)
        changed = view.to(memory_format=torch.contiguous_format).stride() != view.stride()
        assert changed == (order in _CHANNELS_LAST)
        fires = findings(f"import torch\ndef program(x):\n    return x.permute{order}.to({FORMAT})\n", "SW303")
        assert bool(fires) != changed


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_no_transposition_has_an_effect(rank: int) -> None:
    x = torch.rand((2, 3, 4, 5, 6)[:rank])
    for one, other in itertools.combinations(range(rank), 2):
        view = x.transpose(one, other)
        assert view.to(memory_format=torch.contiguous_format).stride() == view.stride()


def test_what_was_computed_may_suggest_another_format() -> None:
    """`zeros_like` keeps the order of what it is given, and that may be an image's: `to` converts it then."""
    x = torch.rand(2, 8, 4, 6).to(memory_format=torch.channels_last).transpose(1, 2)
    view = torch.zeros_like(x)[:, :, :5].transpose(1, 2)
    assert not view.is_contiguous()
    assert view.to(torch.float32, memory_format=torch.contiguous_format).is_contiguous()
    text = "import torch\ndef program(x):\n    y = torch.zeros_like(x)[:, :, :5].transpose(1, 2)\n"
    assert findings(f"{text}    return y.to(torch.float32, {FORMAT})\n", "SW303") == ()


@pytest.mark.parametrize("base", ["torch.rand(1, 4, 4, 3)", "x.contiguous()"])
def test_two_transposes_may_make_another_format(base: str) -> None:
    text = f"import torch\ndef program(x):\n    y = {base}.transpose(1, 3).transpose(2, 3)\n"
    text += f"    return y.is_contiguous(), y.to({FORMAT}).is_contiguous()\n"
    assert run(text)["program"](torch.rand(1, 4, 4, 3)) == (False, True)
    assert findings(text, "SW303") == ()


@pytest.mark.parametrize(
    "made", ["x.view(2, 3, 4)", "torch.rand(24).view(2, 3, 4)", "x.contiguous().reshape(2, 3, 4)", "x.view(1, 2, 3, 4)"]
)
def test_views_of_contiguous_tensors(made: str) -> None:
    text = f"import torch\ndef program(x):\n    return {made}.transpose(1, 2).to(dtype=torch.float32, {FORMAT})\n"
    assert not run(text)["program"](torch.rand(24)).is_contiguous()
    assert len(findings(text, "SW303")) == 1
    assert run(fixed(text, "SW303"))["program"](torch.rand(24)).is_contiguous()


def test_a_comment_is_not_lost() -> None:
    text = f"import torch\ndef program(x):\n    return x.t().to(  # why\n        {FORMAT})\n"
    (found,) = findings(text, "SW303")
    assert found.edits == ()
    assert "# why" in fixed(text.replace("(  # why", "(torch.float32,  # why"), "SW303")


@pytest.mark.parametrize("base", ["(x.T)", "x.T \\\n       ", "(x\n        .T)"])
def test_the_fix_keeps_how_it_is_written(base: str) -> None:
    text = f"import torch\ndef program(x):\n    return {base}.to({FORMAT})\n"
    assert fixed(text, "SW303") == text.replace(f"to({FORMAT})", "contiguous()")
    assert run(fixed(text, "SW303"))["program"](torch.rand(2, 3)).is_contiguous()


@pytest.mark.parametrize(
    "expression",
    [
        f"x.to(torch.float32, {FORMAT})",
        f"x.t().to(torch.float32, copy=True, {FORMAT})",
        f"x.t().to(torch.float32, {FORMAT}).contiguous()",
        f"x.t().clone({FORMAT})",
        "x.t().to(torch.float32)",
        "x.t().to(memory_format=torch.preserve_format)",
        f"x.movedim(-1, 1).to({FORMAT})",
        f"x.t().to(**kwargs, {FORMAT})",
        f"torch.empty_like(x.t(), {FORMAT})",
    ],
)
def test_it_is_quiet(expression: str) -> None:
    assert findings(f"import torch\ndef program(x, **kwargs):\n    return {expression}\n", "SW303") == ()


@pytest.mark.parametrize("made", ["x.t()", "torch.rand(3, 4)[:, 1:].t()", "x.view(2, 2, 3).transpose(1, 2)"])
def test_it_follows_a_name(made: str) -> None:
    text = f"import torch\ndef program(x):\n    y = {made}\n    return y.to(torch.float32, {FORMAT})\n"
    assert not run(text)["program"](torch.rand(3, 4)).is_contiguous()
    assert [finding.code for finding in findings(text, "SW303")] == ["SW303"]


def test_what_it_says() -> None:
    (some,), (bare,) = findings(FIRES[0].source, "SW303"), findings(FIRES[1].source, "SW303")
    assert some.message == (
        "`x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format)` leaves `x.transpose(1, 2)` as strided as "
        "it is if that has the dtype and the device already: where nothing is to be converted, `to` returns its input."
    )
    assert bare.message == (
        "`x.to(memory_format=torch.contiguous_format)` leaves `x` as strided as it is: where nothing is to be "
        "converted, `to` returns its input."
    )
    assert {edit.safety for edit in (*some.edits, *bare.edits)} == {"unsafe"}
