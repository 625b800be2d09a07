"""Casts of a recording, equal ones in one row: all, those made again, and those that go with a copy."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from math import prod

from stridewise.analysis.autocast.casting import Cast, Casting, is_parameter, outermost
from stridewise.analysis.autocast.figures import Figures, Made, common_name, kind_of
from stridewise.analysis.sites import common_site, place_of
from stridewise.findings import Site
from stridewise.recording.model import AutocastRow
from stridewise.results import AutocastCast, CastAndCopy, CastCost, RepeatedCast

KEEPS = "autocast keeps casts of weights only: float32 leaves that require a gradient"
CACHE_OFF = "the cache is off: `cache_enabled=False`"
FORGETS = "autocast forgets its casts where the outermost region ends, and these were made in several"
VIEW = "it is a view of a parameter, and autocast keeps casts of whole parameters only"
OTHER_DTYPE = "autocast keeps casts of float32 parameters only"
INFERENCE = "under `torch.inference_mode` autocast keeps no casts"
UNKNOWN = "not known, since regions of autocast were not recorded"
NO_GRADIENT = "autocast keeps casts of parameters that require a gradient only: this one probably requires none"


class Rows:
    """The tables of casts. `regions` are those of the log."""

    def __init__(self, figures: Figures, found: Sequence[Casting], regions: Sequence[AutocastRow]) -> None:
        self.case = figures.case
        self.figures = figures
        self.found = found
        self.made = [Made(casting, cast) for casting in found for cast in casting.casts]
        self.regions = regions

    def casts(self, region_of: Callable[[Casting], int]) -> tuple[AutocastCast, ...]:
        """All of them; `region_of` says which region of the report an operator ran in."""
        groups: dict[Hashable, list[Made]] = defaultdict(list)
        for made in self.made:
            site, name = self.figures.site(made.casting), self.figures.name(made)
            cast = made.cast
            key = (region_of(made.casting), self.case.trace.ops.text(made.casting.outer), site and place_of(site))
            groups[(*key, kind_of(name), cast.source_dtype, cast.dtype)].append(made)
        rows = []
        for group in groups.values():
            first = group[0]
            sizes = {made.cast.sizes for made in group}
            rows.append(
                AutocastCast(
                    region=region_of(first.casting),
                    tensor=common_name([self.figures.name(made) for made in group]),
                    parameter=self.figures.is_parameter(first.cast),
                    op=self.case.trace.ops.text(first.casting.outer),
                    site=self.figures.common_site(made.casting.outer for made in group),
                    sizes=first.cast.sizes if len(sizes) == 1 and first.cast.source_dtype else None,
                    source_dtype=first.cast.source_dtype,
                    dtype=first.cast.dtype,
                    cost=self.figures.cost([made.cast for made in group]),
                )
            )
        return tuple(sorted(rows, key=lambda row: (-(row.cost.bytes_moved or 0), -row.cost.count)))

    def repeated(self) -> tuple[RepeatedCast, ...]:
        """Memory that is read in one layout and version, and cast to one dtype, more than once in a step."""
        refs = self.case.log.refs
        same: dict[Hashable, list[Made]] = defaultdict(list)
        for made in self.made:
            ref = refs[made.cast.ref] if made.cast.ref >= 0 else None
            if ref is not None and ref.storage >= 0:
                same[made.casting.step, ref.storage, ref.layout, ref.version, made.cast.dtype].append(made)
        groups: dict[Hashable, list[list[Made]]] = defaultdict(list)
        for casts in same.values():
            if len(casts) > 1:
                places = sorted({(site and place_of(site)) or () for site in self._sites(casts)}, key=repr)
                cast = casts[0].cast
                key = tuple(places), kind_of(self.figures.name(casts[0])), cast.sizes, cast.source_dtype, cast.dtype
                groups[(*key, self._reason(casts))].append(casts)
        rows = [self._repeated_row(group) for group in groups.values()]
        return tuple(sorted(rows, key=lambda row: (-(row.again.bytes_moved or 0), -row.again.count)))

    def _repeated_row(self, group: Sequence[Sequence[Made]]) -> RepeatedCast:
        first = group[0][0].cast
        sites: dict[Hashable, list[Site]] = defaultdict(list)
        for site in (site for casts in group for site in self._sites(casts) if site is not None):
            sites[place_of(site)].append(site)
        return RepeatedCast(
            tensor=common_name([self.figures.name(casts[0]) for casts in group]),
            sizes=first.sizes,
            source_dtype=first.source_dtype or "",
            dtype=first.dtype or "",
            count=self.figures.per_step(sum(map(len, group))),
            again=self.figures.cost([made.cast for casts in group for made in casts[1:]]),
            reason=self._reason(group[0]),
            sites=tuple(map(common_site, sites.values())),
        )

    def _reason(self, casts: Sequence[Made]) -> str:
        first = casts[0]
        ref = first.cast.ref
        if not is_parameter(self.case, ref):
            return VIEW if self.figures.parameter_behind(ref) is not None else KEEPS
        regions = [made.casting.region for made in casts]
        if min(regions) < 0:
            return UNKNOWN
        if not all(self.regions[region].cache for region in regions):
            return CACHE_OFF
        if len({outermost(self.case, region) for region in regions}) > 1:
            return FORGETS
        if first.cast.source_dtype != "float32":
            return OTHER_DTYPE
        return INFERENCE if any(map(self._is_in_inference_mode, casts)) else NO_GRADIENT

    def _is_in_inference_mode(self, made: Made) -> bool:
        """Whether the call made tensors that count no versions."""
        refs = self.case.log.refs
        return any(refs[ref].version < 0 <= refs[ref].storage for ref in self.case.log.calls[made.casting.call].outputs)

    def with_copies(self) -> tuple[CastAndCopy, ...]:
        """Casts that write another memory order, and those whose results the same operator copies to another."""
        groups: dict[Hashable, list[tuple[Made, int]]] = defaultdict(list)
        for casting in self.found:
            site, op = self.figures.site(casting), self.case.trace.ops.text(casting.outer)
            for cast, position in self._pairs(casting):
                made, copy = Made(casting, cast), self.case.copies[position]
                layouts = cast.sizes, cast.source_strides, copy.strides, cast.dtype, copy.op == cast.copy
                groups[op, site and place_of(site), kind_of(self.figures.name(made)), layouts].append((made, position))
        rows = [self._with_copy(group) for group in groups.values()]
        return tuple(sorted(rows, key=lambda row: -(row.cost.bytes_moved or 0)))

    def _pairs(self, casting: Casting) -> Iterator[tuple[Cast, int]]:
        """The casts for an operator that go with a copy, each with its own, by position in the case's copies."""
        ops, (order, positions) = self.case.trace.ops, self._copies_by_op
        first, last = bisect_left(order, casting.inner), len(order)
        later = []
        for place in range(first, last):
            op = order[place]
            if ops.thread[op] != ops.thread[casting.outer] or ops.start_ns[op] >= ops.end_ns[casting.outer]:
                break
            later.append(positions[place])
        for cast in casting.casts:
            place = bisect_left(order, cast.copy)
            if place < last and order[place] == cast.copy:
                yield cast, positions[place]
            elif (after := self._copy_after(cast, casting.casts, later)) is not None:
                later.remove(after)
                yield cast, after

    def _copy_after(self, cast: Cast, casts: Sequence[Cast], later: Sequence[int]) -> int | None:
        """The copy that reads what a cast wrote: in its layout, or, of a view, as many elements as no other cast has.

        One that spreads elements reads something smaller, such as a bias.
        """
        copies = self.case.copies
        alike = [
            at
            for at in later
            if copies[at].source_dtype == copies[at].dtype == cast.dtype
            and prod(copies[at].sizes or ()) == prod(cast.sizes)
            and all(stride or size == 1 for size, stride in _dimensions(copies[at].sizes, copies[at].source_strides))
        ]
        for at in alike:
            layout = _dimensions(copies[at].sizes, copies[at].source_strides)
            if sorted(layout) == sorted(_dimensions(cast.sizes, cast.strides)):
                return at
        is_sole = sum(prod(other.sizes) == prod(cast.sizes) for other in casts) == 1
        return alike[0] if alike and is_sole else None

    @cached_property
    def _copies_by_op(self) -> tuple[list[int], list[int]]:
        """The operators that copy, ascending, and the position of each one's copy."""
        found = sorted((copy.op, position) for position, copy in enumerate(self.case.copies) if copy.op >= 0)
        return [op for op, _ in found], [position for _, position in found]

    def _with_copy(self, group: Sequence[tuple[Made, int]]) -> CastAndCopy:
        (first, position), copies = group[0], self.case.copies
        one_pass = copies[position].op == first.cast.copy
        later = [] if one_pass else [copies[at] for _, at in group]
        casts, after = self.figures.cost([made.cast for made, _ in group]), self.figures.cost(later)
        moved = None
        if casts.bytes_moved is not None and after.bytes_moved is not None:
            moved = casts.bytes_moved + after.bytes_moved
        return CastAndCopy(
            tensor=common_name([self.figures.name(made) for made, _ in group]),
            op=self.case.trace.ops.text(first.casting.outer),
            site=self.figures.common_site(made.casting.outer for made, _ in group),
            sizes=first.cast.sizes,
            source_strides=first.cast.source_strides or (),
            strides=copies[position].strides or (),
            source_dtype=first.cast.source_dtype,
            dtype=first.cast.dtype,
            one_pass=one_pass,
            cost=CastCost(casts.count, moved, casts.duration_ns + after.duration_ns),
        )

    def _sites(self, casts: Iterable[Made]) -> list[Site | None]:
        return [self.figures.site(made.casting) for made in casts]


def _dimensions(sizes: tuple[int, ...] | None, strides: tuple[int, ...] | None) -> list[tuple[int, int]]:
    return list(zip(sizes or (), strides or (), strict=False))
