"""Rows that show in source: the program does the wrong thing, its line is named, and the edit cures it."""

import pytest
import torch

import stridewise
from stridewise.linter.engine import check_text
from stridewise.linter.rules import all_rules
from stridewise.source.edits import apply

from .rows import hazard


def linted(text):
    """The codes in a text, and the text with all edits made."""
    found = check_text(text, all_rules())
    edits = [edit for finding in found for edit in finding.edits]
    return {finding.code for finding in found}, apply(text.encode(), "utf-8", edits).decode()


def loaded(text):
    names = {}
    exec(compile(text, "example.py", "exec"), names)
    return names["f"]


def transposed():
    return torch.arange(12.0).reshape(4, 3).t()


POINTER = """
import torch

def f(kernel, x):
    kernel(x.contiguous().data_ptr(), x.numel())
"""


def address_of(tensor: torch.Tensor) -> int | None:
    """None of a tensor without memory, as tests of compilers leave them."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return None


def live_storages(run):
    """Whether memory is still a tensor's when a kernel gets its address."""
    import gc

    seen = []

    def kernel(address, count):
        tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        seen.append(any(address_of(each) == address for each in tensors if each.layout is torch.strided))

    run(kernel, transposed())
    return seen


@hazard(18, code="SW307")
def test_the_address_of_a_temporary():
    """The copy is gone before the kernel is called with its address."""
    codes, mended = linted(POINTER)
    assert live_storages(loaded(POINTER)) == [False]
    assert codes == {"SW307"}
    assert live_storages(loaded(mended)) == [True]


LOST = """
import torch

def f(p):
    p.contiguous().mul_(2)
"""


@hazard(19, code="SW304")
def test_a_write_to_a_contiguous_copy():
    """Right for a contiguous tensor, and lost for any other."""
    codes, mended = linted(LOST)
    for text, is_right in ((LOST, False), (mended, True)):
        x, whole = transposed(), transposed().contiguous()
        loaded(text)(x)
        loaded(text)(whole)
        assert torch.equal(whole, 2 * transposed())
        assert torch.equal(x, 2 * transposed()) == is_right
    assert codes == {"SW304"}


NO_CALL = """
import torch

def f(x):
    assert x.is_contiguous
    return x.view(-1)
"""
NO_RESULT = """
import torch

def f(x):
    x.contiguous()
    return x.view(-1)
"""


@hazard(28, code="SW302")
def test_a_check_that_is_not_called():
    """The method itself is true; the assertion never fails, and `view` raises, or a kernel reads other elements."""
    codes, mended = linted(NO_CALL)
    with pytest.raises(RuntimeError, match="view size"):
        loaded(NO_CALL)(transposed())
    assert codes == {"SW302"}
    with pytest.raises(AssertionError):
        loaded(mended)(transposed())


@hazard(28, code="SW301")
def test_a_copy_that_is_thrown_away():
    """`x.contiguous()` by itself does nothing to `x`."""
    codes, mended = linted(NO_RESULT)
    with pytest.raises(RuntimeError, match="view size"):
        loaded(NO_RESULT)(transposed())
    assert codes == {"SW301"}
    assert torch.equal(loaded(mended)(transposed()), transposed().flatten())


@hazard(27, code="SW401")
def test_a_layout_as_a_flag_for_what_a_tensor_means():
    """Of square weights nothing raises: one that is contiguous by chance is transposed again."""

    def project(x, w):
        return x @ (w.t() if w.is_contiguous() else w)

    x, w = torch.randn(2, 4), torch.randn(4, 4)
    assert not torch.allclose(project(x, w), project(x, w.t().contiguous().t()))
    assert {finding.code for finding in stridewise.check_op(project, x, w).findings} == {"SW401"}

    def mended(x, w, *, is_transposed=False):
        return x @ (w if is_transposed else w.t())

    assert stridewise.check_op(mended, x, w).findings == ()
