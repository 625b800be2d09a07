"""Casts as the report names and counts them: tensors, places, costs per step."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec import Struct

from stridewise.analysis.autocast.casting import Cast, Casting, Gradient, is_parameter
from stridewise.analysis.case import Case
from stridewise.analysis.copies import TracedCopy
from stridewise.analysis.sites import common_path, common_site
from stridewise.findings import Site
from stridewise.results import CastCost

_QUOTED = re.compile(r"`([^`]*)`")


class Made(Struct, frozen=True, gc=False):
    """A cast, and the operator that it was made for."""

    casting: Casting
    cast: Cast


class Figures:
    """Words and numbers for the casts of one recording."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def per_step(self, figure: int) -> float:
        """Divided by the number of steps; a whole number stays one."""
        steps = self.case.steps
        return figure // steps if figure % steps == 0 else figure / steps

    def cost(self, casts: Sequence[Cast] | Sequence[Gradient] | Sequence[TracedCopy]) -> CastCost:
        """Of casts or copies together."""
        moved = [cast.bytes_moved for cast in casts]
        return CastCost(
            count=self.per_step(len(casts)),
            bytes_moved=None if None in moved else self.per_step(sum(figure or 0 for figure in moved)),
            duration_ns=self.per_step(sum(cast.duration_ns or 0 for cast in casts)),
        )

    def site(self, casting: Casting) -> Site | None:
        """Where the operator was called."""
        return self.site_of_op(casting.outer)

    def site_of_op(self, op: int) -> Site | None:
        """The same of any operator."""
        site = self.case.site_of_op(op)
        return site if site != Site() else None

    def common_site(self, ops: Iterable[int]) -> Site | None:
        """One place for operators that equal layers run."""
        sites = [site for site in map(self.site_of_op, ops) if site is not None]
        return common_site(sites) if sites else None

    def name(self, made: Made) -> str | None:
        """What a cast reads, in words; None: not known."""
        case, cast, call = self.case, made.cast, made.casting.call
        if cast.ref < 0:
            return None
        parameter = self.parameter_behind(cast.ref)
        if parameter is not None:
            return f"the {parameter}" if is_parameter(case, cast.ref) else f"a view of the {parameter}"
        producer = case.flow.producers[call][cast.place]
        return f"what `{case.function(producer)}` returns" if producer >= 0 else case.flow.name_of(cast.ref)

    def is_parameter(self, cast: Cast) -> bool:
        """Whether a cast reads a whole parameter."""
        return cast.ref >= 0 and is_parameter(self.case, cast.ref)

    def parameter_behind(self, ref: int) -> str | None:
        """The name of the parameter whose memory a tensor lies in."""
        return self._parameters.get(self.case.log.refs[ref].storage)

    @cached_property
    def _parameters(self) -> dict[int, str]:
        """By the numbers of their storages."""
        log = self.case.log
        named = ((ref.storage, log.names.get(ref.object, "")) for ref in log.refs)
        return {storage: name for storage, name in named if storage >= 0 and name.startswith("parameter")}


def kind_of(name: str | None) -> str:
    """What the names of equal layers' tensors have in common: all but the path, of which the last part counts."""
    return _QUOTED.sub(lambda match: match[1].rpartition(".")[2], name or "")


def common_name(names: Sequence[str | None]) -> str | None:
    """One name for the tensors of equal layers: what differs in their paths becomes `*`."""
    first = names[0]
    paths = [match[1] for name in names if (match := _QUOTED.search(name or ""))]
    if first is None or len(set(names)) == 1 or len(paths) != len(names):
        return first
    return _QUOTED.sub(lambda _: f"`{common_path(paths)}`", first, count=1)
