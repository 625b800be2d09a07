"""From what compiled code is to findings. No torch."""

from stridewise.compiled.facts import Facts
from stridewise.compiled.rules import sw501, sw502, sw503, sw504, sw505
from stridewise.findings import Finding

_ORDER = {"error": 0, "warning": 1, "note": 2}


def judged(facts: Facts) -> tuple[Finding, ...]:
    """What there is to say, the worst first."""
    found = [finding for rule in (sw501, sw502, sw503, sw504, sw505) for finding in rule.check(facts)]
    return tuple(sorted(found, key=lambda finding: (_ORDER[finding.severity], finding.code)))
