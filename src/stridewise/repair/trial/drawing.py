"""Random numbers that do not depend on layout: each element of a tensor draws its own, wherever it lies in memory."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


class DrawnInPlace(TorchDispatchMode):
    """Makes operators that draw random numbers draw them in row-major order of the elements.

    torch draws in the order in which elements lie in memory: dropout on a transposed tensor drops other elements than
    on its contiguous copy. Neither is wrong, but results can't be compared.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws = 0
        """How many operators drew."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        self.draws += 1
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if not tensors:
            return func(*args, **kwargs)
        args_in_order, kwargs_in_order = tree_map_only(Tensor, _in_order, (args, kwargs))
        result = func(*args_in_order, **kwargs_in_order)
        if func._schema.is_mutable:
            for given, used in zip(args, args_in_order, strict=True):
                if isinstance(given, Tensor) and used is not given:
                    given.copy_(used)
            return tree_map_only(Tensor, lambda made: _the_given(made, args, args_in_order), result)
        return tree_map_only(Tensor, lambda made: _laid_like(made, tensors[0]), result)


def _in_order(tensor: Tensor) -> Tensor:
    return tensor.contiguous()


def _the_given(made: Tensor, given: Any, used: Any) -> Tensor:
    return next((old for old, new in zip(given, used, strict=True) if new is made), made)


def _laid_like(made: Tensor, like: Tensor) -> Tensor:
    """A result in the strides that it would have had: those of the input, where it has its sizes."""
    if made.shape != like.shape or made.stride() == like.stride():
        return made
    return torch.empty_like(like, dtype=made.dtype).copy_(made)
