"""What a rule on live objects is: a file that judges facts, and examples of when it must fire and when not."""

import importlib
import pkgutil
import sys
from types import ModuleType
from typing import Literal

from msgspec import Struct

from stridewise.codes import Doc, doc_of
from stridewise.findings import NOT_MEASURED, Edit, Finding, Severity, Site, fingerprint

Way = Literal["preflight", "loader", "op", "guard", "contract", "compile", "artefact"]
"""How the examples of a rule are run: `subject()` gives what `preflight` takes, as a dict, or a loader for
`inspect_loader`; `op` and `op_sample` are what `check_op` takes; `program()` runs under the guards, or by itself; for
compiled and exported code `subject()` gives the arguments of `explain_compile` or `check_export` as a dict."""


class Rule(Doc, frozen=True):
    """One rule, as its file defines it."""

    severity: Severity
    """Unless a finding has another."""
    way: Way
    fires: tuple[str, ...]
    quiet: tuple[str, ...]
    """Modules, as Python source, that must and must not make it fire."""

    @classmethod
    def from_module(cls, module: ModuleType) -> "Rule":
        """The rule that a file under `rules/` is."""
        doc = doc_of(module)
        words = doc.code, doc.title, doc.summary, doc.doc
        return cls(*words, module.SEVERITY, module.WAY, module.FIRES, module.QUIET)


def files_of(package: ModuleType) -> tuple[ModuleType, ...]:
    """The files of a package that are rules, in the order of codes."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.name.startswith("sw"))
    return tuple(importlib.import_module(f"{package.__name__}.{name}") for name in names)


class Problem(Struct, frozen=True):
    """What a rule has to say of one thing."""

    site: Site
    """Of a live object: `module` is its path in the model, `expression` what it is (`` parameter `c.weight` ``); of a
    call: where it was made."""
    message: str
    """What is wrong with it and why, in a sentence or two, with sizes and strides."""
    advice: str | None = None
    """What to write."""
    evidence: tuple[str, ...] = ()
    """What was compared, on which ranks, and what differed."""
    severity: Severity | None = None
    """None for the rule's own."""
    count: int = 1
    origin: Site | None = None
    """Where a tensor left its layout, if that is known."""
    edits: tuple[Edit, ...] = ()
    details: tuple[str, ...] = ()
    """What tells it from others at the same site."""


def finding(rule: str, problem: Problem) -> Finding:
    """The finding that a problem is. `rule` is the `__name__` of the rule's module."""
    module = sys.modules[rule]
    doc = doc_of(module)
    return Finding(
        code=doc.code,
        title=doc.title,
        severity=problem.severity or module.SEVERITY,
        message=problem.message,
        count=problem.count,
        site=problem.site,
        origin=problem.origin,
        carriers=(),
        payers=(),
        cost=NOT_MEASURED,
        evidence=problem.evidence,
        advice=problem.advice,
        edits=problem.edits,
        fingerprint=fingerprint(doc.code, problem.site, problem.site.module or "", *problem.details),
    )
