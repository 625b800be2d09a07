"""`from_dlpack` held back from arrays that would end the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stridewise.checks.data.arrays import facts_of
from stridewise.checks.rules import sw217
from stridewise.checks.words import call_site
from stridewise.errors import ContractError


@contextmanager
def checked_from_dlpack() -> Iterator[None]:
    """Raise ContractError, with SW217, where the program gives `torch.from_dlpack` an array that torch can't take.

    A name that the program imported before is not held back: `from torch import from_dlpack`.
    """
    import torch
    from torch.utils import dlpack

    places: tuple[Any, ...] = (torch, dlpack)
    bare = dlpack.from_dlpack

    def from_dlpack(given: Any, *args: Any, **kwargs: Any) -> Any:
        facts = facts_of(given, "The array")
        finding = None if facts is None or isinstance(given, torch.Tensor) else sw217.check(facts, call_site())
        if finding is not None:
            raise ContractError(finding.message, advice=finding.advice, finding=finding)
        return bare(given, *args, **kwargs)

    kept = [place.from_dlpack for place in places]
    for place in places:
        place.from_dlpack = from_dlpack
    try:
        yield
    finally:
        for place, function in zip(places, kept, strict=True):
            place.from_dlpack = function
