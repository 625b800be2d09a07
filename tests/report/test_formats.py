"""One and the same report in every format that there is: a format that is added is tested here by itself."""

import html.parser
import io
from typing import get_args

import pytest
from msgspec.structs import replace

from stridewise.report import Format, Table, render

from . import samples

EVERYTHING = replace(
    samples.EVERYTHING,
    findings=(samples.STREAM, samples.FROM_INPUT, samples.RESHAPE, *samples.HOSTILE.findings),
    folded=samples.RICH.folded,
    notes=(*samples.RICH.notes, samples.HOSTILE_TEXT),
)
"""A stream with origin, carriers, payers and an edit; an input; letters beyond ASCII; and hostile text."""

# A page's looks are tested in a browser; what it holds is compared without its styles and scripts.
UNSEEN = ("script", "style", "template")


class Content(html.parser.HTMLParser):
    """The headings of a page, and all its text."""

    def __init__(self):
        super().__init__()
        self.headings, self.text, self._open = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag in (*UNSEEN, "h1", "h2", "h3"):
            self._open.append(tag)
            self.headings += [""] if tag.startswith("h") else []

    def handle_endtag(self, tag):
        if self._open[-1:] == [tag]:
            self._open.pop()

    def handle_data(self, data):
        if self._open and self._open[-1] in UNSEEN:
            return
        self.text.append(data)
        if self._open:
            self.headings[-1] += data


def rendered(format):
    out = io.StringIO()
    render(EVERYTHING, format, out, tables=get_args(Table))
    return out.getvalue()


def read(page):
    content = Content()
    content.feed(page)
    return content


@pytest.mark.parametrize("format", get_args(Format))
def test_the_same_report(format, snapshot):
    text = rendered(format)
    assert text == rendered(format)
    if format == "html":
        text = "\n".join(" ".join(heading.split()) for heading in read(text).headings) + "\n"
    assert text == snapshot


@pytest.mark.parametrize("format", get_args(Format))
def test_every_finding_is_in_it(format):
    text = rendered(format)
    shown = " ".join(read(text).text) if format == "html" else text
    for code in ("SW101", "SW103"):
        assert code in shown
    assert "self.embed(mel).transpose(1, 2)" in shown


@pytest.mark.parametrize("format", get_args(Format))
def test_nothing_of_a_program_is_obeyed(format):
    text = rendered(format)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not any(line.startswith(("::error::owned", "##[")) for line in text.splitlines())
    if format == "html":
        assert "<b>&" not in text
        assert "http://evil" not in [value for _, value in _links(text)]


def _links(page):
    found = []

    class Links(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.extend(pair for pair in attrs if pair[0] in ("href", "src"))

    Links().feed(page)
    return found
