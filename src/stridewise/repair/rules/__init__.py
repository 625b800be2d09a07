"""The rules on what only trials and replays can tell, one file each."""

import functools
from types import ModuleType

from stridewise.codes import Doc, doc_of


class TrialRule(Doc, frozen=True):
    """One rule, as its file defines it."""

    fires: tuple[str, ...]
    quiet: tuple[str, ...]
    """Programs, as Python source, that can and can't make it fire, whatever their times are."""

    @classmethod
    def from_module(cls, module: ModuleType) -> "TrialRule":
        """The rule that a file is."""
        doc = doc_of(module)
        return cls(doc.code, doc.title, doc.summary, doc.doc, module.FIRES, module.QUIET)


@functools.cache
def all_rules() -> tuple[TrialRule, ...]:
    """Every rule."""
    from stridewise.repair.rules import sw104, sw109

    return tuple(TrialRule.from_module(module) for module in (sw104, sw109))


__all__ = ["TrialRule", "all_rules"]
