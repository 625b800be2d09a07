"""What a code means, as the docstring of its rule's file says it."""

import inspect
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
    doc = inspect.cleandoc(module.__doc__ or "")
    heading, _, body = doc.partition("\n")
    name, _, summary = heading.partition(": ")
    code, title = name.split()
    return Doc(code, title, summary, body.strip())
