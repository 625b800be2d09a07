"""SW302: a method that is not called is true for every tensor, and makes nothing contiguous."""

from types import BuiltinMethodType

import pytest
import torch
from hypothesis import given

from stridewise.linter.rules.sw302 import _MEMORYVIEWS, _TENSOR_ATTRIBUTES, FIRES

from ..texts import findings, fixed, run
from .layouts import tensors


@given(x=tensors())
def test_the_check_never_fails_and_its_fix_does(x: torch.Tensor) -> None:
    text = """
import torch

def program(x: torch.Tensor):
    return [bool(x.is_contiguous), not x.is_contiguous, 1 if x.is_contiguous else 2]
"""
    assert run(text)["program"](x) == [True, False, 1]
    once = (
        "import torch\ndef program(x: torch.Tensor):\n    if x.is_contiguous:\n        return True\n    return False\n"
    )
    assert run(once)["program"](x)
    assert run(fixed(once, "SW302"))["program"](x) == x.is_contiguous()
    assert len(findings(text, "SW302")) == 3


def test_what_the_examples_do() -> None:
    check, kernel, every, copy, statement, compared, tested = (run(example.source) for example in FIRES)
    assert check["program"]() is True
    kernel["program"]()
    assert every["program"]() is True
    assert isinstance(copy["program"](), BuiltinMethodType)
    with pytest.raises(TypeError):
        statement["program"]()
    assert compared["program"]() == (False, True)  # of a tensor that is contiguous
    assert tested["program"]() == (True, True)  # of one that is not
    check, kernel, every, copy, statement, compared, tested = (run(example.fixed or "") for example in FIRES)
    assert check["program"]() is False
    with pytest.raises(AssertionError, match="dense"):
        kernel["program"]()
    with pytest.raises(AssertionError):
        every["program"]()
    assert copy["program"]().is_contiguous()
    assert statement["program"]().is_contiguous()
    assert compared["program"]() == (True, False)
    with pytest.raises(AssertionError, match="strided"):
        tested["program"]()


def test_what_is_asked_of_tensors_is_theirs() -> None:
    assert all(hasattr(torch.Tensor, name) for name in _TENSOR_ATTRIBUTES)


@pytest.mark.parametrize(
    "body",
    [
        "assert x.is_contiguous",
        "assert x.is_cuda and x.is_contiguous",
        "assert x.dim() == 2 and not x.is_contiguous",
        "ok = x.is_contiguous",
        "print(x.is_contiguous)",
        "self.assertTrue(x.is_contiguous)",
        "return all([each.is_contiguous for each in (x, x)])",
        "return x.is_contiguous == True",
        "return True is x.is_contiguous",
        "if x.is_contiguous is False:\n        print(x)",
        "torch._assert(x.is_contiguous, 'strided')",
        "assert all([x.is_contiguous])",
        "return any((x.is_contiguous, x.dim() == 2))",
        "return all(each.is_contiguous for each in tensors)",
        "return all(t.is_contiguous for t in several)",
        "return any([mask.is_contiguous for mask in self.several])",
        "while not x.is_contiguous:\n        x = x.contiguous()",
        "y = x.contiguous\n    return torch.relu(y)",
        "return x.contiguous",
        "x = x.contiguous\n    return self.layer(x)",
        "return x.contiguous @ x",
        "return x.expand_as(x.contiguous)",
    ],
)
def test_it_fires(body: str) -> None:
    text = f"import torch\ndef program(self, x, tensors, several: list[torch.Tensor]):\n    {body}\n"
    assert [finding.code for finding in findings(text, "SW302")] == ["SW302"]


@pytest.mark.parametrize(
    "body",
    [
        "assert x.is_contiguous()",
        "pack = x.contiguous\n    return pack()",
        "pack = x.contiguous\n    return self.run(pack)",
        "return timeit.timeit(x.contiguous)",
        "return self.pool.submit(x.contiguous)",
        "pytest.raises(RuntimeError, x.contiguous)",
        "return map(torch.Tensor.contiguous, [x])",
        "monkeypatch.setattr(x, 'contiguous', None)",
        "x.contiguous = lambda: x",
        "return getattr(x, 'is_contiguous', None)",
        "return self.is_contiguous",
        "return page.offset if page.is_contiguous else 0",
        "return [edge for edge in mesh.edges if not edge.is_contiguous]",
        "return x.is_contiguous is not None",
        "return x.is_contiguous.__doc__",
        "return x.is_contiguous == page",
        "return [x.is_contiguous, x]",
        "return all(edge.is_contiguous for edge in mesh.edges)",
        "return all([edge.is_contiguous for edge in mesh])",
        "torch._check(page.is_contiguous)",
    ],
)
def test_it_is_quiet(body: str) -> None:
    text = f"import pytest, timeit, torch\ndef program(self, x, page, mesh, monkeypatch):\n    {body}\n"
    assert findings(text, "SW302") == ()


@pytest.mark.parametrize(
    "definition",
    [
        "class Lane:\n    is_contiguous: bool",
        "class Lane:\n    def __init__(self):\n        self.is_contiguous = True",
        "class Lane:\n    @property\n    def is_contiguous(self):\n        return True",
    ],
)
def test_it_is_quiet_where_the_file_has_such_an_attribute(definition: str) -> None:
    assert findings(f"import torch\n{definition}\ndef program(x):\n    assert x.is_contiguous\n", "SW302") == ()


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("op", ["==", "!=", "is", "is not"])
@pytest.mark.parametrize("is_first", [True, False])
def test_it_says_what_a_comparison_gives(op: str, truth: bool, is_first: bool) -> None:
    compared = f"x.is_contiguous {op} {truth}" if is_first else f"{truth} {op} x.is_contiguous"
    text = f"import torch\ndef program(x: torch.Tensor):\n    return {compared}\n"
    (found,) = findings(text, "SW302")
    outcomes = {run(text)["program"](x) for x in (torch.zeros(2, 3), torch.zeros(2, 3).t())}
    assert len(outcomes) == 1
    assert found.message == (
        f"`x.is_contiguous` is the method, which is not called: `{compared}` is {str(outcomes.pop()).lower()} however "
        "`x` lies in memory."
    )


def test_what_it_says() -> None:
    check, copy = findings(FIRES[0].source, "SW302")[0], findings(FIRES[3].source, "SW302")[0]
    assert check.message == (
        "`x.is_contiguous` is the method, which is not called: that is true however `x` lies in memory."
    )
    assert copy.message == "`x.contiguous` is the method, which is not called: `x` stays as it lies in memory."
    assert check.edits[0].safety == "unsafe"


@pytest.mark.parametrize(
    "body",
    [
        "if m.contiguous:\n        return m.shape\n    return None",
        "assert m.contiguous and m.ndim == 1",
        "return bool(m.contiguous)",
    ],
)
def test_a_memoryview_has_it_as_an_attribute(body: str) -> None:
    for handed in ("m", "data"):
        text = f"def program({handed}):\n    m = memoryview({handed})\n    {body}\n"
        text = text.replace("    m = memoryview(m)\n", "")
        assert findings("import torch\n" + text, "SW302") == ()
        run(text)["program"](memoryview(b"abc"))
    assert all(hasattr(memoryview, name) for name in (*_MEMORYVIEWS, "contiguous"))
    assert not hasattr(memoryview, "is_contiguous")


def test_what_takes_the_place_of_its_base_is_meant_as_a_copy() -> None:
    body = "    size = frame.shape\n    frame = frame.contiguous\n    return size, frame\n"
    text = f"import torch\ndef program(frame):\n{body}"
    assert len(findings(text, "SW302")) == 1
    assert run(fixed(text, "SW302"))["program"](torch.zeros(2, 3).t())[1].is_contiguous()
