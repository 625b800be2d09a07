"""The layouts of tensors as contracts see them, and copies that have another. Torch is imported inside functions."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from stridewise.checks.contracts import private
from stridewise.checks.contracts.kinds import SAME_AS, Kind, are_dense, are_nested, meets, order_of
from stridewise.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def plain_types() -> frozenset[type]:
    """The classes of tensors that are what they show."""
    from torch import Tensor, nn

    return frozenset({Tensor, nn.Parameter, nn.parameter.Buffer})


def fast_test(kind: Kind) -> Callable[[Any], bool] | None:
    """A function that says in under a microsecond that a tensor is of a kind; when it fails, `layout_of` decides.

    None for a kind that looks at another argument.
    """
    import torch

    is_contiguous = torch.Tensor.is_contiguous
    if kind.predicate is not None:
        return kind.predicate
    if kind.name in ("channels_last", "channels_last_3d"):
        return partial(is_contiguous, memory_format=getattr(torch, kind.name))
    if kind.name == "contiguous":
        return is_contiguous
    if kind.name == "last_stride_1":
        return _last_stride_is_1
    if kind.name == SAME_AS:
        return None
    name = kind.name

    def test(tensor: Any) -> bool:
        return bool(is_contiguous(tensor)) or _meets(name, tensor.shape, tensor.stride())

    return test


@lru_cache(4096)
def _meets(kind: str, sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """The answer of the algebra, which takes longer than a contract may; programs use few layouts many times."""
    return meets(kind, Layout(tuple(sizes), strides))


def _last_stride_is_1(tensor: Any) -> bool:
    # A tensor without dimensions has no last one: the IndexError is the caller's to take for "look closer".
    return bool(tensor.stride(-1) == 1)


def are_alike(tensor: Any, other: Any) -> bool:
    """Whether sizes and strides are equal, those of size-1 dimensions too: a quick yes."""
    return bool(tensor.stride() == other.stride() and tensor.shape == other.shape)


def layout_of(tensor: Tensor) -> Layout | str | None:
    """A tensor's layout; in words what it is instead if it has no strides; None if its class answers for itself.

    Fake tensors and those of a functorch transform have the strides that they show: inside `vmap`, of one sample.
    """
    import torch

    if tensor.is_nested:
        return "nested, without strides"
    if private.has_own_dispatch(tensor):
        return None
    if tensor.layout is not torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')}, without strides"
    try:
        return Layout(tuple(tensor.shape), tuple(tensor.stride()))
    except (RuntimeError, NotImplementedError):
        return "without strides that can be read"


def meets_when_traced(kind: str, tensor: Tensor, other: Tensor | None) -> bool:
    """Whether a tensor is of a kind, in words that Dynamo can trace."""
    import torch

    if tensor.layout is not torch.strided:
        return False
    if kind == "contiguous":
        return tensor.is_contiguous()
    if kind == "channels_last":
        return tensor.is_contiguous(memory_format=torch.channels_last)
    if kind == "channels_last_3d":
        return tensor.is_contiguous(memory_format=torch.channels_last_3d)
    if kind == "last_stride_1":
        return tensor.dim() == 0 or tensor.stride(-1) == 1
    if kind == "dense":
        return tensor.is_contiguous() or are_dense(tensor.shape, tensor.stride())
    if kind == "non_overlapping":
        return tensor.is_contiguous() or are_nested(tensor.shape, tensor.stride())
    if other is None or tensor.shape != other.shape:
        return False
    return all(tensor.size(dim) == 1 or tensor.stride(dim) == other.stride(dim) for dim in range(tensor.dim()))


def converted(tensor: Tensor, kind: str, other: Tensor | None = None) -> Tensor:
    """A copy that is dense in the order that a kind asks for. Gradients and transforms go through it."""
    import torch

    given = None if other is None else Layout(tuple(other.shape), tuple(other.stride()))
    return in_order(tensor, order_of(kind, tensor.dim(), given), torch.contiguous_format)


def in_order(tensor: Tensor, order: tuple[int, ...], contiguous_format: Any) -> Tensor:
    """A copy whose dimensions lie in memory in that order, outermost first."""
    if order == tuple(range(len(order))):
        return tensor.clone(memory_format=contiguous_format)
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(order).clone(memory_format=contiguous_format).permute(back)


def is_changed(copy: Tensor, version: int, original: Tensor | None) -> bool:
    """Whether a copy was written to since it had that version.

    A kernel that was handed a pointer counts nothing: its values are compared with those of `original`.
    """
    if version >= 0 and copy._version != version:
        return True
    if original is None:
        return False
    try:
        return not _have_equal_bits(copy, original)
    except (RuntimeError, NotImplementedError):  # no values to compare: fake, or inside a transform
        return False


def _have_equal_bits(first: Tensor, second: Tensor) -> bool:
    import torch

    with torch.no_grad():
        return torch.equal(_bits(first), _bits(second))


def _bits(tensor: Tensor) -> Tensor:
    import torch

    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(integers[tensor.element_size()])


def version_of(tensor: Tensor) -> int:
    """How often it was written to; -1 where torch does not count."""
    return -1 if tensor.is_inference() else tensor._version
