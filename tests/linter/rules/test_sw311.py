"""SW311: a clone and a contiguous copy are two copies, and one is enough."""

import itertools

import pytest
import torch
from hypothesis import given

from stridewise.linter.rules.sw311 import JOINS

from ..texts import findings, fixed, run
from .layouts import copies, seen, tensors

TEXTS = [
    pytest.param(f"import torch\ndef program(x: torch.Tensor):\n    return {expression}\n", id=expression)
    for expression in ("x.clone().contiguous()", "x.contiguous().clone()", "torch.clone(x).contiguous()")
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
    (edit,) = findings(text, "SW311")[0].edits
    assert edit.safety == "safe"
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


@pytest.mark.parametrize("text", TEXTS)
def test_what_may_be_no_tensor_is_fixed_on_request(text: str) -> None:
    (finding,) = findings(text.replace(": torch.Tensor", ""), "SW311")
    assert [edit.safety for edit in finding.edits] == ["unsafe"]


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


def test_what_stands_in_front_stays() -> None:
    text = "import torch\ndef f(x, y):\n    return (\n        (x + y)  # both\n        .clone().contiguous()\n    )\n"
    (finding,) = findings(text, "SW311")
    assert finding.edits == ()
    text = text.replace("  # both", "")
    assert fixed(text, "SW311") == text.replace(
        ".clone().contiguous()", ".clone(memory_format=torch.contiguous_format)"
    )
