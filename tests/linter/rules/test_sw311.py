"""SW311: a clone and a contiguous copy are two copies, and one is enough."""

import itertools

import pytest
import torch
from hypothesis import given

from stridewise.linter.rules.sw311 import JOINS, MAKERS

from ..texts import findings, fixed, run
from .layouts import copies, seen, tensors

TEXTS = [
    pytest.param(f"import torch\ndef program(x: torch.Tensor):\n    return {expression}\n", id=expression)
    for expression in (
        "x.clone().contiguous()",
        "x.contiguous().clone()",
        "torch.clone(x).contiguous()",
        "x.clone().detach().contiguous()",
    )
]
PERMUTED = [
    pytest.param(torch.zeros(2, 3).t(), id="transposed"),
    pytest.param(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), id="channels_last"),
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("x", PERMUTED)
def test_it_copies_twice_and_its_fix_once(text: str, x: torch.Tensor) -> None:
    assert copies(run(text)["program"], x) == 2
    assert copies(run(fixed(text, "SW311"))["program"], x) == 1


@pytest.mark.parametrize("text", TEXTS)
@given(x=tensors())
def test_its_fix_changes_nothing(text: str, x: torch.Tensor) -> None:
    before, after = seen(run(text)["program"], x), seen(run(fixed(text, "SW311"))["program"], x)
    assert after == before
    assert not after.is_itself
    assert not after.shares_memory


@pytest.mark.parametrize("text", TEXTS)
def test_its_fix_never_copies_more(text: str) -> None:
    for x in (torch.zeros(2, 3), torch.zeros(2, 6)[:, ::2], torch.zeros(1, 3).expand(2, 3)):
        assert copies(run(fixed(text, "SW311"))["program"], x) == 1


@pytest.mark.parametrize("text", TEXTS)
def test_its_fix_works_under_vmap(text: str) -> None:
    for x, dim in itertools.product((torch.rand(2, 3, 4), torch.rand(4, 3, 2).permute(1, 2, 0)), range(3)):
        before = torch.vmap(run(text)["program"], in_dims=dim)(x)
        after = torch.vmap(run(fixed(text, "SW311"))["program"], in_dims=dim)(x)
        assert torch.equal(after, before)
        assert after.stride() == before.stride()


MADE = "import torch\ndef program():\n    x = torch.rand(2, 3, 4)\n    y = {made}\n    return {returned}\n"


@pytest.mark.parametrize("made", ["torch.eye(3, 2).t()", "x.transpose(0, 1)", "x.permute(2, 0, 1).detach()"])
def test_its_fix_is_safe_of_what_torch_made(made: str) -> None:
    text = MADE.format(made=made, returned="y, y.clone().contiguous()")
    assert [edit.safety for found in findings(text, "SW311") for edit in found.edits] == ["safe"]
    y, copied = run(fixed(text, "SW311"))["program"]()
    assert torch.equal(copied, y)
    assert copied.is_contiguous()


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_what_torch_makes_is_of_its_own_class(name: str) -> None:
    given = {"full": ((2,), 1.0), "linspace": (0, 1, 2), "randint": (3, (2,))}.get(name.removeprefix("torch."), (2,))
    made = eval(name)(*given)
    assert type(made) is torch.Tensor
    assert made.layout is torch.strided


@pytest.mark.parametrize("text", TEXTS)
def test_what_may_be_something_else_is_fixed_on_request(text: str) -> None:
    asked = text.replace("    return", "    assert isinstance(x, torch.Tensor)\n    return")
    for known in (text, text.replace(": torch.Tensor", ""), asked.replace(": torch.Tensor", "")):
        (finding,) = findings(known, "SW311")
        assert [edit.safety for edit in finding.edits] == ["unsafe"]


def test_a_subclass_may_have_its_own_clone() -> None:
    class Plain(torch.Tensor):
        def clone(self) -> "Plain":  # type: ignore[override]
            return torch.Tensor.clone(self)  # type: ignore[return-value]

    x, text = torch.zeros(2, 3).t().as_subclass(Plain), TEXTS[0].values[0]
    assert run(text)["program"](x).is_contiguous()
    with pytest.raises(TypeError):
        run(fixed(text, "SW311"))["program"](x)


@pytest.mark.parametrize("hidden", ["torch = x", "def torch(): pass", "for torch in (): pass"])
def test_it_is_not_fixed_where_torch_is_something_else(hidden: str) -> None:
    text = "import torch\nfrom torch import Tensor\ndef f(x: Tensor):\n    pass\n    return x.clone().contiguous()\n"
    for shadowed in (text.replace("pass", hidden, 1), text.replace("Tensor)", "Tensor, torch=None)")):
        (finding,) = findings(shadowed, "SW311")
        assert finding.edits == ()
        assert run(shadowed)["f"](torch.zeros(2, 3)).shape == (2, 3)
    assert len(findings(text, "SW311")[0].edits) == 1


def test_what_is_made_with_options_is_copied_once() -> None:
    """Unless they say that it lies otherwise, which nobody writes that way."""
    text = "import torch\ndef program(**options):\n    x = torch.eye(3, **options)\n    return x.clone().contiguous()\n"
    assert findings(text, "SW311") == ()
    assert copies(run(text)["program"]) == 1


def test_dimensions_of_size_1_get_regular_strides() -> None:
    x = torch.empty_strided((2, 1, 3), (3, 77, 1))
    assert x.clone().contiguous().stride() == (3, 77, 1)
    assert x.clone(memory_format=torch.contiguous_format).stride() == (3, 3, 1)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_an_mkldnn_tensor_has_no_formats() -> None:
    x = torch.zeros(2, 3).to_mkldnn()
    assert x.clone().contiguous().is_mkldnn
    with pytest.raises(RuntimeError, match="memory format"):
        x.clone(memory_format=torch.contiguous_format)


@pytest.mark.parametrize("name", JOINS)
def test_what_is_joined_is_contiguous(name: str) -> None:
    join = getattr(torch, name)
    for x in (
        torch.zeros(4, 4).t(),
        torch.zeros(1, 4).expand(4, 4),
        torch.zeros(4, 8)[:, ::2],
        torch.zeros(4, 4, 4).mT,
    ):
        assert join([x, x]).is_contiguous()


@pytest.mark.parametrize(
    "text",
    [
        "from torch import nn\ndef program(x: nn.Parameter):\n    return x.clone().contiguous()\n",
        "import torch\ndef program(x):\n    return (x.clone()  # of its own\n            .contiguous())\n",
    ],
    ids=["no name for torch", "a comment"],
)
def test_it_is_not_fixed(text: str) -> None:
    (finding,) = findings(text, "SW311")
    assert finding.edits == ()


def test_what_detaches_stays() -> None:
    text = "import torch\ndef f(x):\n    return (x.clone()\n            .detach().contiguous())\n"
    x = torch.zeros(2, 3, requires_grad=True)
    assert ".clone(memory_format=torch.contiguous_format)\n            .detach())" in fixed(text, "SW311")
    assert not run(fixed(text, "SW311"))["f"](x.t()).requires_grad


def test_what_stands_in_front_stays() -> None:
    text = "import torch\ndef f(x, y):\n    return (\n        (x + y)  # both\n        .clone().contiguous()\n    )\n"
    (finding,) = findings(text, "SW311")
    assert finding.edits == ()
    text = text.replace("  # both", "")
    assert fixed(text, "SW311") == text.replace(
        ".clone().contiguous()", ".clone(memory_format=torch.contiguous_format)"
    )
