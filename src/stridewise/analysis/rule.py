"""What a rule is: a file that finds claims on copies, words for them, and examples of when it must fire and not."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from msgspec import Struct

from stridewise.analysis.case import Case
from stridewise.analysis.origins import site_of_origin
from stridewise.codes import Doc, doc_of
from stridewise.findings import Site


class Claim(Struct, frozen=True):
    """Copies of one step that one finding explains, before equal claims are merged."""

    copies: tuple[int, ...]
    site: Site
    """Where the edit goes."""
    origin: Site | None = None
    carriers: tuple[int, ...] = ()
    """Calls."""
    inferred: bool = False
    details: tuple[str, ...] = ()
    """Claims merge only where these agree."""
    calls: tuple[int, ...] = ()
    """The calls that it is about, for a rule that needs them for its words."""
    witnesses: tuple[int, ...] = ()
    """Copies that the finding points at, but which another finding is charged with."""


class Words(Struct, frozen=True):
    """What a finding says."""

    message: str
    advice: str | None = None
    evidence: tuple[str, ...] = ()
    only_a_note: bool = False
    """It costs something, and is as it should be."""
    warns: bool = False
    """It is charged with no copy, and is worth a warning all the same."""


class Rule(Doc, frozen=True):
    """One rule, as its file defines it."""

    claims: Callable[[Case, Sequence[int]], Iterable[Claim]]
    """Claims on the copies that no earlier rule was charged with."""
    words: Callable[[Case, Sequence[Claim]], Words]
    """What to say of equal claims."""
    fires: tuple[str, ...]
    quiet: tuple[str, ...]
    """Programs, as Python source, that must and must not make it fire."""

    @classmethod
    def from_module(cls, module: ModuleType) -> "Rule":
        """The rule that a file under `rules/` is."""
        doc = doc_of(module)
        words = doc.code, doc.title, doc.summary, doc.doc
        return cls(*words, module.claims, module.words, module.FIRES, module.QUIET)


def by_call(case: Case, copies: Iterable[int]) -> list[list[int]]:
    """Copies of one step and one call together; of one operator where there is no call."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for position in copies:
        copy = case.copies[position]
        groups[copy.step, case.owner(position), copy.kind == "library" and copy.op].append(position)
    return list(groups.values())


def _most_common(origins: Sequence[Site | None]) -> Site | None:
    """Where most of several copies come from; of q, k and v one is transposed once more."""
    known = [origin for origin in origins if origin is not None]
    return max(known, key=known.count) if known else None


def claim_of_payer(case: Case, group: Sequence[int], *, with_origin: bool = True) -> Claim:
    """A claim on the copies of one payer, which stands at the payer and tells where its operand's stream was born."""
    stream = case.streams[group[0]]
    born = stream if with_origin and stream is not None and stream.origin.kind != "inside" else None
    origin = site_of_origin(case, group) if born is not None else None
    probable = (
        _most_common([case.probable_origin(position) for position in group]) if with_origin and not stream else None
    )
    return Claim(
        copies=tuple(group),
        site=case.site_of_copy(group[0]),
        origin=origin or probable,
        carriers=tuple(reversed(born.carriers)) if born is not None else (),
        inferred=probable is not None or any(case.copies[position].inferred for position in group),
        details=(case.payer_name(group[0]),),
    )
