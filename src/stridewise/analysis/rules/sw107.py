"""SW107 library-reorder: a library converts tensors into a layout of its own inside an operator.

What it means
    The kernel library (oneDNN on the CPU) works in a layout that the tensors do not have, and converts them inside
    the operator on every call. No profiler of torch shows these copies.

Why it happens
    A convolution on row-major (NCHW) tensors makes oneDNN convert its input, its weight and its output; on
    channels_last tensors only the weight is converted.

How to fix it
    Make the network and its input channels_last. For inference, let inductor freeze the weights
    (`torch._inductor.config.freezing`), so that they are converted once.

When to ignore it
    When only weights are converted and they are small beside the activations.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.functions import short_name
from stridewise.analysis.rule import Claim, Words

FIRES = (
    """
LIBRARY_COPIES = True
x = torch.randn(2, 32, 32, 32)
conv = torch.nn.Conv2d(32, 32, 3)
def program():
    with torch.no_grad():
        conv(x)
""",
)
QUIET = (
    """
LIBRARY_COPIES = True
x = torch.randn(32, 32)
def program():
    x + 1
""",
)


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """The library's own copies, by call."""
    groups: dict[tuple[int | None, int], list[int]] = defaultdict(list)
    for position in copies:
        if case.copies[position].kind == "library":
            groups[case.copies[position].step, case.copies[position].call].append(position)
    for group in groups.values():
        yield Claim(
            copies=tuple(group),
            site=case.site_of_copy(group[0]),
            inferred=any(case.copies[position].inferred for position in group),
            details=(case.payer_name(group[0]),),
        )


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of a library's conversions."""
    count = len(claims[0].copies)
    formats = dict.fromkeys(case.copies[position].top_op for claim in claims for position in claim.copies)
    function = short_name(case.payer_name(claims[0].copies[0]))
    return Words(
        message=f"oneDNN converts {count} tensor{'s' if count > 1 else ''} inside `{function}` on each call.",
        advice="Make the network and its input channels_last; freeze weights for inference.",
        evidence=tuple(formats)[:4],
    )
