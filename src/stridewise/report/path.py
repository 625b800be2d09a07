"""The way of a strided tensor as a short tree: where it starts, what passes it on, and who copies it."""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from msgspec import Struct
from rich.cells import cell_len
from rich.text import Text

from stridewise.findings import Carrier, Cost, Finding, Payer, Site
from stridewise.report.prose import column
from stridewise.report.text import one_line, shorten, shorten_left
from stridewise.results import numbers

_MOST_CARRIERS = 4
_MOST_PAYERS = 6
_BACKWARD = " (backward)"
_PLACE = 32
_LEAST_PLACE, _LEAST_EXPRESSION = 12, 24


class _Row(Struct, frozen=True):
    expression: str
    place: str
    role: str
    operand: str = ""
    """What a payer copies; it stands on a line of its own."""


def path_rows(finding: Finding, width: int) -> Iterator[Text]:
    """Draw the tree, one line of text each; nothing when the finding's own line has said it all."""
    if sole_payer(finding):
        return
    branches = [*_carriers(finding), *_payers(grouped_payers(finding.payers), finding.site)]
    root = None
    if finding.origin is not None and (branches or finding.origin != finding.site):
        root = _Row(
            one_line(shown_expression(finding.origin, "?")),
            one_line(shown_place(finding.origin, finding.site)),
            start_of(finding),
        )
    yield from _drawn(root, branches, width)


def start_of(finding: Finding) -> str:
    """What the origin does; where it is one expression with what pays, that it does so inside torch."""
    origin = finding.origin
    if origin is None or not origin.file:
        return "arrives like this"
    sites = [*(carrier.site for carrier in finding.carriers), *(payer.site for payer in finding.payers)]
    if origin.via and any(_place(site) == _place(origin) for site in sites):
        return f"starts in {one_line(origin.via.partition(' in ')[0])}"
    return "starts here"


def sole_payer(finding: Finding) -> Payer | None:
    """Give the one call that pays, when it is the finding's own site and nothing lies before it."""
    payers = {(payer.site, payer.operand): payer for payer in finding.payers}
    alone = len(payers) == 1 and finding.origin in (None, finding.site) and not finding.carriers
    payer = next(iter(payers.values())) if alone else None
    return payer if payer and payer.site == finding.site else None


def _drawn(root: _Row | None, branches: Sequence[_Row], width: int) -> Iterator[Text]:
    rows = [*([root] if root else []), *branches]
    if not rows:
        return
    glyph = 3 if root else 0
    roles = max(len(row.role) for row in rows)
    room = width - roles - 4
    places = min(max(cell_len(row.place) for row in rows), _PLACE, max(room - _LEAST_EXPRESSION, _LEAST_PLACE))
    cells = min(max(room - places, _LEAST_PLACE), max(cell_len(row.expression) for row in rows) + glyph)
    for index, row in enumerate(rows):
        branch = root is not None and index > 0
        last = index == len(rows) - 1
        head = ("└─ " if last else "├─ ") if branch else ""
        expression = column(head + shorten(row.expression, cells - len(head)), cells)
        place = column(shorten_left(row.place, places), places)
        yield Text.assemble((expression, "" if branch else "bold"), "  ", (place, "blue"), "  ", row.role)
        if row.operand:
            stem = ("   " if last else "│  ") if branch else ""
            yield Text(shorten(f"{stem}   {row.operand}", width), "dim")


def _carriers(finding: Finding) -> Iterator[_Row]:
    carriers = grouped_carriers(finding.carriers)
    shown = carriers if len(carriers) <= _MOST_CARRIERS else carriers[: _MOST_CARRIERS - 1]
    for carrier in shown:
        times = f", {numbers.figure(carrier.count)} times" if carrier.count > 1 else ""
        yield _Row(
            one_line(shown_expression(carrier.site, carrier.op)),
            one_line(shown_place(carrier.site, finding.site)),
            f"passes it on{times}",
        )
    if len(carriers) > len(shown):
        yield _Row(f"… {len(carriers) - len(shown)} more", "", "pass it on")


def grouped_carriers(carriers: Sequence[Carrier]) -> list[Carrier]:
    """Put carriers that one expression made next to each other, as the layers of an `nn.Sequential`, together."""
    groups: list[Carrier] = []
    for carrier in carriers:
        last = groups[-1] if groups else None
        if last is not None and carrier.site.file is not None and _place(last.site) == _place(carrier.site):
            groups[-1] = Carrier(last.site, last.op, last.count + carrier.count)
        else:
            groups.append(carrier)
    return groups


def _place(site: Site) -> tuple[object, ...]:
    """What tells an expression from others, whatever ran in it."""
    return site.file, site.line, site.column, site.end_line, site.end_column, site.expression


def _payers(payers: Sequence[tuple[Payer, int]], home: Site) -> Iterator[_Row]:
    shown = payers if len(payers) <= _MOST_PAYERS + 1 else payers[:_MOST_PAYERS]
    operand = None
    for payer, calls in shown:
        times = f" (×{calls})" if calls > 1 else ""
        repeated = payer.operand == operand
        operand = payer.operand
        yield _Row(
            one_line(shown_expression(payer.site, payer.op)) + times,
            one_line(shown_place(payer.site, home)),
            f"pays {numbers.cost(payer.cost)}" + (", in backward" if payer.op.endswith(_BACKWARD) else ""),
            "" if repeated or not operand else f"copies {one_line(operand)}",
        )
    if len(payers) > len(shown):
        rest = payers[len(shown) :]
        yield _Row(f"… {len(rest)} more", "", f"pay {numbers.cost(_total([payer.cost for payer, _ in rest]))}")


def grouped_payers(payers: Sequence[Payer]) -> list[tuple[Payer, int]]:
    """Put payers of equal layers, which differ in nothing but the module, together."""
    groups: dict[tuple[object, ...], list[Payer]] = {}
    for payer in payers:
        site = payer.site
        key = (site.file, site.line, site.column, site.expression, payer.op, payer.operand)
        groups.setdefault(key, []).append(payer)
    return [
        (Payer(group[0].site, group[0].op, group[0].operand, _total([payer.cost for payer in group])), len(group))
        for group in groups.values()
    ]


def _total(costs: Sequence[Cost]) -> Cost:
    def add(field: str) -> float | None:
        values = list(map(attrgetter(field), costs))
        return None if None in values else sum(values)

    return Cost(
        copies=add("copies") or 0,
        bytes_moved=add("bytes_moved") or 0,
        duration_ns=add("duration_ns"),
        share=add("share"),
    )


def shown_expression(site: Site, op: str) -> str:
    """What stands at a place: the expression, or else what was called there."""
    name = op.removesuffix(_BACKWARD).removeprefix("torch.nn.functional.").removeprefix("torch.")
    return site.expression or name


def shown_place(site: Site, home: Site) -> str:
    """Where a place is for a reader of the finding at `home`: a line of the same file, else with its file."""
    if site.file is not None and site.file == home.file and site.line is not None:
        return f"line {site.line}"  # the file stands above
    if site.file is None:
        return site.module or ""
    return site.file if site.line is None else f"{site.file}:{site.line}"
