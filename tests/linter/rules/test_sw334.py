"""What `as_strided` reads of a tensor that lies otherwise, and which calls SW334 finds."""

import pytest
import torch

from stridewise.linter.rules import sw334

from ..texts import findings, run

EXAMPLES = [pytest.param(example.source, id=str(at)) for at, example in enumerate(sw334.FIRES)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_it_reads_other_elements(text: str) -> None:
    got, wanted = run(text)["program"]()
    assert got.shape == wanted.shape
    assert not torch.equal(got, wanted)


@pytest.mark.parametrize("text", EXAMPLES)
def test_it_is_right_for_a_contiguous_tensor(text: str) -> None:
    got, wanted = run(text.replace(".view(3, 2).t()", ".view(2, 3)"))["program"]()
    assert torch.equal(got, wanted)


def test_strides_that_are_asked_for_are_right_for_every_layout() -> None:
    asked, copied, _, _, wanted = run(sw334.QUIET[0])["program"]()
    assert torch.equal(asked, wanted)
    assert torch.equal(copied, wanted)


@pytest.mark.parametrize(
    ("body", "fires"),
    [
        ("return x.as_strided((2, 2), (2, 1))", True),
        ("return x.as_strided(size=(2, 2), stride=(y, 1))", True),
        ("return torch.as_strided(x, (2, 2), (2, 1))", True),
        ("return x.t().as_strided((2, 2), (2, 1))", True),
        ("return torch.zeros(8).as_strided((2, 2), (2, 1))", False),
        ("return x.contiguous().as_strided((2, 2), (2, 1))", False),
        ("step = x.stride(0); return x.as_strided((2, 2), (step, 1))", False),
        ("return np.lib.stride_tricks.as_strided(x, (2, 2), (16, 8))", False),
    ],
)
def test_it_fires(body: str, fires: bool) -> None:
    text = f"import numpy as np\nimport torch\n\ndef f(x, y):\n    {body}\n"
    assert bool(findings(text, "SW334")) == fires
