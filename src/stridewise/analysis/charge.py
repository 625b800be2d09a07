"""From claims to findings: every taxed copy is charged to one, so that their costs add up to the tax."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.rule import Claim, Rule
from stridewise.analysis.sites import common_path, common_site, place_of
from stridewise.analysis.tally import Tally
from stridewise.findings import Carrier, Cost, Finding, Payer, fingerprint


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
    findings.sort(key=lambda finding: (*_costliest_first(finding.cost), finding.code))
    return findings, charged


def _costliest_first(cost: Cost) -> tuple[float, float]:
    return -(cost.duration_ns or 0), -(cost.bytes_moved or 0)


def _most_moved_first(cost: Cost) -> tuple[float, float]:
    """Equal copies stay in the order of the program: which of them took longer is chance, and differs by the run."""
    return -(cost.bytes_moved or 0), 0 if cost.bytes_moved else -(cost.duration_ns or 0)


def _equal(code: str, claims: Iterable[Claim]) -> list[list[Claim]]:
    groups: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        groups[_fingerprint(code, claim)].append(claim)
    return list(groups.values())


def _fingerprint(code: str, claim: Claim) -> str:
    # equal layers run the same expression under other names: a module counts only where there is no expression
    module = "" if claim.site.file is not None else common_path([claim.site.module or ""])
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
        severity="note" if small or words.only_a_note or not (copies or words.warns) else "warning",
        message=words.message,
        count=max(1, round(len(claims) / case.steps)),
        site=common_site([claim.site for claim in claims]),
        origin=common_site([claim.origin for claim in claims if claim.origin is not None])
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
        groups[place_of(site), case.payer_name(position), case.copies[position].backward].append(position)
    payers = [
        Payer(
            site=common_site([case.site_of_copy(position) for position in group]),
            op=case.payer_name(group[0]) + (" (backward)" if case.copies[group[0]].backward else ""),
            operand=case.operand(group[0]),
            cost=tally.cost(group),
        )
        for group in groups.values()
    ]
    return tuple(sorted(payers, key=lambda payer: _most_moved_first(payer.cost)))


def _carriers(case: Case, claims: Sequence[Claim]) -> tuple[Carrier, ...]:
    calls: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for claim in claims:
        for call in claim.carriers:
            calls[place_of(case.site(call)), case.function(call)].add(call)
    carriers = [
        Carrier(
            site=common_site([case.site(call) for call in sorted(group)]),
            op=case.function(min(group)),
            count=max(1, round(len(group) / case.steps)),
        )
        for group in sorted(calls.values(), key=min)
    ]
    return tuple(carriers)
