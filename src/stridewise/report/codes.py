"""Every code that a finding can have, with what it means, whichever part of stridewise finds it."""

import functools
from collections.abc import Collection, Iterable
from typing import Literal

from stridewise.codes import Doc
from stridewise.config import is_wanted
from stridewise.errors import UsageError

Finder = Literal["recordings", "compiled", "check", "fix", "lint"]
RECORDED: tuple[Finder, ...] = ("recordings", "compiled")
"""Whose codes a report on a recording has, and its budget may forbid."""
REPORTED: tuple[Finder, ...] = (*RECORDED, "check")
"""Whose codes `select` and `ignore` of [tool.stridewise] are about."""

_SOURCE = "SW3"
_NAMES: dict[Finder, str] = {
    "recordings": "a recording has",
    "compiled": "`run` and `trace` have, with --compiled",
    "check": "`stridewise check` finds",
    "fix": "`stridewise fix` finds",
    "lint": "`stridewise lint` finds, by its own settings in [tool.stridewise.lint]",
}


@functools.cache
def docs_of(finder: Finder) -> tuple[Doc, ...]:
    """What the codes mean that one part of stridewise finds, in no order."""
    if finder == "recordings":
        from stridewise.analysis.rules import all_rules as of_recordings

        return of_recordings()
    if finder == "compiled":
        from stridewise.compiled.rules import all_rules as of_compiled

        return of_compiled()
    if finder == "check":
        from stridewise.checks.rules import all_rules as of_checks

        return of_checks()
    if finder == "fix":
        from stridewise.repair.rules import all_rules as of_trials

        return of_trials()
    from stridewise.linter.rules import all_docs as of_sources

    return of_sources()


@functools.cache
def all_docs() -> tuple[Doc, ...]:
    """What each code means, in the order of codes."""
    return tuple(sorted((doc for finder in _NAMES for doc in docs_of(finder)), key=lambda doc: doc.code))


def codes_of(code: str, finders: tuple[Finder, ...]) -> tuple[str, ...]:
    """The codes that begin so, of those that these find."""
    return tuple(doc.code for finder in finders for doc in docs_of(finder) if doc.code.startswith(code))


def require_known(option: str, codes: Iterable[str], finders: tuple[Finder, ...] = REPORTED) -> None:
    """Raise UsageError for a code, or a beginning of codes, that none of these finds: it would do nothing."""
    for code in codes:
        if codes_of(code, finders):
            continue
        others = [name for finder, name in _NAMES.items() if codes_of(code, (finder,))]
        if not others:
            raise UsageError(f"{option} names {code}, which no rule has: `stridewise rule` lists all codes")
        raise UsageError(f"{option} names {code}, which only {' and '.join(others)}")


def require_kept(forbid: Iterable[str], select: Collection[str], ignore: Collection[str]) -> None:
    """Raise UsageError for what a budget forbids and no report can show, because of `select` and `ignore`.

    Of codes that begin alike some may be left out: those that are reported are forbidden.
    """
    for code in forbid:
        if not is_hidden(code, select, ignore):
            continue
        known = codes_of(code, RECORDED)
        alone = next((key for key, by in (("ignore", ((), ignore)), ("select", (select, ()))) if _hide(known, *by)), "")
        why = f"{alone} leaves" if alone else "select and ignore leave"
        raise UsageError(f"budget: forbid names {code}, which {why} out of the report: it could never be found")


def is_hidden(code: str, select: Collection[str], ignore: Collection[str]) -> bool:
    """Whether a recording's report shows none of the codes that begin so."""
    return _hide(codes_of(code, RECORDED), select, ignore)


def _hide(codes: Iterable[str], select: Collection[str], ignore: Collection[str]) -> bool:
    return not any(is_wanted(code, select, ignore) for code in codes)


def doc(code: str) -> Doc | None:
    """What a code means; None if there is no such code. Those of source rules take no import of the others."""
    if code.startswith(_SOURCE):
        from stridewise.linter.rules import all_docs as all_source_docs

        return next((doc for doc in all_source_docs() if doc.code == code), None)
    return next((doc for doc in all_docs() if doc.code == code), None)
