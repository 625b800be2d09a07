"""SW108 fast-path-missed: an operator ran on a slower path, and only the layout of an operand kept it from the faster.

What it means
    The operator has a fast implementation for this call, which asks something of the operand's strides that they do
    not have. It gave the same result on a slower path, without a word. The path is read from the recording, and what
    else the fast one asks for was there.

Why it happens
    Fused attention needs a stride of 1 in the last dimension of query, key and value; with any other it falls back to
    products and a softmax that write the whole matrix of scores. On the CPU, batch norm has a kernel for contiguous
    and channels_last images, and a generic one for all others. On a device, `linear` adds its bias in the product's own
    pass only if an input of three or more dimensions is contiguous.

How to fix it
    Make the tensor where it is born in the order that the fast path takes. For attention one `.contiguous()` before
    the call is cheap beside what it saves. `stridewise run --paths` shows which path each operator takes.

When to ignore it
    When the operator is a small share of the step, or the fast path is unwanted: fused attention rounds otherwise.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stridewise import layout
from stridewise.analysis.case import Case
from stridewise.analysis.copies import step_of
from stridewise.analysis.functions import short_name
from stridewise.analysis.lineage import Goal, Origin
from stridewise.analysis.paths import Execution
from stridewise.analysis.rule import Claim, Words

FIRES = (
    """
q = torch.randn(2, 4, 16, 8)
k, v = torch.randn(2, 2, 4, 8, 16).transpose(-1, -2)
def program():
    with torch.no_grad():
        torch.nn.functional.scaled_dot_product_attention(q, k, v)
""",
    """
x = torch.randn(8, 16, 32, 32)
norm = torch.nn.BatchNorm2d(16).eval()
def program():
    with torch.no_grad():
        norm(x.transpose(2, 3))
""",
    """
x = torch.randn(8, 32, 32, 32)
norm = torch.nn.BatchNorm2d(16)
def program():
    norm(x[:, :16])
""",
)
QUIET = (
    """
q, k, v = torch.randn(3, 2, 16, 4, 8).transpose(2, 3)
def program():
    torch.nn.functional.scaled_dot_product_attention(q, k, v)
""",
    # Dropout, a key of another depth, three dimensions: the fused kernels of the CPU take none of them.
    """
q = torch.randn(2, 4, 16, 8)
k = torch.randn(2, 4, 8, 16).transpose(-1, -2)
attend = torch.nn.functional.scaled_dot_product_attention
def program():
    attend(q, k, q, dropout_p=0.1)
    attend(q, k, q[..., :4])
    attend(q[0], k[0], q[0])
""",
    # The program asks for the math path.
    """
q = torch.randn(2, 4, 16, 8)
k = torch.randn(2, 4, 8, 16).transpose(-1, -2)
def program():
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
        torch.nn.functional.scaled_dot_product_attention(q, k, q)
""",
    """
x = torch.randn(8, 16, 32, 32).to(memory_format=torch.channels_last)
norm = torch.nn.BatchNorm2d(16)
def program():
    norm(x)
    norm(x.contiguous())
""",
    # On the CPU a bias that is added in a pass of its own costs nothing.
    """
x = torch.randn(16, 8, 32)
linear = torch.nn.Linear(32, 32)
def program():
    linear(x.transpose(0, 1))
""",
)

_NOTICEABLE = 0.01
_REPORTED = ("fused attention", "contiguous kernel", "fused bias")
"""A library's transposes are SW107's, and a row length is no stride that a program chose."""


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """The operators, by call and step. It points at the copies that the slower path makes, and is charged with none."""
    del copies
    starts = [step.start_ns for step in case.trace.steps]
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, execution in enumerate(case.suspects):
        if execution.missed is None or execution.missed.path not in _REPORTED:
            continue
        step = step_of(case.trace, starts, case.trace.ops.start_ns[execution.op])
        call = case.trace.ops.call[execution.op]
        if step is not None:
            groups[step, call if call >= 0 else -1 - execution.op].append(number)
    held: dict[int, list[int]] = defaultdict(list)
    for position in case.taxed:
        if case.copies[position].direct and case.copies[position].call >= 0:
            held[case.copies[position].call].append(position)
    for (_, call), group in groups.items():
        yield _claim(case, group, call, tuple(held[call]) if call >= 0 else ())


def _claim(case: Case, group: Sequence[int], call: int, witnesses: tuple[int, ...]) -> Claim:
    execution = case.suspects[group[0]]
    assert execution.missed is not None
    walked = _walked(case, execution, call) if call >= 0 else None
    origin, carriers, inferred = walked or (None, (), False)
    return Claim(
        copies=(),
        site=case.site_of_op(execution.op),
        origin=case.origin_site(origin) if origin is not None else None,
        carriers=tuple(reversed(carriers)),
        inferred=inferred or execution.missed.inferred,
        details=(execution.name, execution.missed.path),
        calls=tuple(group),
        witnesses=witnesses,
    )


def _walked(case: Case, execution: Execution, call: int) -> tuple[Origin, tuple[int, ...], bool] | None:
    """Where the operand gets the strides that the fast path does not take; None if the call did not get it so."""
    assert execution.missed is not None
    wanted = execution.missed.operands[0]
    inputs = list(case.trace.ops.args[execution.op].inputs)
    if wanted >= len(inputs):
        return None
    sizes, strides, _ = inputs[wanted]
    places = [
        place
        for place, ref in enumerate(case.log.calls[call].inputs)
        if (row := case.flow.row(ref)) is not None and (row.sizes, row.strides) == (sizes, strides)
    ]
    goal = _goal(sizes, strides) if strides is not None else None
    return case.flow.walk(call, places[0], goal) if places and goal is not None else None


def _goal(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Goal | None:
    made = layout.contiguous_strides(sizes)
    change = layout.change(sizes, strides, made)
    return None if change is None else Goal(change, layout.memory_order(layout.Layout(sizes, made)), sizes)


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of operators that took one slower path."""
    executions = [case.suspects[number] for claim in claims for number in claim.calls]
    first = executions[0]
    assert first.missed is not None
    name = short_name(first.name.removeprefix("aten::"))
    operands = ", ".join(_operand(case, first, place) for place in first.missed.operands)
    message, advice = {
        "fused attention": (
            f"`{name}` fell back to the math path: fused attention needs a stride of 1 in the last dimension, and it "
            f"got {operands}.",
            "Make the operand with its last dimension innermost; before attention even a `.contiguous()` often pays.",
        ),
        "contiguous kernel": (
            f"`{name}` ran its generic kernel: the one for contiguous and channels_last images takes no {operands}.",
            "Hand it the image before it is transposed or sliced, or make the image contiguous where it is born.",
        ),
        "fused bias": (
            f"`{name}` added its bias in a pass of its own over the output: with one product it takes contiguous "
            f"inputs only, and it got {operands}.",
            "Make the input contiguous where it is born, or fold its rows into two dimensions before the call.",
        ),
    }[first.missed.path]
    certain = not any(claim.inferred for claim in claims)
    return Words(
        message=message,
        advice=advice,
        evidence=_evidence(case, executions, name),
        warns=certain and _share(case, executions) >= _NOTICEABLE,
    )


def _share(case: Case, executions: Sequence[Execution]) -> float:
    """What these operators take of all the time there is: the slower path is some part of that."""
    taken = sum(execution.duration_ns or 0 for execution in executions)
    kernels = sum(event.duration_ns for event in case.trace.device_events if event.category == "kernel")
    return taken / (kernels or sum(step.end_ns - step.start_ns for step in case.trace.steps))


def _operand(case: Case, execution: Execution, place: int) -> str:
    inputs = list(case.trace.ops.args[execution.op].inputs)
    if place >= len(inputs):  # only the operators inside were recorded with shapes
        return f"another input {place}"
    sizes, strides, _ = inputs[place]
    return f"input {place}, {_tuple(sizes)} with strides {_tuple(strides or ())}"


def _tuple(values: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, values))})"


def _evidence(case: Case, executions: Sequence[Execution], name: str) -> tuple[str, ...]:
    paths = tuple(dict.fromkeys(execution.evidence for execution in executions))[:2]
    durations = [execution.duration_ns for execution in executions if execution.duration_ns is not None]
    if not durations:
        return paths
    when = "a step" if case.trace.steps_found else "in this run"
    milliseconds = sum(durations) / case.steps / 1e6
    return (*paths, f"{milliseconds:.{0 if milliseconds >= 10 else 2}f} ms {when} in {name}")
