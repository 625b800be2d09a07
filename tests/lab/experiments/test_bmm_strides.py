"""The rule for what cuBLAS can read as it is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise.lab.experiments.bmm_strides import copies_by_product, gemm_operand


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        (torch.empty(4, 3, 5), ("N", 5)),
        (torch.empty(4, 5, 3).transpose(1, 2), ("T", 3)),
        (torch.empty(3, 4, 5).transpose(0, 1), ("N", 20)),
        (torch.empty(1, 3, 5).expand(4, 3, 5), ("N", 5)),
        (torch.empty(4, 3, 10)[..., :5], ("N", 10)),
        (torch.empty(4, 3, 10)[..., ::2], None),
        (torch.empty(3, 5, 4).permute(2, 0, 1), None),
        (torch.empty(4, 1, 5).expand(4, 3, 5), None),
    ],
    ids=["dense", "columns", "batch and rows", "one matrix", "wide rows", "steps", "batch innermost", "one row"],
)
def test_known_layouts(operand, expected):
    assert gemm_operand(operand) == expected


@given(st.tuples(*[st.integers(1, 4)] * 3), st.tuples(*[st.integers(0, 6)] * 3))
def test_a_flag_and_a_leading_dimension_find_every_element(sizes, strides):
    operand = torch.arange(200.0).as_strided(sizes, strides)
    found = gemm_operand(operand)
    if found is None:
        return
    flag, leading = found
    memory = torch.arange(200.0)
    for matrix, values in enumerate(operand):
        for row, column in torch.cartesian_prod(*map(torch.arange, sizes[1:])).view(-1, 2).tolist():
            at = row * leading + column if flag == "N" else column * leading + row
            assert memory[matrix * strides[0] + at] == values[row, column]


def test_copies_belong_to_the_product_before_them():
    ops = ["aten::copy_", "aten::bmm", "aten::bmm", "aten::clone", "aten::copy_", "aten::copy_", "aten::bmm"]
    assert copies_by_product(ops) == [0, 2, 0]
    assert copies_by_product([]) == []
