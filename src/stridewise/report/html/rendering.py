"""Pages from templates. Everything that comes from a program is escaped, and control characters are made visible."""

import base64
import functools
import gzip
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from stridewise import __version__
from stridewise.report.content import Contents, Read
from stridewise.report.html.model import Interval, Page
from stridewise.report.html.pages import charts_of, page_of
from stridewise.report.html.text import shown
from stridewise.report.source import SourceLine
from stridewise.results import numbers

_CODE = re.compile(r"`([^`\n]+)`")
_INDENTATION = re.compile(r"\n\s+<")
"""Of tags, which templates have and thousands of cards do not need; text of programs has no tag on a line's start."""
_MOST_CARDS_OF_FRAGMENT = 5
_MOST_OPEN = 12
"""Cards that are open when the page is opened."""
_MOST_PLAIN = 300
"""Cards that stand in the page as they are; those behind them are compressed."""
_ENDS = math.log2(1.25)
"""How far an interval's bar reaches on both sides of 1 at least."""


def page(result: object, read: Read | None = None) -> str:
    """The whole page of a result."""
    found = page_of(result, Contents(read))
    charts = charts_of(result, found)
    explained = {meaning.code for meaning in found.meanings}
    template = _environment().get_template("page.html.j2")
    text = template.render(
        page=found,
        version=__version__,
        style=Markup(_text("page.css")),
        script=Markup(_text("page.js")),
        charts=charts,
        data=_packed(msgspec.json.encode(charts)) if charts else "",
        plotly=_plotly() if charts else "",
        most_open=_MOST_OPEN,
        most_plain=_MOST_PLAIN,
        explained=explained,
        rest=_packed(_compact(_rest(found, explained)).encode()) if len(found.cards) > _MOST_PLAIN else "",
    )
    return _compact(text)


def fragment(result: object) -> str:
    """The verdict, the figures and the first findings, for a cell of a notebook."""
    return (
        _environment()
        .get_template("fragment.html.j2")
        .render(page=page_of(result, Contents()), style=Markup(_text("fragment.css")), most=_MOST_CARDS_OF_FRAGMENT)
    )


def _rest(page: Page, explained: set[str]) -> str:
    """The cards of a long report that its script puts in place."""
    parts: Any = _environment().get_template("_parts.html.j2").module
    return "".join(parts.finding(card, explained, False) for card in page.cards[_MOST_PLAIN:])


def _compact(text: str) -> str:
    return _INDENTATION.sub("\n<", text)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("stridewise.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters["prose"] = _prose
    environment.filters["paragraphs"] = _paragraphs
    environment.filters["percent"] = lambda value: f"{100 * min(max(value, 0), 1):.3g}%"
    environment.filters["share"] = numbers.share
    environment.filters["bar"] = _bar
    environment.filters["dedented"] = _dedented
    return environment


def _visible(value: Any) -> Any:
    """Text of programs with its control characters and direction marks made visible; line breaks stay."""
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _prose(text: str) -> Markup:
    """A sentence with its `code` marked as such."""
    parts = _CODE.split(shown(text))
    made = (Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts))
    return Markup("").join(made).replace("\n", Markup("<br>"))


def _paragraphs(texts: tuple[str, ...]) -> Iterator[Markup]:
    """Paragraphs of a rule's docstring; an indented one is a program."""
    for text in texts:
        if text.startswith("    "):
            yield Markup("<pre>{}</pre>").format(shown(text))
        else:
            yield Markup("<p>{}</p>").format(_prose(" ".join(text.split())))


def _dedented(lines: tuple[SourceLine, ...]) -> Iterator[SourceLine]:
    """Lines without the indentation that all of them have; of one that the mark begins in, what stands before it."""
    shown = [tuple(part.expandtabs(4) for part in (line.before, line.marked, line.after)) for line in lines]
    texts = ["".join(parts) for parts in shown]
    indent = min((len(text) - len(text.lstrip(" ")) for text in texts if text.strip()), default=0)
    for line, (before, marked, after) in zip(lines, shown, strict=True):
        cut = min(indent, len(before))
        yield SourceLine(line.number, before[cut:], marked[indent - cut :] if not before else marked, after.rstrip())


def _bar(interval: Interval) -> dict[str, str]:
    """Where an interval lies on a scale of ratios with 1 in its middle: left, width and point, in percent."""
    ends = max(_ENDS, *(abs(math.log2(value)) for value in (interval.low, interval.high)))
    left, point, right = (50 + 48 * math.log2(value) / ends for value in (interval.low, interval.middle, interval.high))
    return {"left": f"{left:.2f}", "width": f"{max(right - left, 0.6):.2f}", "point": f"{point:.2f}"}


def _packed(content: bytes) -> Markup:
    """Data for the script, compressed: a page of 2 MB instead of 5, in which no text can end its element."""
    return Markup(base64.b64encode(gzip.compress(content, 6, mtime=0)).decode())


def _text(name: str) -> str:
    from importlib.resources import files

    return files("stridewise.report.html").joinpath("templates", name).read_text(encoding="utf-8")


@functools.cache
def _plotly() -> Markup:
    """The library that draws the charts."""
    from plotly.offline import get_plotlyjs

    return _packed(get_plotlyjs().encode())
