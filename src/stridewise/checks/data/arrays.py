"""Arrays on their way to torch, looked at before it gets them."""

from __future__ import annotations

from typing import Any

from stridewise.checks.rules import sw217
from stridewise.checks.rules.sw217 import ArrayFacts
from stridewise.checks.words import call_site
from stridewise.errors import InputError
from stridewise.findings import Finding


def check_array(array: Any, name: str = "the array") -> tuple[Finding, ...]:
    """What would be wrong with handing a NumPy array to `from_numpy`, `as_tensor` or `from_dlpack`: SW217, or nothing.

    Torch is not called: `from_dlpack` can abort the process. Anything will do that has a `shape`, a `dtype` and
    `strides` in bytes; raises InputError for the rest.
    """
    facts = facts_of(array, name)
    if facts is None:
        raise InputError(
            f"{name} is a {type(array).__name__}", expected="an array with a shape, a dtype and strides in bytes"
        )
    found = sw217.check(facts, call_site())
    return () if found is None else (found,)


def facts_of(array: Any, name: str) -> ArrayFacts | None:
    """The layout of an array; None for something else."""
    sizes, strides = getattr(array, "shape", None), getattr(array, "strides", None)
    dtype = getattr(array, "dtype", None)
    itemsize = getattr(dtype, "itemsize", None)
    if not isinstance(sizes, tuple) or not isinstance(strides, tuple) or not isinstance(itemsize, int):
        return None
    return ArrayFacts(name, tuple(map(int, sizes)), tuple(map(int, strides)), itemsize, str(dtype))
