"""Text that comes from programs, sources and traces, made harmless: it is shown, never interpreted."""

import re

from rich.cells import cell_len, set_cell_size

# What a runner of GitHub Actions obeys in a log: `::name …` at the start of a line (where our wrapping can put it),
# and the older `##[name]` anywhere. Slices and C++ names, `x[::step]` and `at::native::add`, stay as they are.
_ANYWHERE = r"##(?=\[)"
_OBEYED_WITHIN = re.compile(_ANYWHERE)
_OBEYED = re.compile(
    r"::(?=(?:add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|internal-set-repo-path|notice"
    rf"|remove-matcher|save-state|set-env|set-output|stop-commands|warning)\b)|{_ANYWHERE}",
    re.IGNORECASE,
)


def visible(text: str) -> str:
    r"""Write control characters, escape sequences and direction marks as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def inert(text: str) -> str:
    """Make text visible, and break what a CI runner would obey in a log."""
    return _OBEYED.sub(_broken, visible(text))


def inert_within(text: str) -> str:
    """The same for text that never begins a line: code stays as it is, `x[::group]` too."""
    return _OBEYED_WITHIN.sub(_broken, visible(text))


def _broken(match: re.Match[str]) -> str:
    return f"{match[0][0]}\\{match[0][1]}"


def one_line(text: str) -> str:
    """Make text inert and put it on one line, with single spaces."""
    return inert(" ".join(text.split()))


def shorten(text: str, cells: int) -> str:
    """Cut the end off a text that is wider than `cells` in a terminal."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def shorten_left(text: str, cells: int) -> str:
    """Cut the beginning off a text that is wider than `cells`: the end of a path tells more."""
    if cell_len(text) <= cells:
        return text
    return "…" + set_cell_size(text[::-1], cells - 1).rstrip()[::-1]
