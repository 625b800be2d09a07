"""What a source rule is: a file that finds problems in a module, and examples of when it must fire and not."""

import ast
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct

from stridewise.codes import Doc, doc_of
from stridewise.findings import Edit, Severity

if TYPE_CHECKING:
    from stridewise.linter.module import Module


class Problem(Struct, frozen=True):
    """What a rule has to say of one node."""

    node: ast.expr | ast.stmt
    message: str
    """What is wrong with it and why, in a sentence or two that quote the code."""
    advice: str | None = None
    """What to write, in a sentence."""
    edits: tuple[Edit, ...] = ()
    """One fix. All of them are made together, and have the same safety."""
    severity: Severity | None = None
    """None for the rule's own."""
    origin: ast.expr | ast.stmt | None = None
    """Where the value came to be as it is, if that is another place."""
    evidence: tuple[str, ...] = ()


class Fires(Struct, frozen=True):
    """A module that must make a rule fire."""

    source: str
    fixed: str | None = None
    """What the rule's fixes make of it; None if it offers none there."""
    count: int = 1
    """How often it fires."""


class Rule(Doc, frozen=True):
    """One rule, as its file defines it."""

    words: frozenset[str]
    """Names in source without one of which it has nothing to say. Nodes on other lines are not indexed."""
    check: Callable[["Module"], Iterator[Problem]]
    severity: Severity
    default: bool
    """Whether it is on unless somebody says otherwise."""
    fires: tuple[Fires, ...]
    quiet: tuple[str, ...]
    """Modules that must not make it fire."""

    @classmethod
    def from_module(cls, module: ModuleType) -> "Rule":
        """The rule that a file under `rules/` is."""
        doc = doc_of(module)
        return cls(
            *(doc.code, doc.title, doc.summary, doc.doc),
            words=frozenset(module.WORDS),
            check=module.check,
            severity=module.SEVERITY,
            default=getattr(module, "DEFAULT", True),
            fires=module.FIRES,
            quiet=module.QUIET,
        )
