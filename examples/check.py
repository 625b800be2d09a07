"""Find a kernel that is wrong for some layouts, and hold it to those that it takes."""

import ctypes

import torch

import stridewise


def twice(x: torch.Tensor) -> torch.Tensor:
    """A kernel of the usual kind: an address, and a number of elements. It is right for contiguous tensors only."""
    y = x.new_empty(x.shape)
    ctypes.memmove(y.data_ptr(), x.data_ptr(), x.numel() * x.element_size())
    return y.mul_(2)


sample = torch.arange(12.0).reshape(3, 4)
print(stridewise.check_op(twice, sample))

safe = stridewise.expect_layout(x="contiguous", mode="convert")(twice)
stridewise.assert_honours_layout(safe, sample)
print("\nWith a contract that converts, every layout is right.")

model = torch.nn.Linear(4, 8)
model.weight = torch.nn.Parameter(torch.randn(8, 8)[:, ::2])  # a slice: its neighbours are somebody else's
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
print()
print(stridewise.preflight(model, optimizer))
