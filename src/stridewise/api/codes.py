"""Which findings a caller wants."""

from __future__ import annotations

from collections.abc import Collection

from stridewise.config import Budget, parse_budget, parse_codes
from stridewise.errors import UsageError

Codes = tuple[str, ...] | None


def wanted_codes(select: Collection[str] | None, ignore: Collection[str] | None) -> tuple[Codes, Codes]:
    """Both as codes: a text is one, or several with commas. Raises UsageError for what is none, or no rule has."""
    return _read("select", select), _read("ignore", ignore)


def wanted_budget(budget: Budget | str, select: Codes, ignore: Codes) -> Budget:
    """What a recording's report is held against. Raises UsageError also for a code that no such report can show."""
    from stridewise.report.codes import require_kept, require_known

    read = budget if isinstance(budget, Budget) else parse_budget(budget)
    require_known("budget: forbid", read.forbid, ("recordings",))
    require_kept(read.forbid, select or (), ignore or ())
    return read


def _read(option: str, given: Collection[str] | None) -> Codes:
    if given is None:
        return None
    try:
        codes = parse_codes([given] if isinstance(given, str) else given)
    except (TypeError, AttributeError):
        raise UsageError(f"{option} is {given!r}.", expected="Expected: codes such as ['SW101', 'SW3'].") from None
    if codes:
        from stridewise.report.codes import require_known

        require_known(option, codes)
    return codes
