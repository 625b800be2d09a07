"""What autocast did in a recording, region by region."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from stridewise.analysis.autocast.casting import Casting, Castings
from stridewise.analysis.autocast.entry import entry_site
from stridewise.analysis.autocast.figures import Figures
from stridewise.analysis.autocast.rows import Rows
from stridewise.analysis.case import Case
from stridewise.analysis.copies import call_marks
from stridewise.analysis.paths.units import Units
from stridewise.analysis.sites import place_of
from stridewise.findings import Site
from stridewise.recording.dtypes import from_cpp
from stridewise.results import AutocastOperator, AutocastRegion, AutocastUse, Family

_WORKING: tuple[Family, ...] = ("convolution", "matmul", "attention")
_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
_NOWHERE = -1
"""The region of what ran in none, or was recorded without."""


def autocast_use(case: Case) -> AutocastUse | None:
    """What autocast did; None where it was not used."""
    castings = Castings(case)
    if not castings.found and not castings.regions:
        return None
    return _Regions(case, castings).use()


class _Regions:
    def __init__(self, case: Case, castings: Castings) -> None:
        self.case = case
        self.castings = castings
        self.figures = Figures(case)
        self.rows = castings.regions or []
        self.found = [casting for casting in castings.found if casting.step is not None]
        self.gradients = [gradient for gradient in castings.gradients() if gradient.step is not None]
        self.entries = self._entries()
        self.folded = self._fold()
        """Of each region of the log that held a call of a step, which one of the report stands for it."""

    def use(self) -> AutocastUse | None:
        """All of it; None where no step ran under autocast."""
        if not self.folded and not self.found:
            return None
        plain = self._operators_as_called()
        numbers = sorted(set(self.folded.values()))
        if any(self._region_of(casting) == _NOWHERE for casting in self.found):
            numbers.append(_NOWHERE)
        positions = {number: position for position, number in enumerate(numbers)}
        casts = [cast for casting in self.found for cast in casting.casts]
        rows = Rows(self.figures, self.found, self.rows)
        return AutocastUse(
            recorded=self.castings.regions is not None,
            regions=tuple(self._region(number, plain) for number in numbers),
            casts=rows.casts(lambda casting: positions[self._region_of(casting)]),
            repeated=rows.repeated(),
            with_copies=rows.with_copies(),
            cost=self.figures.cost(casts),
            backward=self.figures.cost(self.gradients),
            cache_hits=self.figures.per_step(sum(len(casting.hits) for casting in self.found)),
            unidentified=self.figures.per_step(sum(cast.ref < 0 for cast in casts)),
        )

    def _entries(self) -> set[tuple[int, int]]:
        """The regions of the log, each with the steps in which something was called in it."""
        found: set[tuple[int, int]] = set()
        for mark in call_marks(self.case.trace.ops) if self.rows else ():
            region, step = self.castings.region_of(self.case.trace.ops.call[mark]), self.castings.step(mark)
            while region >= 0 and step is not None and (region, step) not in found:
                found.add((region, step))
                region = self.rows[region].parent
        return found

    def _fold(self) -> dict[int, int]:
        """Regions that are entered at one place, in one state, and in regions that are folded alike, are one."""
        numbers: dict[Hashable, int] = {}
        folded: dict[int, int] = {}
        for region in sorted({region for region, _ in self.entries}):
            row, site = self.rows[region], self._site(region)
            parent = folded.get(row.parent, -1)
            state = (row.device, row.dtype, row.enabled, row.cache)
            key = (parent, place_of(site) if site is not None else None, state, row.before)
            folded[region] = numbers.setdefault(key, len(numbers))
        return folded

    def _site(self, region: int) -> Site | None:
        number = self.rows[region].site
        return entry_site(self.case.log.sites[number]) if number >= 0 else None

    def _region_of(self, casting: Casting) -> int:
        return self.folded.get(casting.region, _NOWHERE)

    def _region(self, number: int, plain: Sequence[tuple[int, AutocastOperator]]) -> AutocastRegion:
        inside = [casting for casting in self.found if self._region_of(casting) == number]
        casts = [cast for casting in inside for cast in casting.casts]
        back = [given for given in self.gradients if self._region_of(self.castings.found[given.casting]) == number]
        operators = [*self._operators(inside), *(operator for region, operator in plain if region == number)]
        entries = [region for region, _ in self.entries if self.folded[region] == number]
        row = self.rows[entries[0]] if entries else None
        within = self.folded.get(row.parent, -1) if row is not None else -1
        return AutocastRegion(
            site=self._site(entries[0]) if entries else None,
            within=within if within >= 0 else None,
            device=row.device if row else None,
            dtype=row.dtype if row else None,
            enabled=row.enabled if row else None,
            cache=row.cache if row else None,
            entered=self.figures.per_step(len(entries)) if entries else None,
            operators=tuple(sorted(operators, key=lambda operator: -operator.count)),
            casts=self.figures.cost(casts),
            backward=self.figures.cost(back),
            weights=self.figures.per_step(sum(self.figures.is_parameter(cast) for cast in casts)),
            cache_hits=self.figures.per_step(sum(len(casting.hits) for casting in inside)),
        )

    def _operators(self, castings: Iterable[Casting]) -> Iterable[AutocastOperator]:
        groups: dict[Hashable, list[Casting]] = defaultdict(list)
        for casting in castings:
            site = self.figures.site(casting)
            key = self.case.trace.ops.text(casting.outer), site and place_of(site), casting.given, casting.ran
            groups[key].append(casting)
        for group in groups.values():
            first = group[0]
            yield AutocastOperator(
                op=self.case.trace.ops.text(first.outer),
                site=self.figures.common_site(casting.outer for casting in group),
                given=first.given,
                ran=", ".join(first.ran),
                cast=True,
                count=self.figures.per_step(len(group)),
                casts=self.figures.per_step(sum(len(casting.casts) for casting in group)),
                cache_hits=self.figures.per_step(sum(len(casting.hits) for casting in group)),
            )

    def _operators_as_called(self) -> list[tuple[int, AutocastOperator]]:
        """Convolutions, products and attentions in regions that autocast did not take up, each with its region."""
        if not self.folded:
            return []
        ops = self.case.trace.ops
        taken = sorted(casting.outer for casting in self.castings.found)
        groups: dict[tuple[int, str, Hashable, tuple[str, ...], tuple[str, ...]], list[int]] = defaultdict(list)
        for unit in Units(self.case.trace).found:
            region = self.folded.get(self.castings.region_of(ops.call[unit.first]), _NOWHERE)
            place = bisect_left(taken, unit.first)
            is_taken = place < len(taken) and taken[place] < unit.end
            if region < 0 or is_taken or unit.family not in _WORKING:
                continue
            given, ran = (self._dtypes(op) for op in (unit.first, unit.leaf))
            if self.castings.step(unit.first) is not None and (given or ran):
                site = self.figures.site_of_op(unit.first)
                groups[region, ops.text(unit.first), site and place_of(site), given, ran].append(unit.first)
        return [
            (
                region,
                AutocastOperator(
                    op=op,
                    site=self.figures.common_site(group),
                    given=given or ran,
                    ran=", ".join(dict.fromkeys(ran or given)),
                    cast=False,
                    count=self.figures.per_step(len(group)),
                    casts=0,
                    cache_hits=0,
                ),
            )
            for (region, op, _, given, ran), group in groups.items()
        ]

    def _dtypes(self, op: int) -> tuple[str, ...]:
        dtypes = (from_cpp(kind) for _, _, kind in self.case.trace.ops.args[op].inputs)
        return tuple(dtype for dtype in dtypes if dtype in _FLOATS)
