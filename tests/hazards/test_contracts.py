"""Rows that a contract answers: kernels that ask something of a layout which the caller can't see."""

import pytest
import torch

from stridewise.checks.contracts import expect_layout
from stridewise.errors import ContractError

from .rows import hazard


def named(call, *args):
    """What the contract says, which must be SW408."""
    with pytest.raises(ContractError) as caught:
        call(*args)
    assert caught.value.finding.code == "SW408"
    return str(caught.value)


def flash_attention(q, k, v):
    """The kernel of the CPU, as a program that goes around `scaled_dot_product_attention` calls it."""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0]


@hazard(7, 46, code="SW408")
def test_a_kernel_that_takes_the_last_stride_for_1():
    """Attention called directly reads other elements where the last dimension has steps; no error."""
    q, k, v = (torch.randn(1, 2, 8, 32)[..., ::2] for _ in range(3))
    right = torch.nn.functional.scaled_dot_product_attention(q.clone(), k.clone(), v.clone())
    assert not torch.allclose(flash_attention(q, k, v), right, atol=0.01), "torch is healed"
    held = expect_layout(q="last_stride_1", k="last_stride_1", v="last_stride_1")(flash_attention)
    said = named(held, q, k, v)
    assert "Dimension 3 has stride 2" in said
    assert "Write `q.contiguous()`" in said
    assert torch.allclose(held(q.contiguous(), k.contiguous(), v.contiguous()), right, atol=1e-5)


@hazard(47, code="SW408")
def test_contiguous_leaves_a_last_stride_that_a_kernel_refuses():
    """A dimension of size 1 keeps its odd stride through contiguous(), and view(dtype) reads it."""
    odd = torch.empty_strided((4, 1), (1, 2))
    odd.zero_()
    assert odd.is_contiguous()
    with pytest.raises(RuntimeError, match=r"stride\(-1\) must be 1|self.stride"):
        odd.contiguous().view(torch.int8)
    held = expect_layout(x="last_stride_1")(lambda x: x.view(torch.int8))
    assert "Write `x.clone(memory_format=torch.contiguous_format)`" in named(held, odd)
    assert held(odd.clone(memory_format=torch.contiguous_format)).shape == (4, 4)


@hazard(48, code="SW408")
def test_a_part_of_a_split_is_contiguous_for_a_batch_of_one_only():
    """A kernel's check passes in every test with one image, and fails, or its values do, with two."""

    def kernel(x):  # what a kernel does that is handed a pointer
        return x.as_strided(x.shape, torch.empty(x.shape).stride(), x.storage_offset()) * 2

    held = expect_layout(x="contiguous")(kernel)
    one, two = torch.randn(1, 8, 2, 2).split(4, dim=1)[1], torch.randn(2, 8, 2, 2).split(4, dim=1)[1]
    assert torch.equal(held(one), one * 2)
    assert not torch.equal(kernel(two), two * 2)
    assert "dimension 0 has stride 32, without holes it would need 16" in named(held, two)
    assert torch.equal(held(two.contiguous()), two * 2)


@hazard(20, 21, code="SW408")
def test_a_backward_that_reads_the_gradient_flat():
    """The gradient of a sum is one element with stride 0, that of a transpose has the other order."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            flat = grad.untyped_storage().nbytes() // 4
            return 2 * grad.as_strided((min(flat, grad.numel()),), (1,)).clone().resize_(grad.shape)

    def step(function, last):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        last(function.apply(x)).backward()
        return x.grad

    def transposed(y):
        return (y.t() * torch.arange(6.0).reshape(3, 2)).sum()

    right = 2 * torch.arange(6.0).reshape(3, 2).t()
    assert not torch.equal(step(Double, transposed), right)
    held = expect_layout(grads="contiguous")(type("Held", (Double,), {}))
    said = named(step, held, transposed)
    assert "needs the gradient of output to be contiguous" in said
    assert "stride 0" in named(step, held, torch.sum)
    converting = expect_layout(grads="contiguous", mode="convert")(type("Converting", (Double,), {}))
    assert torch.equal(step(converting, transposed), right)
    assert torch.equal(step(converting, torch.sum), torch.full((2, 3), 2.0))
