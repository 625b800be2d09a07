"""The rules on compiled and exported code, one file each."""

import functools
import importlib
import pkgutil
from types import ModuleType

from stridewise.checks.rule import Rule


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """The files, in the order of codes."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("sw"))
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in names)


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of codes."""
    return tuple(map(Rule.from_module, modules()))
