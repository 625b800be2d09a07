"""Operators of torch, of many kinds, honour strides; those that do not are listed, with what is wrong."""

import random

import pytest
import torch

from stridewise.checks.operators.check import check_op

pytest.importorskip("expecttest", reason="torch's database of operators needs the package expecttest")
from torch.testing._internal.common_methods_invocations import op_db

ELEMENTWISE = (
    *("add", "mul", "pow", "where", "lerp", "sigmoid", "exp", "log1p", "abs", "complex", "bitwise_and"),
    *("nn.functional.silu", "nn.functional.relu", "nn.functional.glu"),
)
REDUCING = (
    *("sum", "mean", "argmax", "prod", "std", "logsumexp", "norm", "median", "cumsum", "cummax", "softmax", "sort"),
    *("topk", "kthvalue", "unique", "trace"),
)
PRODUCTS = (
    *("bmm", "mm", "addmm", "mv", "dot", "einsum", "tensordot", "outer", "nn.functional.linear", "linalg.inv"),
    *("linalg.cholesky", "linalg.qr", "linalg.svd", "linalg.det", "fft.fft"),
)
LAYERS = (
    *("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.layer_norm", "nn.functional.group_norm"),
    *("nn.functional.max_pool2d", "nn.functional.avg_pool2d", "nn.functional.adaptive_avg_pool2d"),
    *("nn.functional.interpolate", "nn.functional.pixel_shuffle", "nn.functional.pad", "nn.functional.embedding"),
    *("nn.functional.cross_entropy", "nn.functional.kl_div", "nn.functional.scaled_dot_product_attention"),
)
INDEXING = (
    *("gather", "scatter", "index_select", "index_put", "take", "masked_fill", "masked_select", "searchsorted"),
    *("cat", "stack", "roll", "flip", "repeat", "tril", "diagonal", "permute", "reshape", "expand"),
)
HONEST = (*ELEMENTWISE, *REDUCING, *PRODUCTS, *LAYERS, *INDEXING)

MOST_SAMPLES = 40


def sample(name):
    """An operator, and of its first samples the one with the most dimensions; equal in every run."""
    op = next(entry for entry in op_db if entry.name == name)
    dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
    torch.manual_seed(0)
    random.seed(0)
    found = [
        each for each, _ in zip(op.sample_inputs("cpu", dtype, requires_grad=False), range(MOST_SAMPLES), strict=False)
    ]
    best = max(found, key=dimensions)
    return op.op, (best.input, *best.args), best.kwargs


def dimensions(sample_input):
    first = sample_input.input if isinstance(sample_input.input, (list, tuple)) else [sample_input.input]
    given = [*first, *sample_input.args, *sample_input.kwargs.values()]
    return max(sum(size > 1 for size in value.shape) for value in given if isinstance(value, torch.Tensor))


def test_there_are_enough():
    assert len(set(HONEST)) == len(HONEST) >= 60


@pytest.mark.needs_torch("2.7", "MKL refuses an expanded gradient", "[fft.fft]")
@pytest.mark.needs_torch("2.7", "whether a singular matrix raises depends on its layout", "[linalg.inv]")
@pytest.mark.parametrize("name", HONEST)
def test_it_honours_strides(name):
    op, args, kwargs = sample(name)
    found = check_op(op, *args, kwargs=kwargs, name=name, fake=False)
    assert [(finding.message, finding.evidence) for finding in found.findings] == []
    assert found.ok
    assert found.left == 0
    assert {operand.verdict for operand in found.operands} == {"honours strides"}


# ------------------------------------------------------------------------------------- those that do not, on this torch


def kron(x):
    return torch.kron(torch.ones(1, 2), x)


def gelu(x):
    return torch.nn.functional.gelu(x)


def batch_norm(x):
    return torch.nn.functional.batch_norm(x, None, None, training=True)


def isin(x):
    return torch.isin(x, torch.arange(2))


def promised(fn, x):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return fn(mode.from_tensor(x)).stride()


def named(fn, x):
    return [(finding.code, finding.severity) for finding in check_op(fn, x).findings]


def test_kron_refuses_a_transposed_operand():
    """The smallest: a matrix of 2 x 2."""
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        kron(torch.ones(2, 2).t())
    assert named(kron, torch.ones(2, 2)) == [("SW407", "note")]


def test_the_backward_of_gelu_refuses_a_gradient_that_is_every_second_column_of_an_odd_number():
    """The smallest: a gradient of 2 x 2 with strides (3, 2), of which oneDNN can't make a descriptor."""
    x = torch.randn(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="could not construct a memory descriptor"):
        gelu(x).backward(torch.randn(2, 3)[:, ::2])
    gelu(x).backward(torch.randn(2, 4)[:, ::2])
    found = check_op(gelu, torch.randn(2, 2))
    assert [(finding.code, finding.severity) for finding in found.findings] == [("SW407", "note")]
    assert "for a gradient that is every second element" in found.findings[0].message


@pytest.mark.parametrize(
    ("fn", "x"),
    [(batch_norm, torch.randn(1, 1, 2, 2).transpose(2, 3)), (isin, torch.arange(4).reshape(2, 2).t())],
    ids=["batch_norm", "isin"],
)
def test_promises_that_torchs_own_operators_break(fn, x):
    """The smallest: an image, or a matrix, of 2 x 2, transposed. The promise is a transposed result."""
    assert promised(fn, x) == x.stride()
    assert fn(x).stride() != x.stride()
    assert named(fn, x) == [("SW403", "note")]
