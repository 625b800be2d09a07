"""Whether two results are equal as far as their dtype allows, and how far they are off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from torch import Tensor, dtype

_STEPS = 84
"""Rounding steps of a dtype that another order of summation, or another algorithm, may make: 1e-5 for float32. A
convolution of channels_last images was seen 3e-7 of its largest result off, products of matrices less."""
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


def difference(result: Tensor, expected: Tensor, tolerance: float) -> Difference | None:
    """How a result differs from what it should be by more than a tolerance; None if it does not.

    NaN equals NaN, and an infinity itself. Results without fractions have to be equal.
    """
    import torch

    if result.shape != expected.shape:
        return Difference(
            1.0, expected.numel(), expected.numel(), f"sizes {tuple(result.shape)}, not {tuple(expected.shape)}"
        )
    if result.dtype != expected.dtype:
        return Difference(1.0, expected.numel(), expected.numel(), f"{result.dtype}, not {expected.dtype}")
    result, expected = result.detach(), expected.detach().to(result.device)
    if not (expected.is_floating_point() or expected.is_complex()):
        wrong = int((result != expected).sum())
        return Difference(1.0, wrong, expected.numel(), _count(wrong, expected.numel())) if wrong else None
    wide = torch.complex128 if expected.is_complex() else torch.float64
    result, expected = result.to(wide), expected.to(wide)
    same = (result == expected) | (result.isnan() & expected.isnan())
    usual = torch.isfinite(expected)
    largest = float(expected[usual].abs().max()) if bool(usual.any()) else 0.0
    off = torch.where(same, torch.zeros((), dtype=torch.float64, device=result.device), (result - expected).abs())
    off = torch.nan_to_num(off, nan=float("inf"), posinf=float("inf"))
    wrong = int((off > tolerance * largest).sum())
    if not wrong:
        return None
    worst = float(off.max())
    share = worst / largest if largest else float("inf")
    return Difference(share, wrong, expected.numel(), f"{_count(wrong, expected.numel())}, {_by(worst, share)}")


def _count(wrong: int, of: int) -> str:
    return f"{wrong} of {of} element{'s' if of > 1 else ''} differ{'s' if wrong == 1 else ''}"


def _by(worst: float, share: float) -> str:
    if worst == float("inf"):
        return "some of them by no finite number"
    return f"by up to {worst:.3g}" + (f", {100 * share:.2g} % of the largest" if share < 1e6 else "")
