"""Results as pages that people open in a browser or meet in a notebook."""

from typing import TextIO

from stridewise.report.content import Read


def render(result: object, out: TextIO, *, read: Read | None = None) -> None:
    """Write the page of a result: one file that needs nothing else, neither a network nor a server.

    `read` gives the content of the files that edits are of; without it they are read from the disk.
    """
    from stridewise.report.html import rendering

    out.write(rendering.page(result, read))


def fragment(result: object) -> str:
    """A result for a notebook's cell: without scripts, and styled only inside its own element."""
    from stridewise.report.html import rendering

    return rendering.fragment(result)
