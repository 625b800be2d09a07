"""Results as people and programs read them: one file a format, each with the same `render(report, out, …)`."""

from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol, TextIO, cast

if TYPE_CHECKING:
    from stridewise.results import Report

Format = Literal["text", "json", "sarif", "github"]
Table = Literal["copies", "kernels", "modules", "paths"]
"""What a report shows only when asked."""

_MODULES: dict[Format, str] = {"text": "terminal", "json": "json", "sarif": "sarif", "github": "github"}


class Renderer(Protocol):
    """What every format's module holds."""

    def render(self, report: "Report", out: TextIO, *, tables: Collection[Table] = ()) -> None:
        """Write the report to `out`, with the tables that are asked for."""


def render(report: "Report", format: Format, out: TextIO, *, tables: Collection[Table] = ()) -> None:
    """Write a report to `out` in one of the formats; only that one's module is imported."""
    renderer = cast(Renderer, import_module(f"{__name__}.{_MODULES[format]}"))
    renderer.render(report, out, tables=tables)
