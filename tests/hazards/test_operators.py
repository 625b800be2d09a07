"""Rows that a check of the operator answers: kernels that read, write or refuse by layout, and torch's own faults."""

import functools

import pytest
import torch
import torch.nn.functional as F

from stridewise.checks.operators.check import check_op

from ..checks.operators import kernels as K
from ..linter.texts import findings as linted
from .rows import hazard


def checked(fn, *sample, **options):
    options.setdefault("fake", False)
    return check_op(fn, *sample, **options)


def codes(fn, *sample, **options):
    return {finding.code for finding in checked(fn, *sample, **options).findings}


def advice(fn, *sample, **options):
    (finding,) = checked(fn, *sample, **options).findings
    return finding.advice


def twice(x):
    """What each of the kernels should give."""
    return 2 * x.clone()


# ------------------------------------------------------------------------------------------------------ torch's own


def flash(query, key, value):
    """Attention as a program calls it that goes around `scaled_dot_product_attention`."""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)[0]


@hazard(7, 46, code="SW401")
def test_attention_called_directly_takes_the_last_stride_for_1():
    """Flash attention of the CPU reads and writes other elements where the last dimension has another stride than 1."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 3, 4) for _ in range(3))
    strided = q.mT.contiguous().mT
    right = flash(q, k, v)
    assert not torch.allclose(flash(strided, k, v), right, atol=0.01), "torch is healed"
    attend = functools.partial(flash, key=k, value=v)
    told = {finding.code: finding for finding in checked(attend, q, gradients=False).findings}
    assert "for `query`" in told["SW401"].message
    assert "`query = query.contiguous()`" in told["SW401"].advice

    def mended(query):
        return attend(query.contiguous())

    assert torch.allclose(mended(strided), right, atol=1e-5)
    assert "SW401" not in codes(mended, q, gradients=False)


@hazard(12, code=None)
def test_matmul_into_a_strided_output_is_right_here():
    """It left `out` as it was, on another device."""

    def into(x, y, out):
        return torch.matmul(x, y, out=out)

    found = checked(into, torch.randn(3, 4), torch.randn(4, 5), torch.zeros(3, 5))
    assert found.findings == ()
    assert found.operands[2].role == "out"


@hazard(31, code=None)
@pytest.mark.parametrize(
    ("fn", "sample"),
    [
        (torch.bucketize, (torch.randn(3, 4), torch.tensor([-1.0, 0.0, 1.0]))),
        (torch.isin, (torch.arange(6).reshape(2, 3), torch.tensor([1, 2, 3]))),
        (lambda x, index, y: x.index_add_(0, index, y), (torch.ones(5, 3), torch.tensor([0, 2, 4]), torch.ones(3, 3))),
        (lambda x, y: torch.einsum("ij,jk->ik", x, y), (torch.randn(3, 4), torch.randn(4, 5))),
        (F.conv_transpose2d, (torch.ones(1, 1, 2, 2), torch.ones(1, 2, 5, 5))),
        (torch.addmm, (torch.randn(3, 5), torch.randn(3, 4), torch.randn(4, 5))),
    ],
    ids=["bucketize", "isin", "index_add_", "einsum", "conv_transpose2d", "addmm"],
)
def test_operators_that_were_wrong_and_are_healed(fn, sample):
    """Each was wrong for some strided operand, in some version."""
    assert checked(fn, *sample).findings == ()


@hazard(32, code=None)
def test_another_algorithm_for_another_layout_is_no_fault():
    """A convolution of equal images differs in its last digits by their layout; that must not be flagged."""
    torch.manual_seed(0)
    convolution, x = torch.nn.Conv2d(64, 8, 3), 100 * torch.randn(2, 64, 5, 5)
    one, other = convolution(x), convolution(x.to(memory_format=torch.channels_last))
    assert not torch.equal(one, other), "both layouts take the same algorithm"
    assert torch.allclose(one, other, atol=1e-3)
    assert checked(convolution, x).findings == ()
    assert codes(torch.nn.BatchNorm2d(64), x) == set()


@hazard(37, code="SW407")
def test_kron_refuses_a_transposed_operand():
    """It calls `view` inside."""
    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        torch.kron(x, y.t())
    found = checked(torch.kron, x, y)
    assert [(finding.code, finding.severity) for finding in found.findings] == [("SW407", "note")] * 2
    assert "x = x.contiguous()" in found.findings[0].advice

    def mended(x, y):
        return torch.kron(x.contiguous(), y.contiguous())

    assert codes(mended, x, y) == set()


@hazard(47, code="SW407")
def test_view_as_another_dtype_refuses_odd_strides_that_contiguous_leaves():
    """A dimension of size 1 may have any stride; `contiguous()` keeps it, and `view(dtype)` looks at it."""
    odd = torch.arange(8).reshape(1, 8).t().as_strided((8, 1), (1, 8))
    assert odd.is_contiguous()
    with pytest.raises(RuntimeError, match=r"stride\(-1\) must be 1"):
        odd.contiguous().view(torch.int8)
    (finding,) = checked(lambda x: x.contiguous().view(torch.int8), torch.arange(8).reshape(8, 1)).findings
    assert finding.code == "SW407"
    assert "with odd strides where its size is 1" in finding.message

    def mended(x):
        return x.clone(memory_format=torch.contiguous_format).view(torch.int8)

    assert mended(odd).shape == (8, 8)
    assert codes(mended, torch.arange(8).reshape(8, 1)) == set()


@hazard(33, code="SW407")
def test_view_of_what_topk_and_a_transpose_gave():
    """`topk().t()` is column-major, so is what `eq` makes of it, and `view(-1)` raises."""

    def accuracy(correct):
        return correct[:1].view(-1).float().sum(), correct[:2].view(-1).float().sum()

    best = torch.randn(4, 5).topk(3, 1)[1].t()
    correct = best.eq(torch.arange(4).view(1, -1).expand_as(best))
    with pytest.raises(RuntimeError, match=r"view size is not compatible|Use \.reshape"):
        accuracy(correct)
    sample = torch.ones(3, 4, dtype=torch.bool)
    assert codes(accuracy, sample) == {"SW407"}
    assert "`reshape` in the place of `view`" in advice(accuracy, sample)

    def mended(correct):
        return correct[:1].reshape(-1).float().sum(), correct[:2].reshape(-1).float().sum()

    mended(correct)
    assert codes(mended, sample) == set()


@hazard(34, code="SW407")
def test_view_behind_a_convolution():
    """Permuted images make the convolution give channels_last, which the view can't take."""
    weight, x = torch.randn(4, 3, 2, 2), torch.randn(2, 3, 5, 5)

    def flat(x):
        return F.conv2d(x, weight).view(x.shape[0], -1)

    def mended(x):
        return F.conv2d(x, weight).reshape(x.shape[0], -1)

    permuted = torch.randn(2, 5, 5, 3).permute(0, 3, 1, 2)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        flat(permuted)
    (finding,) = checked(flat, x).findings
    assert finding.code == "SW407"
    assert any("channels_last" in line for line in finding.evidence)
    assert mended(permuted).shape == (2, 64)
    assert codes(mended, x) == set()


ATTENTION = """
import torch
import torch.nn.functional as F

def attend(q, k, v):
    b, h, s, d = q.shape
    out = F.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).{call}(b, s, h * d)
"""


@hazard(35, code="SW317")
def test_view_behind_attention():
    """It works behind the kernel that gives (B, S, H, D) in memory, and raises behind the other one."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = {}
    exec(ATTENTION.format(call="view"), names)
    q, k, v = (torch.randn(2, 4, 2, 8).transpose(1, 2) for _ in range(3))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert names["attend"](q, k, v).shape == (2, 4, 16)
    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError, match="view size is not compatible"):
        names["attend"](q, k, v)
    assert [finding.code for finding in linted(ATTENTION.format(call="view"), "SW317")] == ["SW317"]
    assert linted(ATTENTION.format(call="reshape"), "SW317") == ()
    exec(ATTENTION.format(call="reshape"), names)
    with sdpa_kernel(SDPBackend.MATH):
        assert names["attend"](q, k, v).shape == (2, 4, 16)


# ------------------------------------------------------------------------------------- kernels, as reports tell of them


@hazard(16, 22, 23, 24, code="SW401")
def test_a_kernel_that_walks_memory_flat():
    """Parts of a `split` and slices are read with their neighbours; a transposed operand is right by luck."""
    part = torch.arange(24.0).reshape(3, 8).split(4, 1)[1]
    assert not torch.equal(K.both_flat(part), twice(part))
    assert torch.equal(K.both_flat(part.t().contiguous().t()), twice(part))
    assert codes(K.both_flat, *K.sample()) == {"SW401"}
    assert "Call `x = x.contiguous()`" in advice(K.both_flat, *K.sample())
    assert torch.equal(K.copies_first(part), twice(part))
    assert codes(K.copies_first, *K.sample()) == set()


@hazard(16, code="SW401")
def test_torchs_own_check_of_operators_passes_it():
    """`opcheck` of the same operator, on a part of a `split`, finds nothing."""
    op = K.operators()["right_by_luck"]
    part = torch.arange(24.0).reshape(3, 8).split(4, 1)[1]
    results = torch.library.opcheck(op, (part,), test_utils=("test_schema", "test_faketensor"))
    assert set(results.values()) == {"SUCCESS"}
    assert not torch.equal(op(part), twice(part))
    assert codes(op, *K.sample(), fake=True) == {"SW401"}


@hazard(17, code="SW401")
def test_an_output_that_keeps_the_strides_of_the_original():
    """The kernel reads a contiguous copy, and writes flat into what `empty_like` of the transposed operand gave."""
    x = torch.arange(12.0).reshape(4, 3).t()
    assert not torch.equal(K.empty_like_of_the_original(x), twice(x))
    assert codes(K.empty_like_of_the_original, *K.sample()) == {"SW401"}
    assert "Allocate the output with `x.new_empty(x.shape)`" in advice(K.empty_like_of_the_original, *K.sample())
    assert torch.equal(K.copies_first(x), twice(x))


@hazard(18, code="SW401")
def test_the_address_of_a_temporary():
    """`x.contiguous().data_ptr()` is the address of a copy that is gone when the kernel reads it."""
    assert codes(K.address_of_temporary, *K.sample()) == {"SW401"}
    assert "keep the result until it is done" in advice(K.address_of_temporary, *K.sample())
    assert codes(K.copies_first, *K.sample()) == set()


@hazard(28, code="SW401")
@pytest.mark.parametrize("kernel", [K.check_without_call, K.discards_contiguous], ids=["check", "copy"])
def test_contiguous_without_effect(kernel):
    """`assert x.is_contiguous` is always true, and `x.contiguous()` by itself does nothing."""
    x = torch.arange(12.0).reshape(4, 3).t()
    assert not torch.equal(kernel(x), twice(x))
    assert codes(kernel, *K.sample()) == {"SW401"}
    assert "Call `x = x.contiguous()`" in advice(kernel, *K.sample())


@hazard(19, code="SW405")
def test_a_write_that_goes_to_a_copy():
    """In place on `x.contiguous()`: right for a contiguous operand, and lost for any other."""
    x = torch.arange(12.0).reshape(4, 3).t()
    before = x.clone()
    assert torch.equal(K.in_place_on_copy(x), before)
    assert codes(K.in_place_on_copy, *K.sample()) == {"SW405"}
    assert "`x.copy_(dense)`" in advice(K.in_place_on_copy, *K.sample())

    def mended(x):
        return x.copy_(K.in_place_on_copy(x.contiguous()))

    assert torch.equal(mended(x), 2 * before)
    assert codes(mended, *K.sample()) == set()


@hazard(20, 21, code="SW404")
def test_a_backward_that_walks_its_gradient_flat():
    """Behind `sum()` the gradient is expanded, behind a transpose or a `cat` strided; gradcheck sees none of these."""
    x = torch.arange(1.0, 13).reshape(3, 4).requires_grad_()
    (wrong,) = torch.autograd.grad((K.FlatBackward.apply(x).t() * torch.arange(12.0).reshape(4, 3)).sum(), x)
    (right,) = torch.autograd.grad((K.RightBackward.apply(x).t() * torch.arange(12.0).reshape(4, 3)).sum(), x)
    assert not torch.equal(wrong, right)
    (finding,) = checked(K.FlatBackward, *K.sample()).findings
    assert finding.code == "SW404"
    assert "expanded, as behind sum()" in finding.message
    assert "`grad = grad.contiguous()`" in finding.advice
    assert codes(K.RightBackward, *K.sample()) == set()
