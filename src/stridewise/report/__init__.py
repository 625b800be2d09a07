"""Results as people and programs read them: one file a format."""

from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol, TextIO, cast

if TYPE_CHECKING:
    from stridewise.results import Report

Format = Literal["text", "json", "sarif", "github", "junit", "markdown", "html"]
Table = Literal["autocast", "copies", "kernels", "modules", "paths", "timeline"]
"""What a report shows only when asked."""

_MODULES: dict[str, str] = {"text": "terminal", "json": "json"}


class Renderer(Protocol):
    """What the modules of the formats that show tables hold."""

    def render(self, report: "Report", out: TextIO, *, tables: Collection[Table] = ()) -> None:
        """Write the report to `out`, with the tables that are asked for."""


def render(report: "Report", format: Format, out: TextIO, *, tables: Collection[Table] = ()) -> None:
    """Write a report to `out` in one of the formats; only that one's module is imported."""
    if format == "html":
        from stridewise.report import html

        html.render(report, out)
    elif format == "text" or format == "json":
        renderer = cast(Renderer, import_module(f"{__name__}.{_MODULES[format]}"))
        renderer.render(report, out, tables=tables)
    else:
        from stridewise.report import exchange

        out.write(exchange.dumps(exchange.of_report(report), format))
