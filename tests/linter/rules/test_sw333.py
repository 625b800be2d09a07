"""How `from_numpy` of a transposed array lies, and what SW333 offers."""

import numpy as np
import pytest
import torch

from stridewise.linter.rules import sw333

from ..texts import findings, fixed, run

EXAMPLES = [pytest.param(example.source, id=str(at)) for at, example in enumerate(sw333.FIRES)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_tensor_is_strided_and_the_fix_makes_it_contiguous(text: str) -> None:
    strided, mended = run(text)["program"](), run(fixed(text, "SW333"))["program"]()
    assert not strided.is_contiguous()
    assert mended.is_contiguous()
    assert torch.equal(strided, mended)


def test_the_fix_no_longer_shares_memory() -> None:
    array = np.zeros((2, 3))
    assert torch.from_numpy(array.T).data_ptr() == array.ctypes.data
    assert torch.from_numpy(np.ascontiguousarray(array.T)).data_ptr() != array.ctypes.data
    (found,) = findings(sw333.FIRES[0].source, "SW333")
    assert [edit.safety for edit in found.edits] == ["unsafe"]


def test_an_image_is_channels_last() -> None:
    image = torch.from_numpy(np.zeros((8, 8, 3)).transpose(2, 0, 1))
    assert image[None].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("text", sw333.QUIET)
def test_quiet_examples_give_contiguous_tensors(text: str) -> None:
    assert run(text)["program"]().is_contiguous()


@pytest.mark.parametrize(
    ("call", "fires"),
    [
        ("torch.from_numpy(a.transpose(0, 3, 2, 1))", True),
        ("torch.from_numpy(np.transpose(a, (1, 0)))", True),
        ("torch.from_numpy(a.transpose())", True),
        ("torch.from_numpy(a.transpose(0, 3, 1, 2))", False),
        ("torch.from_numpy(np.transpose(a, (2, 0, 1)))", False),
        ("torch.from_numpy(np.swapaxes(a, 0, 1)).float()", True),
        ("torch.from_numpy(a.swapaxes(0, 1))", True),
        ("torch.from_numpy(a.T).to(torch.float32)", True),
        ("torch.from_numpy(a.T).contiguous()", False),
        ("torch.from_numpy(a.T[0])", False),
        ("torch.from_numpy(np.ascontiguousarray(a.T))", False),
        ("torch.tensor(a.T)", False),
        ("other.from_numpy(a.T)", False),
    ],
)
def test_it_fires(call: str, fires: bool) -> None:
    text = f"import numpy as np\nimport torch\n\ndef f(a, other):\n    return {call}\n"
    assert bool(findings(text, "SW333")) == fires
