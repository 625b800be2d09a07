from typing import Any

import numpy as np
import pytest
import torch

from stridewise.linter.rules.sw306 import _TYPES

from ..texts import findings, fixed, rule_of, run

CODE = "SW306"
TAKERS = ("from_numpy", "as_tensor", "asarray", "tensor", *_TYPES)
IMAGE = "import numpy as np\nimport torch\nimage = np.arange(60.0).reshape(4, 5, 3)\n"


@pytest.mark.parametrize("example", rule_of(CODE).fires)
def test_it_raises_as_it_stands_and_not_with_the_fix(example: Any) -> None:
    with pytest.raises(ValueError, match="stride"):
        run(example.source)["program"]()
    assert isinstance(run(example.fixed)["program"](), torch.Tensor)


def test_what_is_quiet_runs() -> None:
    for text in rule_of(CODE).quiet:
        run(text)["program"]()


@pytest.mark.parametrize("taker", [*(f"torch.{name}" for name in TAKERS), "torch.ones(1).new_tensor"])
def test_every_function_that_it_names_raises(taker: str) -> None:
    text = f"{IMAGE}\ndef program():\n    return {taker}(np.flip(image, 0))\n"
    assert [finding.code for finding in findings(text, CODE)] == [CODE]
    with pytest.raises(ValueError, match="negative"):
        run(text)["program"]()
    assert run(fixed(text, CODE))["program"]().shape == (4, 5, 3)


@pytest.mark.parametrize("taker", ["FloatTensor", "tensor", "as_tensor"])
def test_what_may_be_a_list_is_let_be(taker: str) -> None:
    """Reversed, that is copied; with several slices it is none, and raises."""
    text = f"import torch\ndef program(a):\n    return torch.{taker}(a[::-1])\n"
    assert findings(text, CODE) == ()
    assert run(text)["program"]([1, 2, 3]).tolist() == [3, 2, 1]
    text = text.replace("[::-1]", "[:, ::-1]")
    assert [finding.code for finding in findings(text, CODE)] == [CODE]
    with pytest.raises(ValueError, match="negative"):
        run(text)["program"](np.ones((2, 3)))
    with pytest.raises(TypeError):
        run(text)["program"]([1, 2, 3])


@pytest.mark.parametrize("size", [0, 1, 2])
def test_one_element_is_enough(size: int) -> None:
    """An empty array has no negative stride: a copy of it changes nothing either."""
    array = np.zeros((size, 3))[::-1]
    if size:
        with pytest.raises(ValueError, match="negative"):
            torch.from_numpy(array)
    else:
        assert torch.from_numpy(array).shape == torch.from_numpy(array.copy()).shape


REVERSED = [
    "image[::-1]",
    "image[:, :, ::-1]",
    "image[..., 2::-1]",
    "image[::-1].T",
    "image[::-1].transpose(2, 0, 1)",
    "image[::-1].swapaxes(0, 1)",
    "image[::-1].view()",
    "image[::-1][None]",
    "image[::-1][..., None]",
    "image[0][::-1]",
    "np.flip(image)",
    "np.flip(image, 1)",
    "np.flip(image, axis=(0, 1))",
    "np.fliplr(image)",
    "np.flipud(image)",
    "np.rot90(image)",
    "np.rot90(image, 3)",
    "np.rot90(image, k=-1, axes=(1, 2))",
    "np.transpose(image[::-1], (2, 0, 1))",
    "np.moveaxis(np.flip(image), 2, 0)",
    "np.expand_dims(image[::-1], 0)",
    "image[::-1, None]",
    "image[1, ..., ::-1]",
    "np.asarray(image[::-1])",
]
MENDED = [
    "image[::-1].copy()",
    "image[::-1].astype(np.float32)",
    "image[::-1].flatten()",
    "image[::-1] / 255",
    "image[::-1][0]",
    "image[::-1][::-1]",
    "image[::2]",
    "np.flip(np.flip(image))",
    "np.flip(image, ())",
    "np.rot90(image, 4)",
    "np.ascontiguousarray(image[::-1])",
    "np.array(image[::-1])",
    "np.stack([image[::-1]])",
    "np.concatenate([image[::-1]])",
    "np.pad(image[::-1], 1)",
    "np.asarray(image[::-1], np.float32)",
    "image[::-1, :, [2, 1, 0]]",
    "image[::-1, [2, 1, 0]]",
    "image[[1, 0], ::-1]",
    "image[np.array([1, 0]), ::-1]",
]


@pytest.mark.parametrize("expression", REVERSED)
def test_reversed_arrays_are_found_and_raise(expression: str) -> None:
    text = f"{IMAGE}\ndef program():\n    return torch.from_numpy({expression})\n"
    found = findings(text, CODE)
    assert [edit.safety for finding in found for edit in finding.edits] == ["safe"]
    with pytest.raises(ValueError, match="negative"):
        run(text)["program"]()
    mended = run(fixed(text, CODE))
    wanted = eval(expression, {"np": np, "image": mended["image"]})
    assert torch.equal(mended["program"](), torch.from_numpy(np.ascontiguousarray(wanted)))


@pytest.mark.parametrize("expression", MENDED)
def test_what_has_no_negative_stride_is_let_be(expression: str) -> None:
    text = f"{IMAGE}\ndef program():\n    return torch.from_numpy({expression})\n"
    assert findings(text, CODE) == ()
    run(text)["program"]()


def test_a_name_is_followed_to_what_it_stands_for() -> None:
    text = (
        f"{IMAGE}\nbgr = image[:, :, ::-1]\nplanes = np.transpose(bgr, (2, 0, 1))\ntensor = torch.from_numpy(planes)\n"
    )
    (found,) = findings(text, CODE)
    assert found.origin is not None
    assert found.origin.expression == "image[:, :, ::-1]"


def test_a_branch_is_not_looked_at_when_the_name_is_bound_again() -> None:
    text = f"""{IMAGE}
def program(flip):
    array = image
    if flip:
        array = array[::-1]
    array = array.copy()
    return torch.from_numpy(array)
"""
    assert findings(text, CODE) == ()


def test_an_unknown_rotation_may_share_memory() -> None:
    """Why the fix is not safe there: four quarters are a plain view."""
    text = f"{IMAGE}\ndef program(k):\n    return torch.from_numpy(np.rot90(image, k))\n"
    (found,) = findings(text, CODE)
    assert [edit.safety for edit in found.edits] == ["unsafe"]
    names = run(text)
    assert np.shares_memory(names["program"](4).numpy(), names["image"])
    for k in (1, 2, 3):
        with pytest.raises(ValueError, match="negative"):
            names["program"](k)


@pytest.mark.parametrize(
    "body",
    [
        "with pytest.raises(ValueError):\n        torch.from_numpy(image[::-1])",
        "with unittest.TestCase().assertRaises(ValueError):\n        torch.from_numpy(image[::-1])",
        "unittest.TestCase().assertRaises(ValueError, lambda: torch.from_numpy(image[::-1]))",
        "pytest.raises(ValueError, lambda: torch.from_numpy(image[::-1]))",
    ],
)
def test_an_error_that_is_wanted_stays(body: str) -> None:
    text = f"import unittest\nimport pytest\n{IMAGE}\ndef program():\n    {body}\n"
    assert findings(text, CODE) == ()
    run(text)["program"]()


def test_a_test_that_must_fail_stays() -> None:
    for decorator in ("pytest.mark.xfail(strict=True)", "unittest.expectedFailure"):
        text = f"import unittest\nimport pytest\n{IMAGE}\n@{decorator}\ndef test():\n    torch.tensor(image[:, ::-1])\n"
        assert findings(text, CODE) == ()
        with pytest.raises(ValueError, match="negative"):
            run(text)["test"]()


@pytest.mark.parametrize(
    "body",
    [
        "try:\n        return torch.from_numpy(image[::-1])\n    except ValueError:\n        return None",
        "with contextlib.suppress(ValueError):\n        return torch.from_numpy(image[::-1])",
    ],
)
def test_where_the_error_is_caught_the_fix_changes_what_follows(body: str) -> None:
    text = f"import contextlib\n{IMAGE}\ndef program():\n    {body}\n"
    assert [edit.safety for found in findings(text, CODE) for edit in found.edits] == ["unsafe"]
    assert run(text)["program"]() is None
    assert run(fixed(text, CODE))["program"]().shape == (4, 5, 3)


def test_a_handler_catches_nothing_of_its_own() -> None:
    body = "    try:\n        raise KeyError\n    except KeyError:\n        return torch.tensor(image[:, ::-1])\n"
    text = f"{IMAGE}\ndef program():\n{body}"
    assert [edit.safety for found in findings(text, CODE) for edit in found.edits] == ["safe"]
    with pytest.raises(ValueError, match="negative"):
        run(text)["program"]()


@pytest.mark.parametrize("expression", ["np.flip(a, 0).squeeze()", "np.squeeze(np.flip(a, 0))"])
def test_a_squeeze_may_take_the_reversed_dimension_away(expression: str) -> None:
    text = f"import numpy as np\nimport torch\ndef program(a):\n    return torch.from_numpy({expression})\n"
    assert [edit.safety for found in findings(text, CODE) for edit in found.edits] == ["unsafe"]
    with pytest.raises(ValueError, match="negative"):
        run(text)["program"](np.ones((2, 1)))
    assert run(text)["program"](np.ones((1, 2))).shape == (2,)
