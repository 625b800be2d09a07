"""How results show themselves."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO


class Shown:
    """A result that shows itself as text where it is printed."""

    __slots__ = ()

    def _render(self, out: TextIO) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return written(self._render).rstrip("\n")

    __repr__ = __str__


def written(render: Callable[[TextIO], None]) -> str:
    """What a renderer writes."""
    out = io.StringIO()
    render(out)
    return out.getvalue()
