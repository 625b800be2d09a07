"""Which finding of one report is which of another, though lines, functions and files may have moved."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

from stridewise.analysis.functions import short_name
from stridewise.findings import Finding, Site

Pair = tuple[Finding | None, Finding | None]


def pairs(old: Sequence[Finding], new: Sequence[Finding]) -> Iterator[Pair]:
    """Give each finding once, with what it is on the other side, or None.

    A finding has one partner at most, and the same whichever side comes first.
    """
    left, right = list(old), list(new)
    # A recording and a trace name the same place otherwise: then the operators that pay have to do.
    by_operators = (_same_functions, _same_operators) if old and new and names_of(old) != names_of(new) else ()
    for key_of in (*_KEYS, *by_operators):
        ours, theirs = _by_key(left, key_of), _by_key(right, key_of)
        left, right = ours.pop(None, []), theirs.pop(None, [])
        for key in ours | theirs:
            # Several that nothing tells apart: the costliest belong together.
            before, after = _costliest(ours.get(key, ())), _costliest(theirs.get(key, ()))
            yield from zip(before, after, strict=False)
            left += before[len(after) :]
            right += after[len(before) :]
    yield from ((finding, None) for finding in left)
    yield from ((None, finding) for finding in right)


def names_of(findings: Sequence[Finding]) -> str:
    """What places are named by: `expressions` in a recording, `functions` in a trace with stacks, else `nothing`."""
    if any(finding.site.column is not None for finding in findings):
        return "expressions"
    return "functions" if any(finding.site.file for finding in findings) else "nothing"


def place(site: Site) -> tuple[str, str, str]:
    """Where something stands, whatever the line: an expression, else the module it belongs to, else the line."""
    expression = " ".join((site.expression or "").split())
    line = "" if site.file is None or site.line is None else f"line {site.line}"
    return site.file or "", site.function or "", expression or ("" if site.file else site.module or "") or line


def _by_key(findings: Sequence[Finding], key_of: Callable[[Finding], Hashable]) -> dict[Hashable, list[Finding]]:
    groups: dict[Hashable, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[key_of(finding)].append(finding)
    return groups


def _costliest(findings: Sequence[Finding]) -> list[Finding]:
    if len(findings) < 2:
        return list(findings)
    return sorted(
        findings, key=lambda each: (-(each.cost.copies or 0), -(each.cost.bytes_moved or 0), each.count, repr(each))
    )


def _ops(finding: Finding) -> tuple[str, ...]:
    return tuple(sorted({payer.op for payer in finding.payers}))


def _same_name(finding: Finding) -> Hashable:
    return (finding.code, finding.fingerprint) if finding.fingerprint else None


def _same_place_and_ops(finding: Finding) -> Hashable:
    where, ops = place(finding.site), _ops(finding)
    return (finding.code, where, ops) if any(where) or ops else None


def _same_place(finding: Finding) -> Hashable:
    file, _, what = where = place(finding.site)
    return (finding.code, where) if file and what else None


def _function_renamed(finding: Finding) -> Hashable:
    file, _, what = place(finding.site)
    return (finding.code, file, what, _ops(finding)) if file and what else None


def _file_renamed(finding: Finding) -> Hashable:
    _, function, what = place(finding.site)
    return (finding.code, function, what, _ops(finding)) if finding.site.file and function and what else None


def _operators(finding: Finding) -> tuple[str, ...]:
    """The operators that pay in forward, whether a call log or a trace names them."""
    forward = [payer.op for payer in finding.payers if "ackward" not in payer.op] or [p.op for p in finding.payers]
    return tuple(sorted({short_name(op.removesuffix(" (backward)")).removeprefix("native_") for op in forward}))


def _same_functions(finding: Finding) -> Hashable:
    function = (finding.site.function or "").rpartition(".")[2]
    return (finding.code, function, _operators(finding)) if function and finding.payers else None


def _same_operators(finding: Finding) -> Hashable:
    return (finding.code, _operators(finding)) if finding.payers else None


def _nowhere(finding: Finding) -> Hashable:
    known = finding.fingerprint or finding.payers or any(place(finding.site))
    return None if known else finding.code


# The surest first. A fingerprint changes with the frame inside torch, say, or when the expression's function moves.
_KEYS: tuple[Callable[[Finding], Hashable], ...] = (
    _same_name,
    _same_place_and_ops,
    _same_place,
    _function_renamed,
    _file_renamed,
    _nowhere,
)
