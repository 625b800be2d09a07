"""The rules on live objects, one file each: SW2 on models, optimizers, data and ranks, SW4 on operators."""

import functools
import sys
from types import ModuleType

from stridewise.checks.rule import Rule, files_of


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """The files, in the order of codes."""
    return files_of(sys.modules[__name__])


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of codes."""
    return tuple(map(Rule.from_module, modules()))
