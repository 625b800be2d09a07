"""Helpers of the rules' tests: tensors of every layout, the copies that a call makes, and what may differ in a fix."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Program = Callable[..., Any]
_COPIES = ("clone", "_to_copy", "copy_")


class Subclass(torch.Tensor):
    """A tensor of another class, as libraries derive them."""


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.copies += func.overloadpacket._qualified_op_name.removeprefix("aten::") in _COPIES
        return func(*args, **(kwargs or {}))


def copies(program: Program, *inputs: torch.Tensor) -> int:
    """How many copies of whole tensors a program asks for; those that kernels make inside are not counted."""
    with _Counting() as counting:
        program(*inputs)
    return counting.copies


class _Watching(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.same: list[bool] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "contiguous":
            self.same.append(result is args[0])
        return result


def contiguous_calls(program: Program, *inputs: torch.Tensor) -> list[bool]:
    """Of each call of `contiguous`, whether it returned the tensor itself."""
    with _Watching() as watching:
        program(*inputs)
    return watching.same


@st.composite
def tensors(draw: st.DrawFn, *, ranks: tuple[int, int] = (1, 4)) -> torch.Tensor:
    """Tensors that are contiguous, permuted, channels_last, sliced, expanded, of size 1 or 0, and so on."""
    sizes = draw(st.lists(st.sampled_from((0, 1, 2, 3, 4, 2, 3)), min_size=ranks[0], max_size=ranks[1]))
    tensor = torch.arange(64 * 4 ** len(sizes), dtype=torch.float32)[: 2 * max(1, _product([2 * n for n in sizes]))]
    tensor = tensor[: _product([2 * n for n in sizes])].reshape([2 * n for n in sizes])
    for dim, size in enumerate(sizes):
        part = draw(st.sampled_from(("whole", "step", "start", "expand")))
        if part == "whole":
            tensor = tensor.narrow(dim, 0, size).clone()
        elif part == "expand" and size:
            tensor = tensor.narrow(dim, 0, 1).expand(*[size if at == dim else -1 for at in range(len(sizes))])
        else:
            tensor = tensor[(slice(None),) * dim + (slice(None, None, 2) if part == "step" else slice(size),)]
    tensor = tensor.permute(draw(st.permutations(range(len(sizes)))))
    kind = draw(st.sampled_from(("plain", "plain", "plain", "contiguous", "channels_last", "subclass", "gradient")))
    if kind == "contiguous":
        return tensor.contiguous()
    if kind == "channels_last" and tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    if kind == "gradient":
        return tensor.requires_grad_() if tensor.is_leaf else tensor
    return tensor.as_subclass(Subclass) if kind == "subclass" else tensor


class Seen(NamedTuple):
    """What a program gives for one tensor."""

    kind: type
    values: list[Any]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """Those of dimensions of size 1, and of tensors without elements, mean nothing and are 0 here."""
    is_itself: bool
    shares_memory: bool
    needs_gradient: bool
    gradient: list[Any] | None


def seen(program: Program, tensor: torch.Tensor) -> Seen:
    """Run a program and look at what it gives."""
    result = program(tensor)
    sizes = tuple(result.shape)
    gradient = None
    if result.requires_grad:
        weights = torch.arange(result.numel(), dtype=result.dtype).reshape(sizes)
        gradient = torch.autograd.grad(result, tensor, weights)[0].tolist()
    return Seen(
        type(result),
        result.tolist(),
        sizes,
        tuple(
            0 if size == 1 or not result.numel() else step for size, step in zip(sizes, result.stride(), strict=True)
        ),
        result is tensor,
        result.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() and bool(result.numel()),
        result.requires_grad,
        gradient,
    )


def _product(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
