"""From claims to findings: every taxed copy is charged to one, so that their costs add up to the tax."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.rule import Claim, Rule
from stridewise.analysis.tally import Tally
from stridewise.findings import Carrier, Cost, Finding, Payer, Site, fingerprint


def charge(case: Case, rules: Sequence[Rule], tally: Tally, min_share: float) -> tuple[list[Finding], dict[int, str]]:
    """The findings, costliest first, and the fingerprint of the finding that each taxed copy is charged to."""
    open_copies = list(case.taxed)
    findings: list[Finding] = []
    charged: dict[int, str] = {}
    for rule in rules:
        claims = list(rule.claims(case, open_copies))
        taken = {position for claim in claims for position in claim.copies}
        open_copies = [position for position in open_copies if position not in taken]
        for group in _equal(rule.code, claims):
            finding = _finding(case, rule, group, tally, min_share)
            findings.append(finding)
            charged |= {position: finding.fingerprint for claim in group for position in claim.copies}
    assert not open_copies, "a taxed copy is charged to no finding"
    findings.sort(key=lambda finding: (-(finding.cost.duration_ns or 0), -finding.cost.bytes_moved, finding.code))
    return findings, charged


def _equal(code: str, claims: Iterable[Claim]) -> list[list[Claim]]:
    groups: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        groups[_fingerprint(code, claim)].append(claim)
    return list(groups.values())


def _fingerprint(code: str, claim: Claim) -> str:
    # equal layers run the same expression under other names: a module counts only where there is no expression
    module = "" if claim.site.file is not None else _common_path([claim.site.module or ""])
    line = claim.site.expression is None and claim.site.line is not None
    return fingerprint(
        code, claim.site, module, claim.site.via or "", str(claim.site.line) if line else "", *claim.details
    )


def _finding(case: Case, rule: Rule, claims: list[Claim], tally: Tally, min_share: float) -> Finding:
    copies = [position for claim in claims for position in claim.copies]
    witnesses = [position for claim in claims for position in claim.witnesses]
    cost = tally.cost(copies) if copies else Cost()
    words = rule.words(case, claims)
    small = cost.share is not None and cost.share < min_share
    return Finding(
        code=rule.code,
        title=rule.title,
        severity="note" if small or not copies or words.only_a_note else "warning",
        message=words.message,
        count=max(1, round(len(claims) / case.steps)),
        site=_common_site([claim.site for claim in claims]),
        origin=_common_site([claim.origin for claim in claims if claim.origin is not None])
        if claims[0].origin
        else None,
        carriers=_carriers(case, claims),
        payers=_payers(case, copies or witnesses, tally),
        cost=cost,
        evidence=words.evidence,
        advice=words.advice,
        inferred=any(claim.inferred for claim in claims),
        fingerprint=_fingerprint(rule.code, claims[0]),
    )


def _payers(case: Case, copies: Sequence[int], tally: Tally) -> tuple[Payer, ...]:
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for position in copies:
        site = case.site_of_copy(position)
        groups[_place(site), case.payer_name(position), case.copies[position].backward].append(position)
    payers = [
        Payer(
            site=_common_site([case.site_of_copy(position) for position in group]),
            op=case.payer_name(group[0]) + (" (backward)" if case.copies[group[0]].backward else ""),
            operand=case.operand(group[0]),
            cost=tally.cost(group),
        )
        for group in groups.values()
    ]
    return tuple(sorted(payers, key=lambda payer: (-(payer.cost.duration_ns or 0), -payer.cost.bytes_moved)))


def _carriers(case: Case, claims: Sequence[Claim]) -> tuple[Carrier, ...]:
    calls: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for claim in claims:
        for call in claim.carriers:
            calls[_place(case.site(call)), case.function(call)].add(call)
    carriers = [
        Carrier(
            site=_common_site([case.site(call) for call in sorted(group)]),
            op=case.function(min(group)),
            count=max(1, round(len(group) / case.steps)),
        )
        for group in sorted(calls.values(), key=min)
    ]
    return tuple(carriers)


def _place(site: Site) -> tuple[object, ...]:
    return (
        site.file,
        site.line,
        site.column,
        site.end_line,
        site.end_column,
        site.via,
        site.module if not site.file else None,
    )


def _common_site(sites: Sequence[Site]) -> Site:
    """One site for equal ones: numbers in module paths that differ become `*`."""
    first = sites[0]
    modules = {site.module for site in sites}
    if len(modules) == 1:
        return first
    return Site(
        first.file,
        first.line,
        first.column,
        first.end_line,
        first.end_column,
        first.function,
        _common_path([module or "" for module in modules]),
        first.expression,
        first.via,
        first.text,
    )


def _common_path(paths: Sequence[str]) -> str:
    parts = [path.split(".") for path in paths]
    if len({len(entry) for entry in parts}) != 1:
        patterns = {re.sub(r"(?<![^.])\d+(?![^.])", "*", path) for path in paths}
        return min(patterns, key=len)
    return ".".join(names[0] if len(set(names)) == 1 else "*" for names in map(list, zip(*parts, strict=True)))
