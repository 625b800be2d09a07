"""File names that may be shown to anyone: relative to the project or to the library they belong to."""

import os
import sys

from stridewise.recording.cells import cell_of


def public_path(filename: str) -> str:
    """A source file's name without the parts that tell whose machine it lies on.

    In an installed package: from the package on. Below the working folder: relative to that. Below another entry of
    `sys.path`: relative to the entry. Elsewhere: below `~` if it is, else as it is. A notebook's cell is `In [3]`.
    """
    if (cell := cell_of(filename)) is not None:
        return cell.name
    if filename.startswith("<") or not os.path.isabs(filename):
        return filename
    for packages in ("site-packages", "dist-packages"):
        _, found, rest = filename.rpartition(f"{os.sep}{packages}{os.sep}")
        if found:
            return rest
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = None
    if here is not None and _is_below(filename, here):
        return os.path.relpath(filename, here)
    entries = [entry if here is None else os.path.abspath(entry) for entry in sys.path if entry]
    best = max((entry for entry in entries if _is_below(filename, entry)), key=len, default=None)
    if best is not None:
        return os.path.relpath(filename, best)
    home = os.path.expanduser("~")
    return os.path.join("~", os.path.relpath(filename, home)) if _is_below(filename, home) else filename


def public_place(filename: str, line: int | None) -> tuple[str, int | None]:
    """The public name of a source file, and the line there: in a notebook's cell, which has more than its code."""
    cell = cell_of(filename)
    return cell.place(line) if cell is not None else (public_path(filename), line)


def _is_below(filename: str, folder: str) -> bool:
    return filename.startswith(folder.rstrip(os.sep) + os.sep)
