"""Which tests a session has seen, and whether that is all there are."""

from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest


class Collected(msgspec.Struct):
    """What one process collected, or several together."""

    tests: list[str] = []
    """Those that are recorded."""
    unseen: list[str] = []
    """Node ids of modules, classes and folders that were skipped or failed to be collected."""
    profiled: list[str] = []
    """Tests that could not be recorded, as they profile themselves."""
    narrowed: bool = False
    """Tests were deselected, or a process crashed."""
    complete: bool = False

    def add(self, other: "Collected") -> None:
        """Take what another process says."""
        self.tests += [test for test in other.tests if test not in set(self.tests)]
        self.unseen += [node for node in other.unseen if node not in self.unseen]
        self.profiled += other.profiled
        self.narrowed |= other.narrowed
        self.complete |= other.complete

    def lacks(self, test: str, root: Path, folders: Collection[Path]) -> bool:
        """Whether a test is gone: it was not seen, though all of some folders or files was, and it was in one."""
        if not self.complete or self.narrowed or test in self.tests:
            return False
        if any(_is_in(test, node) for node in self.unseen):
            return False
        path = root / test.partition("::")[0]
        return any(path.is_relative_to(folder) for folder in folders)


def scope(config: pytest.Config) -> tuple[Path, ...]:
    """The folders and files of which a session runs everything. None where options narrow it down."""
    option = config.option
    narrow = ("lf", "keyword", "markexpr", "deselect", "ignore", "ignore_glob", "collectonly", "stepwise")
    if any(getattr(option, name, None) for name in narrow):
        return ()
    named = [config.invocation_params.dir / argument for argument in config.args if "::" not in argument]
    return tuple(path.resolve() for path in named if path.exists())


def _is_in(test: str, node: str) -> bool:
    return node in ("", ".") or test == node or test.startswith((f"{node}::", f"{node}/", f"{node}["))
