"""What checks of operators and of live objects found, in a sentence."""

from collections.abc import Sequence

from stridewise.findings import Finding
from stridewise.results import numbers
from stridewise.results.checks import Conformance, LoaderReport, Operand, OpVerdict, Preflight

_DOES: dict[OpVerdict, str] = {
    "crashes": "crashes",
    "hangs": "hangs",
    "writes outside": "reaches outside of its operands",
    "wrong values": "gives wrong values",
    "does nothing": "changes nothing",
    "raises": "raises an error",
}
"""By how bad it is."""


def conformance(result: Conformance) -> str:
    """What an operator does with layouts."""
    op = f"`{result.op}`"
    bad = [operand for operand in result.operands if operand.failed]
    errors = [finding for finding in result.findings if finding.severity == "error"]
    if not result.cases:
        return f"{op} was not tried with any layout."
    if errors and bad:
        return f"{op} {_faults(bad)}."
    if errors:
        return f"{op} does not honour layouts: {numbers.count(len(errors), 'fault')}."
    left_out = [operand for operand in bad if operand.verdict != "raises"]
    if left_out and not result.findings:
        return f"{op} {_faults(bad)}; the findings were left out, as asked."
    refused = [operand for operand in bad if operand.verdict == "raises"]
    ran = f"{numbers.count(len(result.cases), 'run')} over layouts of {_of(result.operands)}"
    if refused:
        clear = "" if result.ok else ", and does not say that layout is the matter"
        return f"{op} {_faults(refused)}{clear}; no wrong result in {ran}."
    if not result.ok:
        return f"{op} gives right values in {ran}, but {numbers.count(len(result.findings), 'thing')} may go wrong."
    if all(operand.verdict == "not comparable" for operand in result.operands):
        return f"{op} gives nothing that can be compared, or other values at each call; no harm was seen in {ran}."
    return f"{op} honours strides: {ran}, and every result was right."


def preflight(result: Preflight) -> str:
    """What layout will do to a program's parts."""
    looked = "; ".join(row.what for row in result.looked) or "nothing"
    return _hazards(result.findings, looked)


def loader(result: LoaderReport) -> str:
    """What a loader's layouts cost and lose."""
    return _hazards(
        result.findings,
        f"{numbers.count(result.batches, 'batch', 'batches')} of {numbers.count(len(result.fields), 'field')}",
    )


def _hazards(findings: Sequence[Finding], looked: str) -> str:
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = sum(finding.severity == "warning" for finding in findings)
    notes = len(findings) - errors - warnings
    if not errors and not warnings:
        besides = f" {numbers.count(notes, 'note')}." if notes else ""
        return f"No hazard found in {looked}.{besides}"
    counted = numbers.count(warnings, "warning")
    if not errors:
        return f"{counted} in {looked}."
    hazards = "1 hazard that makes" if errors == 1 else f"{numbers.count(errors, 'hazard')} that make"
    return f"{hazards} results wrong or the program fail{f', and {counted}' if warnings else ''}, in {looked}."


def _faults(operands: Sequence[Operand]) -> str:
    """`gives wrong values for 9 of 31 layouts of `x``, the worst first."""
    parts = []
    for verdict, does in _DOES.items():
        of = [
            f"{operand.failed} of {numbers.count(operand.tried, 'layout')} of `{operand.name}`"
            for operand in operands
            if operand.verdict == verdict
        ]
        if of:
            parts.append(f"{does} for {_joined(of)}")
    return _joined(parts)


def _of(operands: Sequence[Operand]) -> str:
    names = [f"`{operand.name}`" for operand in operands]
    return _joined(names) if len(names) <= 4 else numbers.count(len(names), "operand")


def _joined(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
