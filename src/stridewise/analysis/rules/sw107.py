"""SW107 library-reorder: a library converts tensors into a layout of its own inside an operator.

What it means
    The kernel library (oneDNN on the CPU, cuDNN and MIOpen on a GPU) works in a layout that the tensors do not have,
    and converts them inside the operator on every call. torch shows these copies as no operator: oneDNN's stand in its
    verbose log only, those of a GPU are kernels such as `nchwToNhwcKernel` and `batched_transpose_…`.

Why it happens
    A convolution on row-major (NCHW) tensors makes oneDNN convert its input, its weight and its output; on
    channels_last tensors only the weight is converted, and in training its gradient. On a GPU the kernels that use
    tensor cores work on NHWC: half precision, bfloat16 and TF32 convolutions of an NCHW network are bracketed
    by transposes, in backward too.

How to fix it
    Make the network and its input channels_last (`model.to(memory_format=torch.channels_last)`, and the same for the
    input): convolutions then run the same kernels on the tensors as they are. For inference on a CPU, let inductor
    freeze the weights (`torch._inductor.config.freezing`), so that they are converted once.

When to ignore it
    When only weights are converted: in training they change in each step, and no layout of theirs spares it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.converted import IMAGES, Role, role_of
from stridewise.analysis.functions import short_name
from stridewise.analysis.rule import Claim, Words, by_call
from stridewise.recording.dtypes import from_cpp
from stridewise.results import numbers

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

_ONE_PIXEL_HIGH = (
    "Sequences have no channels_last. The 2-dimensional form on images one pixel high, `x.unsqueeze(2)`, in"
    " channels_last converts only weights and their gradients."
)
_TIMES = {2: "twice"}
_HALF = ("float16", "bfloat16")


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """The library's own copies, by call."""
    library = [position for position in copies if case.copies[position].kind == "library"]
    for group in by_call(case, library):
        yield Claim(
            copies=tuple(group),
            site=case.site_of_copy(group[0]),
            inferred=any(case.copies[position].inferred for position in group),
            details=(_payer(case, group[0]), _vendor(case, group[0])),
        )


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of a library's conversions."""
    payer, vendor = claims[0].details
    counts = sorted(len(claim.copies) for claim in claims)
    least = f"{counts[0]} to " if counts[0] != counts[-1] else ""
    found = Counter(case.copies[position].library or "" for claim in claims for position in claim.copies)
    conversions = tuple(sorted(found, key=lambda conversion: (-found[conversion], conversion)))
    where = f"inside {payer} on each call"
    if not payer:
        where = (
            "in calls that its log does not name" if vendor == "oneDNN" else "in operators launched before recording"
        )
    message = f"{vendor} converts {least}{numbers.count(counts[-1], 'tensor')} {where}"
    if vendor != "oneDNN":
        return Words(
            message=f"{message}.{_network(case, claims, vendor)}",
            advice="Make the network and its input channels_last: the same kernels then run without these conversions.",
            evidence=conversions[:4],
        )
    known = [role_of(case, position) for claim in claims for position in claim.copies]
    roles = {role for role in known if role is not None}
    trains = any(case.nodes.get(case.copies[claim.copies[0]].call) for claim in claims)
    changing = None not in known and not IMAGES.intersection(roles) and trains
    why = " Weights change in each step of training." if changing else ""
    return Words(
        message=message + _converted(case, claims[0], complete=None not in known) + why,
        advice=_advice(case, claims, roles, trains, complete=None not in known),
        evidence=conversions[:4],
        only_a_note=changing,
    )


def _converted(case: Case, claim: Claim, *, complete: bool) -> str:
    """Which tensors of a convolution these are, as far as that is known."""
    found = Counter(role for position in claim.copies if (role := role_of(case, position)) is not None)
    names = [role if times == 1 else f"{role} ({_TIMES.get(times, f'{times} times')})" for role, times in found.items()]
    if not names:
        return "."
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f": {listed}." if complete else f", among them {listed}."


def _advice(case: Case, claims: Sequence[Claim], roles: set[Role], trains: bool, *, complete: bool) -> str | None:
    """Only what was seen to take conversions away."""
    if IMAGES.intersection(roles):
        if case.function(case.copies[claims[0].copies[0]].call).endswith("1d"):
            return _ONE_PIXEL_HIGH
        return "Make the network and its input channels_last: only weights and their gradients are converted then."
    if roles and complete:
        return None if trains else "Freeze the weights for inference: they are converted once then."
    return None


def _network(case: Case, claims: Sequence[Claim], vendor: str) -> str:
    """What the operator's first input shows: a row-major image, and whether its precision asks for NHWC kernels."""
    ops, op = case.trace.ops, case.copies[claims[0].copies[0]].op
    inputs = [given for outer in ops.around(op) for given in ops.args[outer].inputs]
    image = next((given for given in inputs if len(given[0]) in (4, 5)), None)
    nhwc = any("NHWC" in (case.copies[position].library or "") for claim in claims for position in claim.copies)
    if image is None:
        return " Its kernels work on NHWC, and the tensors are NCHW: the names of the kernels tell." if nhwc else ""
    dtype = from_cpp(image[2])
    precision = f" in {dtype}" if dtype in _HALF else ""
    if case.is_channels_last_image(image):
        return ""
    kernels = "NHWC kernels" if vendor == "cuDNN" else "kernels of another layout"
    return f" It runs {kernels} on an NCHW network{precision}: channels_last would drop these conversions."


def _payer(case: Case, position: int) -> str:
    copy = case.copies[position]
    if copy.call < 0 and copy.op < 0:
        return ""
    name = short_name(case.payer_name(position))
    return f"the backward of `{name}`" if copy.backward and copy.call >= 0 else f"`{name}`"


def _vendor(case: Case, position: int) -> str:
    return (case.copies[position].library or "a library").split(" ")[0]
