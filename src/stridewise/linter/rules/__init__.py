"""The source rules, one file each."""

import functools
import importlib
import pkgutil

from stridewise.codes import Doc
from stridewise.linter.comments import unused
from stridewise.linter.rule import Rule

UNUSED = unused.DOC
"""SW300: it looks at comments, and is no file here."""


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of codes."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("sw"))
    return tuple(Rule.from_module(importlib.import_module(f"{__name__}.{name}")) for name in names)


def all_docs() -> tuple[Doc, ...]:
    """What each code that `lint` may report means, in the order of codes."""
    return (UNUSED, *all_rules())
