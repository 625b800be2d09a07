"""Whether two results are equal as far as their dtype allows, and how far they are off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from torch import Tensor, dtype

_STEPS = 84
"""Rounding steps of a dtype that another order of summation, or another algorithm, may make: 1e-5 for float32. A
convolution of channels_last images was seen 3e-7 of its largest result off, products of matrices less."""
_AMPLIFIED = 16
_ROUNDING = 0.01
_MOST_STEPS = 100
"""How much more may be allowed where the operator itself is that inexact."""


class Difference(Struct, frozen=True):
    """How a result differs from what it should be."""

    share: float
    """The largest difference, as a share of the largest magnitude of what it should be."""
    elements: int
    """How many differ by more than the tolerance."""
    of: int
    detail: str
    """In words."""


def tolerance_of(dtypes: Iterable[dtype]) -> float:
    """The share of a result's largest magnitude that counts as rounding: by its coarsest dtype."""
    import torch

    floats = [kind for kind in dtypes if kind.is_floating_point or kind.is_complex]
    coarsest = max((torch.finfo(kind).eps for kind in floats), default=0.0)
    return float(min(_STEPS * coarsest, 4 * coarsest if coarsest > 1e-4 else 1.0))


def calibrated(base: float, inexact: float | None) -> float:
    """The tolerance for an operator whose own result is `inexact` against the same in float64.

    None, or too far off to be rounding, is not taken into account.
    """
    if inexact is None or inexact > _MOST_STEPS * base:
        return base
    return min(max(base, 10 * inexact), _MOST_STEPS * base)


def difference(
    result: Tensor, expected: Tensor, tolerance: float, usual: float = 0.0, slack: Tensor | None = None
) -> Difference | None:
    """How a result differs from what it should be by more than a tolerance; None if it does not.

    The tolerance is a share of the largest magnitude, of this result or of what is `usual`: where all that is computed
    cancels out, only rounding is left. NaN equals NaN, and an infinity itself. What has no fractions has to be equal.
    `slack` is how much more each element may differ.
    """
    if result.shape != expected.shape:
        return Difference(
            1.0, expected.numel(), expected.numel(), f"sizes {tuple(result.shape)}, not {tuple(expected.shape)}"
        )
    if result.dtype != expected.dtype:
        return Difference(1.0, expected.numel(), expected.numel(), f"{result.dtype}, not {expected.dtype}")
    result, expected = result.detach(), expected.detach().to(result.device)
    if not (expected.is_floating_point() or expected.is_complex()):
        unequal = result != expected
        wrong = int((unequal if slack is None else unequal & (slack == 0)).sum())
        return Difference(1.0, wrong, expected.numel(), _count(wrong, expected.numel())) if wrong else None
    largest = max(largest_magnitude(expected), usual)
    off = _distance(result, expected)
    too_far = off > tolerance * largest + (0 if slack is None else slack)
    wrong = int(too_far.sum())
    if not wrong:
        return None
    worst = float(off[too_far].max())
    share = worst / largest if largest else float("inf")
    return Difference(share, wrong, expected.numel(), f"{_count(wrong, expected.numel())}, {_by(worst, share)}")


def slack(
    expected: Mapping[str, Tensor], nudged: Sequence[Mapping[str, Tensor]], magnitude: float
) -> dict[str, Tensor]:
    """How much more each element of results may differ: seen from how they differ for operands rounded otherwise.

    Another layout may take another algorithm, whose rounding is that much amplified, and which of equal elements `max`
    takes is open. What is not rounding is more than 1 % of the largest `magnitude`, and hits other elements too.
    """
    import torch

    found = {}
    for name, own in expected.items():
        same = [other[name] for other in nudged if name in other and other[name].shape == own.shape]
        changes = [_distance(own, other) for other in same]
        if not changes or own.numel() == 0:
            continue
        by_element = torch.stack(changes).amax(0)
        if own.is_floating_point() or own.is_complex():
            most = min(_AMPLIFIED * float(by_element.max()), _ROUNDING * max(magnitude, largest_magnitude(own)))
            by_element = torch.clamp(1.1 * by_element, min=most)
        found[name] = by_element
    return found


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """How far elements are apart; infinity where one of them only is a number."""
    import torch

    wide = torch.complex128 if one.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    same = (one == other) | (one.isnan() & other.isnan())
    apart = torch.nan_to_num((one - other).abs(), nan=float("inf"), posinf=float("inf"))
    return torch.where(same, torch.zeros_like(apart), apart)


def largest_magnitude(tensor: Tensor) -> float:
    """Of its finite values; 0 if it has none, or is no tensor of fractions."""
    import torch

    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    known = tensor.detach()[torch.isfinite(tensor.detach())]
    return float(known.abs().max()) if known.numel() else 0.0


def _count(wrong: int, of: int) -> str:
    return f"{wrong} of {of} element{'s' if of > 1 else ''} differ{'s' if wrong == 1 else ''}"


def _by(worst: float, share: float) -> str:
    if worst == float("inf"):
        return "some of them by no finite number"
    if share > 1e6:
        return f"by up to {worst:.3g}"
    of = f"{share:.1f} times" if share > 1 else f"{100 * share:.2g} % of"
    return f"by up to {worst:.3g}, {of} the largest"
