"""Operators that give other things than tensors, and samples that are no ordinary ones: nothing wrong passes unseen."""

import pytest
import torch
from torch import Tensor, nn

from stridewise.checks.operators.check import check_op
from stridewise.checks.operators.pytest_help import assert_honours_layout
from stridewise.errors import UsageError


def flat(x: Tensor) -> Tensor:
    """Its memory in a row, whatever its strides."""
    return torch.as_strided(x, (x.numel(),), (1,), x.storage_offset()).reshape(x.shape)


def codes(fn, *sample) -> set[str]:
    return {finding.code for finding in check_op(fn, *sample, fake=False, gradients=False).findings}


def x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(3, 4)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: flat(x).unique(),
        lambda x: (flat(x) > 0).nonzero(),
        lambda x: x if x.is_contiguous() else x[:2],
        lambda x: int(flat(x)[0].argmax()),
        lambda x: (2 * x, float(flat(x)[0].sum())),
        lambda x: {"rows": flat(x).tolist()},
        lambda x: flat(x).numpy(),
        lambda x: flat(x).to_sparse(),
    ],
    ids=["unique", "nonzero", "sizes", "int", "float in a tuple", "lists", "numpy", "sparse"],
)
def test_whatever_it_gives_is_compared(fn):
    assert "SW401" in codes(fn, x())


@pytest.mark.parametrize(
    "fn",
    [lambda x: float(x.sum()), lambda x: x.sum(0).tolist(), lambda x: (x > 0).numpy(), lambda x: x.shape[0]],
    ids=["float", "list", "numpy", "int"],
)
def test_right_numbers_are_right(fn):
    assert codes(fn, x()) == set()


def test_what_gives_nothing_is_not_called_right():
    result = check_op(lambda x: None, x())
    assert {operand.verdict for operand in result.operands} == {"not comparable"}


def test_a_kernel_that_takes_what_it_gets_for_float32_is_not_run_with_another_dtype():
    import ctypes

    def twice(x):
        y = torch.empty(x.shape)
        ctypes.memmove(y.data_ptr(), x.data_ptr(), x.numel() * x.element_size())
        return y.mul_(2)

    assert codes(twice, x()) == {"SW401"}


@pytest.mark.parametrize("dtype", [torch.uint16, torch.float8_e4m3fn], ids=str)
def test_dtypes_that_torch_has_few_kernels_for_are_said_to_be_so(dtype):
    with pytest.raises(UsageError, match="few kernels"):
        check_op(lambda x: x.float(), x().to(dtype))
    assert codes(lambda x, y: x.float() + y, torch.ones(3, 4).to(dtype), x()) == set()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": "x"}, "A timeout of 'x'"),
        ({"tolerance": 2}, "A tolerance of 2"),
        ({"kwargs": [1]}, "kwargs are list"),
    ],
)
def test_odd_options_are_one_message(options, said):
    with pytest.raises(UsageError, match=said):
        check_op(torch.relu, x(), **options)


def test_huge_samples_are_refused_at_once():
    with pytest.raises(UsageError, match="a small sample"):
        check_op(torch.relu, torch.zeros(1).expand(1 << 17, 1 << 15))


def test_codes_can_be_left_out_of_the_assertion():
    assert_honours_layout(flat, x(), ignore=["SW4"])
    with pytest.raises(AssertionError, match="SW401"):
        assert_honours_layout(flat, x())


def test_a_contract_that_a_module_needs_is_told():
    class Flat(nn.Module):
        def forward(self, x):
            return 2 * flat(x)

    result = check_op(Flat(), x(), contract=True)
    assert any('x="contiguous"' in note for note in result.notes) or result.contract is not None
