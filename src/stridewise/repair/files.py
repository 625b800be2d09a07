"""Which file on disk a site's name means, and whether stridewise may write it. No torch."""

import os
import sys
import sysconfig
from pathlib import Path

from stridewise.recording.filenames import public_path
from stridewise.repair.source import SourceFile


class Files:
    """Finds source files by the names that sites have, among those that the running program was loaded from."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._paths: dict[str, Path] = {}

    def open(self, name: str) -> SourceFile | None:
        """The file of that name; None if there is none. Raises InputError if it can't be read as Python."""
        path = self._paths.get(name) or self._find(name)
        if path is None:
            return None
        self._paths[name] = path
        return SourceFile(path, name)

    def is_installed(self, path: Path) -> bool:
        """Whether a file belongs to an installed package or lies outside the project: such a file is never written."""
        real = path.resolve()
        installed = {Path(folder).resolve() for folder in map(sysconfig.get_paths().get, ("purelib", "platlib", "stdlib")) if folder}
        inside = any(real.is_relative_to(folder) for folder in installed)
        return inside or "site-packages" in real.parts or not real.is_relative_to(self.root)

    def _find(self, name: str) -> Path | None:
        loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        for filename in filter(None, loaded):
            if filename.endswith(".py") and public_path(os.path.abspath(filename)) == name:
                return Path(os.path.abspath(filename))
        return Path(name).absolute() if os.path.isfile(name) and name.endswith(".py") else None
