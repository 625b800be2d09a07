"""Whether a command printed what a page says: figures and line breaks may differ, words may not."""

import difflib
import re

ANY = "…"
# 3.7 ms, 40 MB, 2.1x, -1e-05, 1,024; not the digits of SW101 or float32.
NUMBER = re.compile(r"(?<![\w])[-+−]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?(?:(?P<space>[ ]?)[nµmkMGT]?(?P<unit>s|B)\b)?")


def agrees(wanted: str, got: str) -> bool:
    """Whether `got` is what `wanted` stands for."""
    parts = [re.escape(_folded(part)) for part in wanted.split(ANY)]
    return re.fullmatch(" ?.*? ?".join(parts), _folded(got), re.DOTALL) is not None


def _folded(text: str) -> str:
    """Text with its figures alike, and on one line: where a line is broken depends on how long they are."""
    return " ".join(NUMBER.sub(lambda number: f"#{number['unit'] or ''}", " ".join(text.split())).split())


def difference(wanted: str, got: str) -> str:
    """What differs, for a person."""
    lines = difflib.unified_diff(
        wanted.splitlines(), got.splitlines(), "the page says", "it printed", lineterm="", n=99
    )
    return "\n".join(lines)
