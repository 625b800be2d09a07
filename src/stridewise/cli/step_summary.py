"""The summary of a GitHub Actions step: with `--format github` a report goes there as Markdown too.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands#adding-a-job-summary
"""

import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

_VARIABLE = "GITHUB_STEP_SUMMARY"
_MOST_BYTES = 1024 * 1024
"""Of one step: GitHub shows nothing of a summary that is larger."""


def append_summary(format: str, render: Callable[[TextIO], None]) -> None:
    """Append what `render` writes, as Markdown, if annotations are asked for and there is a summary to append to.

    That it can't be written is one line on stderr: it changes nothing about the command.
    """
    path = os.environ.get(_VARIABLE)
    if format != "github" or not path:
        return
    from stridewise.report import markdown
    from stridewise.report.text import one_line

    out = io.StringIO()
    render(out)
    try:
        with open(path, "ab") as summary:
            there = summary.seek(0, os.SEEK_END)
            begin = _break_after(path, there)
            why = "GitHub takes 1 MiB of summary a step. The annotations have all of it."
            text = markdown.cut(out.getvalue(), _MOST_BYTES - there - len(begin), why)
            if text:
                summary.write(f"{begin}{text}".encode(errors="backslashreplace"))
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        print(f"stridewise: {one_line(f'the step summary {path} cannot be written: {reason}')}", file=sys.stderr)
        return
    if not text:
        print("stridewise: the step summary has no room left: GitHub takes 1 MiB of it a step", file=sys.stderr)


def _break_after(path: str, size: int) -> str:
    """What ends what is in the summary already: Markdown would take the next line for a part of it."""
    if not size:
        return ""
    with open(path, "rb") as summary:
        summary.seek(max(0, size - 2))
        last = summary.read()
    return "" if last == b"\n\n" else "\n" if last.endswith(b"\n") else "\n\n"
