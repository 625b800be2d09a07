"""SW313: two passes where one does it, and the form of one pass that is none."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise.linter.rules.sw313 import CASTS

from ..texts import findings, fixed, run
from .layouts import copies, seen, tensors

TEXTS = [
    pytest.param(f"import torch\ndef program(x, dtype=torch.float64):\n    return x.mT.contiguous().{cast}\n", id=cast)
    for cast in ("to(dtype)", "to(dtype=dtype)", "to(torch.float64)", "type(dtype)", "double()")
]


@pytest.mark.parametrize("text", TEXTS)
def test_two_passes_become_one(text: str) -> None:
    before, after = run(text)["program"], run(fixed(text, "SW313"))["program"]
    x = torch.zeros(2, 3)
    assert (copies(before, x), copies(after, x)) == (2, 1)
    assert (copies(before, x.double()), copies(after, x.double())) == (1, 1)
    assert (copies(before, x.double().t()), copies(after, x.double().t())) == (0, 0)


@pytest.mark.parametrize("text", TEXTS)
@given(x=tensors(ranks=(2, 4)), is_cast=st.booleans())
def test_what_it_shows_gives_the_same(text: str, x: torch.Tensor, is_cast: bool) -> None:
    x = x.detach() if is_cast else x.detach().double()
    before, after = seen(run(text)["program"], x), seen(run(fixed(text, "SW313"))["program"], x)
    # A tensor that is contiguous and channels_last (one channel, one pixel) may be copied by the cast all the same.
    assert after._replace(shares_memory=False) == before._replace(shares_memory=False)
    assert before.shares_memory or not after.shares_memory


@pytest.mark.parametrize("name", ["to", "type", *CASTS])
def test_the_short_form_is_a_trap(name: str) -> None:
    """Why the fix keeps `.contiguous()`: without it nothing happens to a tensor that has the dtype."""
    given = (torch.int16,) if name in ("to", "type") else ()
    x = getattr(torch.zeros(2, 3), name)(*given).t()
    if name == "type":
        x = x.to(torch.int16)
    cast = getattr(x, name)(*given, memory_format=torch.contiguous_format)
    assert not cast.is_contiguous()
    assert cast.data_ptr() == x.data_ptr()
    other = getattr(x.to(torch.int8), name)(*given, memory_format=torch.contiguous_format)
    assert other.is_contiguous()


def test_the_short_form_does_undo_channels_last() -> None:
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert x.to(torch.float32, memory_format=torch.contiguous_format).is_contiguous()


def test_a_cast_keeps_the_strides() -> None:
    assert torch.zeros(2, 3).t().to(torch.float16).stride() == (1, 3)


@pytest.mark.parametrize("cast", ["to(x.dtype)", "to(self.dtype)", "to(torch.bfloat16)", "type_as(w)", "to(out_dtype)"])
def test_it_knows_a_dtype(cast: str) -> None:
    text = f"import torch\ndef f(self, x, w, out_dtype):\n    y = x.transpose(0, 1)\n    return y.contiguous().{cast}\n"
    (finding,) = findings(text, "SW313")
    assert [edit.safety for edit in finding.edits] == ([] if "type_as" in cast else ["display"])


@pytest.mark.parametrize(
    "cast", ["to(x)", "to(self.device)", "to(0)", "to('cuda', torch.half)", "to(dtype, copy=True)", "cuda()", "to()"]
)
def test_it_is_quiet_about_transfers_and_copies(cast: str) -> None:
    text = f"import torch\ndef f(self, x, dtype):\n    return x.transpose(0, 1).contiguous().{cast}\n"
    assert findings(text, "SW313") == ()


def test_what_it_says() -> None:
    (finding,) = findings("import torch\ndef f(x):\n    return x.mT.contiguous().half()\n", "SW313")
    assert finding.advice == (
        "Write `x.mT.half(memory_format=torch.contiguous_format).contiguous()`: one pass. Keep the last call: a tensor "
        "that has the dtype already comes back from the cast as it is, strided."
    )


def test_it_is_not_fixed_where_torch_is_something_else() -> None:
    text = "import torch\ndef f(x, torch):\n    return x.mT.contiguous().half()\n"
    (finding,) = findings(text, "SW313")
    assert finding.edits == ()
    assert run(text)["f"](torch.zeros(2, 3), None).dtype is torch.float16
