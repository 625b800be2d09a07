"""Which tests a session has seen, and whether that is all there are."""

import ast
import os
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest


class Collected(msgspec.Struct):
    """What one process collected, or several together."""

    tests: list[str] = []
    """Those that are recorded."""
    functions: list[str] = []
    """All that there are, recorded or not, without parameters."""
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
        self.functions += [function for function in other.functions if function not in set(self.functions)]
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
        path = _file(test, root)
        return any(path.is_relative_to(folder) for folder in folders)

    def passed_over(self, tests: Iterable[str], root: Path) -> tuple[str, ...]:
        """Those that were not collected, though they stand in their files: by a condition there, or by a setting."""
        collected = set(self.functions)
        absent = [test for test in tests if function_of(test) not in collected]
        trees = {path: _parsed(path) for path in {_file(test, root) for test in absent} if path.exists()}
        return tuple(
            test
            for test in absent
            if (path := _file(test, root)) in trees and _defines(trees[path], function_of(test).split("::")[1:])
        )


def function_of(test: str) -> str:
    """A test's node id without its parameters."""
    path, colons, names = test.partition("::")
    return f"{path}{colons}{names.partition('[')[0]}"


def scope(config: pytest.Config) -> tuple[Path, ...]:
    """The folders and files of which a session runs everything. None where options narrow it down."""
    option = config.option
    narrow = ("lf", "keyword", "markexpr", "deselect", "ignore", "ignore_glob", "collectonly", "stepwise")
    if any(getattr(option, name, None) for name in narrow):
        return ()
    if any(setting.startswith(("python_", "norecursedirs")) for setting in option.override_ini or ()):
        return ()
    named = [config.invocation_params.dir / argument for argument in config.args if "::" not in argument]
    return tuple(path.resolve() for path in named if path.exists())


def _file(test: str, root: Path) -> Path:
    return Path(os.path.realpath(root)) / test.partition("::")[0]


def _parsed(path: Path) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defines(tree: ast.Module | None, names: Iterable[str]) -> bool:
    """Whether a file defines a function, within its class, also under a condition. True for one that can't be read."""
    if tree is None:
        return True
    places: list[ast.AST] = [tree]
    for name in names:
        places = [node for place in places for node in _definitions(place) if node.name == name]
    return bool(places)


def _definitions(place: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(place):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from _definitions(node)


def _is_in(test: str, node: str) -> bool:
    return node in ("", ".") or test == node or test.startswith((f"{node}::", f"{node}/", f"{node}["))
