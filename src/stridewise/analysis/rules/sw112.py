"""SW112 materialized-expand: an expanded tensor is written out in full.

What it means
    `expand` (or broadcasting it) made a tensor that repeats a few elements without storing them; a call then copied
    it, so that every repetition is in memory after all.

Why it happens
    `reshape` or `contiguous` behind an `expand`, as when key and value heads are repeated for grouped queries, or an
    operator that does not take strides of 0.

How to fix it
    Let the operation broadcast: keep the expanded dimension through it, use the form that takes the small tensor
    (`enable_gqa=True` of `scaled_dot_product_attention`, `torch.where`, broadcasting in `matmul`).

When to ignore it
    When the operator is much faster on the full tensor, and memory is not short.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.functions import short_name
from stridewise.analysis.inside import stays_inside, words_inside
from stridewise.analysis.origins import site_of_origin
from stridewise.analysis.rule import Claim, Words
from stridewise.findings import Site

FIRES = (
    """
keys = torch.randn(2, 2, 1, 8, 16)
def program():
    keys.expand(2, 2, 4, 8, 16).reshape(2, 8, 8, 16)
""",
)
QUIET = (
    """
keys = torch.randn(2, 2, 1, 8, 16)
other = torch.randn(2, 2, 4, 8, 16)
def program():
    keys.expand(2, 2, 4, 8, 16) + other
""",
    """
layer = torch.nn.Linear(8, 8)
x = torch.randn(4, 8)
def program():
    layer(x)
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """Copies of what the program's own expands repeat, by the expand."""
    groups: dict[tuple[int | None, Site], list[int]] = defaultdict(list)
    for position in copies:
        copy, stream = case.copies[position], case.streams[position]
        if copy.change != "materialize":
            continue
        origin = site_of_origin(case, [position]) if stream is not None else case.probable_origin(position)
        if origin is not None:
            groups[copy.step, origin].append(position)
    for (_, origin), group in groups.items():
        streams = [stream for position in group if (stream := case.streams[position]) is not None]
        yield Claim(
            copies=tuple(group),
            site=origin if origin.file is not None else case.site_of_copy(group[0]),
            origin=origin,
            carriers=tuple(dict.fromkeys(call for stream in streams for call in reversed(stream.carriers))),
            inferred=len(streams) < len(group) or any(stream.inferred for stream in streams),
        )


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of an expand that is written out."""
    first = claims[0]
    start = " ".join(((first.origin.expression if first.origin else None) or "an expand").split())
    payers = sorted({short_name(case.payer_name(position)) for claim in claims for position in claim.copies})
    return Words(
        message=f"`{start}` repeats elements without storing them, and {', '.join(payers[:4])} writes them all out.",
        advice=words_inside(case, first.copies[0])
        if stays_inside(case, first.copies[0])
        else "Let the operation broadcast instead of copying the repetitions.",
    )
