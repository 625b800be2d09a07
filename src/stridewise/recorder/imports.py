"""Hear of a module's import without importing it. No torch."""

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any


class WhenImported(MetaPathFinder):
    """Calls back once a module has been imported, so that nobody has to import it for the callback's sake.

    Put it first in `sys.meta_path`; it takes itself out when the import begins.
    """

    def __init__(self, name: str, callback: Callable[[Any], None]) -> None:
        self.name = name
        self.callback = callback

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The module's own spec, whose loader calls back after it has run the module."""
        if fullname != self.name:
            return None
        self.withdraw()
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                del loader.exec_module  # the module keeps its loader: leave it as it was
                execute(module)
                self.callback(module)

            loader.exec_module = exec_module
        return spec

    def withdraw(self) -> None:
        """Call back no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
