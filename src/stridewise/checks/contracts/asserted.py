"""`assert_layout`: a tensor of a test has the layout that it should have, or the test says what it has, and why."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from stridewise import layout
from stridewise.checks.contracts import kinds
from stridewise.errors import UsageError
from stridewise.layout import Layout, LayoutClass

if TYPE_CHECKING:
    import torch

_CLASSES: tuple[str, ...] = get_args(LayoutClass)
_EXPLAINED = ("contiguous", "dense", "non_overlapping")
"""What `layout.explain` says enough of."""
_NAMES = tuple(dict.fromkeys((*_CLASSES, *kinds.KINDS)))


def assert_layout(tensor: torch.Tensor, expected: str | torch.memory_format | Sequence[int]) -> None:
    """Raise AssertionError unless a tensor has a layout; it says what the tensor has, why, and what would make it so.

    `expected` is a layout class (`contiguous`, `channels_last`, `channels_last_3d`, `permuted`, `expanded`,
    `overlapping`, `gapped`), a kind that `expect_layout` knows (`dense`, `last_stride_1`, `non_overlapping`), a
    `torch.memory_format`, or strides, in elements. As for `Tensor.is_contiguous`, dimensions of size 1 don't count,
    and a tensor can be of several classes. Raises UsageError for anything else.
    """
    __tracebackhide__ = True
    import torch

    from stridewise.recorder.tensors import layout_of

    if not isinstance(tensor, torch.Tensor):
        raise UsageError(f"assert_layout was given {type(tensor).__name__}.", expected="Expected: a tensor.")
    wanted = _strides(expected) if isinstance(expected, Sequence) and not isinstance(expected, str) else _name(expected)
    given = layout_of(tensor, fake=True)
    if isinstance(given, str):
        raise AssertionError(f"the tensor has no strides to be {_shown(wanted)}: {given}")
    if not _holds(given, wanted):
        raise AssertionError("\n".join(_said(given, wanted, tensor.element_size())))


def _strides(expected: Sequence[Any]) -> tuple[int, ...]:
    if not all(type(stride) is int and stride >= 0 for stride in expected):
        raise UsageError(f"assert_layout: {tuple(expected)} are no strides.", expected="Expected: numbers from 0 on.")
    return tuple(expected)


def _name(expected: object) -> str:
    import torch

    if isinstance(expected, torch.memory_format):
        name = str(expected).removeprefix("torch.").removesuffix("_format")
        if name != "preserve":
            return name
    if isinstance(expected, str) and expected in _NAMES:
        return expected
    near = get_close_matches(expected, _NAMES, n=1) if isinstance(expected, str) else []
    hint = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(_NAMES)}, a memory format, or strides."
    raise UsageError(f"assert_layout: {expected!r} is no layout.", expected=hint)


def _holds(given: Layout, wanted: str | tuple[int, ...]) -> bool:
    if isinstance(wanted, str):
        return wanted in layout.classes(given) if wanted in _CLASSES else kinds.meets(wanted, given)
    if len(wanted) != given.ndim:
        return False
    return kinds.first_difference(given, Layout(given.sizes, wanted)) is None


def _said(given: Layout, wanted: str | tuple[int, ...], itemsize: int) -> list[str]:
    held = layout.name(given)
    but = f"the layout is {held}, not {_shown(wanted)}"
    lines = [f"{but}: sizes {given.sizes}, strides {given.strides}", layout.explain(given, itemsize)]
    cure = _cure(given, wanted)
    return [*lines, *_why_not(given, wanted), *([f"It would be with {cure}"] if cure else [])]


def _why_not(given: Layout, wanted: str | tuple[int, ...]) -> list[str]:
    """What can't be told from the strides that the tensor has."""
    if not isinstance(wanted, str):
        if len(wanted) != given.ndim:
            return [f"It has {given.ndim} dimensions, and {len(wanted)} strides are expected."]
        dim = kinds.first_difference(given, Layout(given.sizes, wanted))
        return [f"Dimension {dim} has stride {given.strides[dim or 0]}, {wanted[dim or 0]} is expected."]
    if wanted not in kinds.KINDS:
        return []
    return [kinds.fault(kinds.Kind(wanted), given)] if wanted not in _EXPLAINED else []


def _cure(given: Layout, wanted: str | tuple[int, ...]) -> str | None:
    """An expression that gives the tensor that layout, with a copy; None where there is none."""
    if isinstance(wanted, str):
        return kinds.cure(kinds.Kind(wanted), "x", given) if wanted in kinds.KINDS else None
    if len(wanted) != given.ndim:
        return None
    target = Layout(given.sizes, wanted)
    if "contiguous" in layout.classes(target):
        return "x.contiguous()"
    for name in kinds.FORMATS:
        if layout.is_contiguous(target, name):
            return f"x.contiguous(memory_format=torch.{name})"
    if layout.is_overlapping(target):
        return None
    return f"torch.empty_strided({given.sizes}, {wanted}, dtype=x.dtype, device=x.device).copy_(x)"


def _shown(wanted: str | tuple[int, ...]) -> str:
    return wanted if isinstance(wanted, str) else f"of strides {wanted}"
