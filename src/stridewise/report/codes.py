"""Every code that a finding can have, with what it means, whichever part of stridewise finds it."""

import functools
from collections.abc import Iterable

from stridewise.codes import Doc
from stridewise.errors import UsageError

_SOURCE = "SW3"


@functools.cache
def all_docs() -> tuple[Doc, ...]:
    """What each code means, in the order of codes."""
    from stridewise.analysis.rules import all_rules
    from stridewise.checks.rules import all_rules as all_check_rules
    from stridewise.compiled.rules import all_rules as all_compiled_rules
    from stridewise.linter.rules import all_docs as all_source_docs
    from stridewise.repair.rules import all_rules as all_trial_rules

    measured = (*all_rules(), *all_trial_rules(), *all_check_rules(), *all_compiled_rules())
    return tuple(sorted((*measured, *all_source_docs()), key=lambda doc: doc.code))


def require_known(option: str, codes: Iterable[str]) -> None:
    """Raise UsageError for a code, or a beginning of codes, that no rule has: it would do nothing."""
    known = [doc.code for doc in all_docs()]
    for code in codes:
        if not any(name.startswith(code) for name in known):
            raise UsageError(f"{option} names {code}, which no rule has: `stridewise rule` lists all codes")


def doc(code: str) -> Doc | None:
    """What a code means; None if there is no such code. Those of source rules take no import of the others."""
    if code.startswith(_SOURCE):
        from stridewise.linter.rules import all_docs as all_source_docs

        return next((doc for doc in all_source_docs() if doc.code == code), None)
    return next((doc for doc in all_docs() if doc.code == code), None)
