"""Text of programs on pages: its control characters are made visible, and what is longer than any page is cut."""

from stridewise.report.text import visible

_LONGEST = 20_000
_LONGEST_LABEL = 160


def shown(text: str) -> str:
    """Text with its line breaks, to be escaped by a template."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} … {len(text) - _LONGEST:,} more characters"
    return "\n".join(visible(line.expandtabs(4)) for line in text.split("\n"))


def label(text: str) -> str:
    """Text on one line, for a label of a chart; the end of what is long tells more."""
    text = visible(" ".join(text.split()))
    return text if len(text) <= _LONGEST_LABEL else f"…{text[1 - _LONGEST_LABEL :]}"
