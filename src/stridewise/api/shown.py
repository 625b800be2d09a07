"""How results show themselves."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO


class Shown:
    """A result that shows itself: as text where it is printed, and as HTML in a notebook."""

    __slots__ = ()

    def _render(self, out: TextIO) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return written(self._render).rstrip("\n")

    __repr__ = __str__

    def to_html(self) -> str:
        """A page for a browser, as `--format html` writes it: one file that needs nothing else."""
        from stridewise.report import html

        return written(lambda out: html.render(self, out))

    def _repr_html_(self) -> str:
        from stridewise.report import html

        return html.fragment(self)


def written(render: Callable[[TextIO], None]) -> str:
    """What a renderer writes."""
    out = io.StringIO()
    render(out)
    return out.getvalue()
