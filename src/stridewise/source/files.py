"""Which file on disk a site's name means, and whether stridewise may write it. No torch."""

import linecache
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from stridewise.errors import InputError
from stridewise.recording.cells import cell_of
from stridewise.recording.filenames import public_path
from stridewise.source.file import SourceFile

_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
_PACKAGES = ("site-packages", "dist-packages")


class Files:
    """Finds source files by the names that sites have, among those that the running program was loaded from."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._paths: dict[str, Path] = {}
        self._known: set[str] = set()

    def add(self, filename: str) -> None:
        """Name a file that code was run from although no module says so: a script that was executed."""
        self._known.add(os.path.abspath(filename))

    def open(self, name: str) -> SourceFile | None:
        """The file of that name, or the notebook cell; None if there is none.

        Raises InputError if it can't be read as Python, or if two files have that name: nothing tells which one ran.
        """
        path = self._paths.get(name) or self._find(name)
        if path is not None:
            self._paths[name] = path
            return SourceFile(path, name)
        return self._open_cell(name)

    def is_installed(self, path: Path) -> bool:
        """Whether a file belongs to an installed package or lies outside the project: such a file is never written."""
        real = path.resolve()
        if not real.is_relative_to(self.root) or any(part in _PACKAGES for part in real.parts):
            return True
        if any(real.is_relative_to(folder) for folder in self._package_folders):
            return True
        between = real.parents[: len(real.relative_to(self.root).parts) - 1]
        return any((folder / mark).exists() for folder in between for mark in _ENVIRONMENT_MARKS)

    @cached_property
    def _package_folders(self) -> frozenset[Path]:
        paths = sysconfig.get_paths()
        names = [paths.get(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
        folders = [*filter(None, names), *site.getsitepackages(), site.getusersitepackages()]
        return frozenset(Path(folder).resolve() for folder in folders)

    def _find(self, name: str) -> Path | None:
        if name.startswith("<"):
            return None
        found = _distinct([*self._loaded(name), os.path.abspath(name)])
        # On the path, but no module's: code that was executed from it, or a module that is gone.
        found = found or _distinct([os.path.expanduser(name), *(os.path.join(entry, name) for entry in sys.path)])
        if len(found) > 1:
            paths = " and ".join(str(path) for path in found)
            raise InputError(f"{name} can't be edited: {paths} are both called that.")
        return found[0] if found else None

    def _loaded(self, name: str) -> Iterator[str]:
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        for filename in {*modules, *linecache.cache, *self._known}:
            # Modules may say anything of themselves, and nothing at all.
            if isinstance(filename, str) and not filename.startswith("<") and filename.endswith(os.path.basename(name)):
                path = os.path.abspath(filename)
                if name in (filename, public_path(path)):
                    yield path

    def _open_cell(self, name: str) -> SourceFile | None:
        """Source that Python knows of but that lies in no file; of cells with one name the latest."""
        found = [
            (filename, entry[2])
            for filename, entry in reversed(list(linecache.cache.items()))
            if len(entry) == 4 and not os.path.exists(filename) and public_path(filename) == name
        ]
        if not found:
            return None
        # A cell magic makes one line of its cell, and may run what stands below it as code of its own.
        filename, lines = next((each for each in found if not _runs_magic(each[1])), found[0])
        cell = cell_of(filename)
        content = "".join(lines if cell is None else cell.placed(lines)).encode("utf-8", "surrogatepass")
        file = SourceFile(Path(filename), name, content, above=0 if cell is None else cell.line(1) - 1)
        return file if file.encoding == "utf-8" else None


def _runs_magic(lines: list[str]) -> bool:
    return len(lines) == 1 and lines[0].startswith("get_ipython().run_cell_magic(")


def _distinct(filenames: list[str]) -> list[Path]:
    """The source files among some paths; those that are one file through links count once."""
    found: dict[str, Path] = {}
    for filename in filenames:
        if filename.endswith((".py", ".pyw")) and os.path.isfile(filename):
            found.setdefault(os.path.realpath(filename), Path(os.path.abspath(filename)))
    return list(found.values())
