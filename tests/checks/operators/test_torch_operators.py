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


@pytest.mark.parametrize("name", HONEST)
def test_it_honours_strides(name):
    op, args, kwargs = sample(name)
    found = check_op(op, *args, kwargs=kwargs, name=name, fake=False)
    assert [(finding.message, finding.evidence) for finding in found.findings] == []
    assert found.ok
    assert found.left == 0
    assert {operand.verdict for operand in found.operands} == {"honours strides"}
