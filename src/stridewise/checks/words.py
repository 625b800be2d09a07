"""Layouts and live objects in words, and where in a program a call was made. No torch is imported here."""

from __future__ import annotations

import platform
import sys
from types import FrameType
from typing import TYPE_CHECKING

from stridewise import layout
from stridewise.findings import Site
from stridewise.layout import Layout
from stridewise.recorder.frames import FrameTable
from stridewise.recorder.sources import Sources

if TYPE_CHECKING:
    from torch import Tensor

_frames = FrameTable()
_sources = Sources()


def strided(given: Layout) -> str:
    """`(3, 4) with strides (1, 3)`."""
    return f"{given.sizes} with strides {given.strides}"


def described(given: Layout) -> str:
    """`permuted, (3, 4) with strides (1, 3)`."""
    return f"{layout.name(given)}, {strided(given)}"


def object_site(what: str, module: str | None = None) -> Site:
    """The site of a live object, such as `` parameter `c.weight` ``."""
    return Site(module=module, expression=what)


def call_site(frame: FrameType | None = None) -> Site:
    """The expression of the program that a call comes from: the nearest frame outside torch, the library and us."""
    return site_of(call_place(frame if frame is not None else sys._getframe(1)))


def call_place(frame: FrameType | None = None) -> tuple[int, int]:
    """The same in numbers, for what is called often: `site_of` tells the site, if it is asked for."""
    return _frames.find(frame if frame is not None else sys._getframe(1))


def site_of(place: tuple[int, int]) -> Site:
    """The site that `call_place` found."""
    code_number, via = place
    if code_number < 0:
        return Site()
    row = _sources.site(*_frames.site_codes[code_number])
    through = None
    if via >= 0:
        passed = _sources.site(*_frames.site_codes[via])
        through = f"{passed.file}:{passed.line}"
    return row.to_site(through)


def layout_of(tensor: Tensor) -> Layout | None:
    """A tensor's layout; None if it has no strides, or not those of its memory (sparse, nested, symbolic)."""
    from stridewise.recorder import tensors

    found = tensors.layout_of(tensor)
    return found if isinstance(found, Layout) else None


def environment() -> dict[str, str]:
    """What a reader of verdicts must know: the versions that they hold for."""
    import torch

    return {"torch": str(torch.__version__), "python": platform.python_version()}
