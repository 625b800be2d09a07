"""Lines of a project's own sources, for sites that a trace names without their text."""

import os
import stat
from functools import lru_cache
from pathlib import Path

_MOST_BYTES = 10_000_000


class SourceTree:
    """The Python files in a folder.

    A trace comes from anywhere, and so do the paths in it: a file is read only if it is a regular one that lies in
    the folder, links followed.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self._lines = lru_cache(64)(self._read)

    def line(self, file: str, number: int) -> str | None:
        """A line of a file, which is named relative to the folder or in full; None if there is no such line."""
        lines = self._lines(file)
        return lines[number - 1].rstrip("\r\n") if 0 < number <= len(lines) else None

    def _read(self, file: str) -> list[str]:
        try:
            path = Path(os.path.realpath(self.root / file))
            if path.suffix not in (".py", ".pyi") or not path.is_relative_to(self.root):
                return []
            status = path.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
                return []
            return path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        except (OSError, ValueError):  # it is gone, or no name of a file: a NUL, half a surrogate pair
            return []
