"""Markdown: what a program is called never is markup, and a page can be cut anywhere between its blocks."""

import io
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from stridewise.analysis.diff import compare
from stridewise.findings import Site
from stridewise.report import diff, lint, markdown, render, repair
from stridewise.report.exchange import Exchange
from stridewise.results import Diff, Report
from stridewise.results.lint import Unread
from stridewise.results.repair import Repair

from . import lints, pairs, repairs, samples

TAGS = {"p", "b", "span", "table", "tr", "th", "td", "br", "code", "details", "summary", "pre", "ul", "li"}
HOSTILE = (
    "</code></pre></td></table></details>",
    "<img src=x onerror=alert(1)> <script>",
    "a | b \\| c ``` ` ~~~",
    "@octocat #1 !2 GH-1 https://evil.example www.evil.example a@evil.example",
    "gh-12 da39a3ee5e6b4b0d3255bfef95601890afd80709 :tada: :+1: $x$ $$\\frac 1 2$$",
    "[x](http://evil) ![x](y) <!-- -->",
    "\n\n# heading\n\n- item",
    "\x1b[31m \u202e ::error::x",
    "&lt;b&gt; &#64;",
)


class Tags(HTMLParser):
    """What a browser makes of it."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text, self.attributes = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes += attrs
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"code", "pre"} & set(self.open):
            self.text.append("-" if self.open[-1:] == ["span"] else data)


def page(result):
    out = io.StringIO()
    if isinstance(result, Report):
        render(result, "markdown", out)
    elif isinstance(result, Repair):
        repair.render(result, out, format="markdown")
    elif isinstance(result, Diff):
        diff.render(result, out, format="markdown")
    else:
        lint.render(result, out, format="markdown", read=lints.read)
    return out.getvalue()


def require_sound(text):
    """Markdown of a heading and of blocks of HTML, each closed, with nothing in them that does something."""
    tokens = MarkdownIt("commonmark").parse(text)
    kinds = [token.type for token in tokens]
    assert kinds[:3] == ["heading_open", "inline", "heading_close"]
    assert set(kinds[3:]) <= {"html_block"}
    for token in tokens[3:]:
        tags = Tags()
        tags.feed(token.content)
        tags.close()
        assert tags.open == []
        assert tags.seen <= TAGS
        assert {name for name, _ in tags.attributes} <= {"colspan"}
        shown = "".join(tags.text)
        assert not re.search(r"@\w|[#!]\d|://|www\.|\bgh-\d|\b[0-9a-f]{40}\b|:[a-z+][\w+]*:|\$", shown, re.I), shown


RESULTS = {
    **{f"report {name}": value for name, value in vars(samples).items() if isinstance(value, Report)},
    **{f"repair {name}": value for name, value in vars(repairs).items() if isinstance(value, Repair)},
    "diff worse": compare(pairs.report(), pairs.report([pairs.STREAM]), tolerance=0, min_share=0.001),
    "diff better": compare(pairs.report([pairs.STREAM]), pairs.report(), tolerance=0, min_share=0.001),
    **{f"lint {name}": value for name, value in lints.ALL.items()},
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_a_sound_page(name):
    require_sound(page(RESULTS[name]))


def test_a_difference_is_a_row():
    text = page(RESULTS["diff worse"])
    assert text.startswith("## stridewise diff\n\n<p><b>Layout got worse")
    assert "<td>appeared</td>" in text


def test_a_page(snapshot):
    assert page(samples.RICH) == snapshot


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_programs_is_text(text):
    site = Site(text, 3, 0, 3, 5, function=text, expression=text, text=text)
    finding = samples.finding(
        text, title=text, message=text, advice=text, site=site, payers=(samples.payer(text, 4, 1, 1, 1),)
    )
    result = Exchange("stridewise", (finding,), text, (text,), unread=(Unread(text, 1, text),))
    require_sound(markdown.dumps(result))


@given(st.text(max_size=60))
def test_any_text_is_text(text):
    finding = samples.finding(message=text, site=Site("m.py", 1, expression=text, text=text))
    require_sound(markdown.dumps(Exchange("stridewise", (finding,), text, (text,))))


def test_many_findings_are_counted():
    many = [samples.finding(fingerprint=str(number)) for number in range(2000)]
    text = page(samples.report(many, copies=48_000.0))
    require_sound(text)
    assert "and 1,900 more: all of them in --format json" in text
    assert len(text.encode()) < 512 * 1024


@given(st.integers(0, 30_000))
def test_a_page_is_cut_between_blocks(most):
    whole = page(samples.RICH)
    text = markdown.cut(whole, most, "there is no more room.")
    assert len(text.encode()) <= most or text == whole
    if text not in ("", whole):
        require_sound(text)
        assert text.endswith("<p>Cut here: there is no more room.</p>\n\n")
