"""What `path.py:name` and `package.module:name` mean: a function of the program's, imported. No torch."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stridewise.errors import UsageError

PLACES = "path.py:name or package.module:name"
"""What a target reads like."""


def split_target(target: str) -> tuple[str, str] | None:
    """File or module, and name; None for what is a script."""
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and place and name.replace(".", "").isidentifier() else None


def load_target(target: str, what: str) -> Callable[..., Any]:
    """Import the function that a target names. What the import itself raises is let through.

    `what` it should be is for the messages: `a function that gives (model, args)`. Raises UsageError where there is no
    such file, module or function.
    """
    parts = split_target(target)
    expected = f"Expected: {PLACES}, {what}."
    if parts is None:
        raise UsageError(f"{target} is no target.", expected=expected)
    place, name = parts
    module = load_module(place, expected)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        has = f"It has {', '.join(known[:8])}." if known else None
        fault = "is no function" if found is not None else "is not there"
        raise UsageError(f"{name} {fault} in {place}.", expected=has or expected)
    return found  # type: ignore[no-any-return]


def load_module(place: str, expected: str) -> ModuleType:
    """Import a file or a module. Raises UsageError, with what was expected, where there is none."""
    return _file(place, expected) if place.endswith(".py") or os.sep in place else _module(place, expected)


def _file(place: str, expected: str) -> ModuleType:
    path = os.path.abspath(place)
    if not os.path.isfile(path):
        raise UsageError(f"There is no file {place}.", expected=expected)
    name = os.path.basename(path).removesuffix(".py").replace(".", "_")
    if (loaded := sys.modules.get(name)) is not None:
        if os.path.abspath(getattr(loaded, "__file__", None) or "") == path:
            return loaded
        name = f"{name}_of_target"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{place} is no Python file.", expected=expected)
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module(place: str, expected: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(place)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise UsageError(f"There is no module {place}.", expected=expected)
    return importlib.import_module(place)
