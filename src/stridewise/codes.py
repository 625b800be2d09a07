"""What a code means, as the docstring of its rule's file says it."""

import ast
import inspect
from pathlib import Path
from types import ModuleType

from msgspec import Struct


class Doc(Struct, frozen=True):
    """The words for one code."""

    code: str
    title: str
    summary: str
    doc: str


def doc_of(module: ModuleType) -> Doc:
    """Read the docstring of a rule's file: `SW103 hidden-copy: what it is.`, then the rest."""
    doc = inspect.cleandoc(module.__doc__ or _docstring(module))
    heading, _, body = doc.partition("\n")
    name, _, summary = heading.partition(": ")
    code, title = name.split()
    return Doc(code, title, summary, body.strip())


def _docstring(module: ModuleType) -> str:
    """A module's docstring from its file: under `python -OO` the module itself has none."""
    return ast.get_docstring(ast.parse(Path(module.__file__ or "").read_bytes())) or ""
