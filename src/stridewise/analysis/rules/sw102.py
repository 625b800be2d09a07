"""SW102 repeated-copy: the same tensor is copied the same way again and again.

What it means
    In one step, two or more calls made the same copy: same memory, same layout, not written to in between, same
    result. One copy would have served them all.

Why it happens
    A weight or a buffer that is stored transposed, sliced or in another memory format, or an input that every layer
    takes; each call that needs it in order converts it anew and throws the result away.

How to fix it
    Convert it once: a parameter or a buffer where the model is built (`__init__`), an input before the first use, a
    tensor used in a loop before the loop.

When to ignore it
    When the copy is small, or keeping the converted tensor costs memory that you do not have.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.functions import short_name
from stridewise.analysis.origins import site_of_origin, unpacking
from stridewise.analysis.rule import Claim, Words
from stridewise.analysis.sites import common_site, place_of

FIRES = (
    """
table = torch.randn(64, 32).t()
norm = torch.nn.LayerNorm(64)
def program():
    for _ in range(3):
        norm(table)
""",
)
QUIET = (
    """
table = torch.randn(64, 32).t().contiguous()
norm = torch.nn.LayerNorm(64)
def program():
    for _ in range(3):
        norm(table)
""",
    """
table = torch.randn(64, 32).t()
norm = torch.nn.LayerNorm(64)
def program():
    norm(table)
    table.add_(1)
    norm(table)
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """Copies of one storage in one layout and version into one order, by two or more calls of a step."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for position in copies:
        stream = case.streams[position]
        if stream is None or stream.ref is None:
            continue
        ref, copy = case.log.refs[stream.ref], case.copies[position]
        if ref.storage >= 0 and ref.version >= 0:
            groups[copy.step, ref.storage, ref.layout, ref.version, copy.strides, copy.dtype].append(position)
    for group in groups.values():
        if len({case.copies[position].call for position in group}) < 2:
            continue
        stream = case.streams[group[0]]
        assert stream is not None
        sites = [case.site_of_copy(position) for position in group]
        yield Claim(
            copies=tuple(group),
            site=common_site([site for site in sites if place_of(site) == place_of(sites[0])]),
            origin=site_of_origin(case, group),
            carriers=stream.carriers,
            inferred=stream.inferred,
        )


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of copies that repeat."""
    first = claims[0]
    functions = list(dict.fromkeys(short_name(case.payer_name(position)) for position in first.copies))
    what = (first.origin.expression if first.origin else None) or "the same tensor"
    named = f"`{_line(what)}`" if first.origin and first.origin.file is not None else what
    return Words(
        message=f"{_listed(functions)} {'copies' if len(functions) == 1 else 'copy'} {named}"
        f" {len(first.copies)} times a step, each time the same way.",
        advice=_advice(case, first),
    )


def _advice(case: Case, claim: Claim) -> str:
    """Where to copy it once, and how."""
    stream = case.streams[claim.copies[0]]
    assert stream is not None
    form = "memory_format=torch.channels_last" if stream.goal.channels_last else ""
    if claim.origin is None or claim.origin.file is None:
        built = stream.origin.kind == "parameter"
        where = "where the model is built" if built else "before the step, or before the loop that takes it"
        return f"Copy it once, with `.contiguous({form})` {where}."
    name = claim.origin.expression or "this"
    line = unpacking(case, claim.origin, claim.copies[0])
    times = len({stream.origin for position in claim.copies if (stream := case.streams[position]) is not None})
    if times > 1:
        what = f"`{_line(line or name)}`" if claim.origin.expression else "What makes it"
        once = f"with `.contiguous({form})`, before what repeats it"
        return f"{what} runs {times} times a step, too: run it once, {once}, and hand its result on."
    if line is not None:
        return f"Copy it once, right behind `{line}`: `{name} = {name}.contiguous({form})`."
    return f"Copy it once, with `.contiguous({form})` behind `{_line(name)}`."


def _listed(functions: Sequence[str]) -> str:
    shown = [f"`{name}`" for name in functions[:2]]
    more = len(functions) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} {'other' if more == 1 else 'others'}"
    return " and ".join(shown)


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"
