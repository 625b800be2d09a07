"""SW203 restrided-after-ddp: parameters got other strides after DistributedDataParallel was made.

What it means
    `DDP(model)` laid out its gradient buckets for the strides that parameters had. After that
    `model.to(memory_format=torch.channels_last)`, or something else, gave the parameters other strides. The gradients
    of the next steps are scrambled: with the defaults in the first step, with `static_graph=True` in the first two,
    with `find_unused_parameters=True` in every one. The only sign is a warning that says it is no error.

Why it happens
    The reducer keeps views of its buckets with the old strides and copies averaged gradients through views with the
    new ones. It makes its buckets anew after the first steps, if at all.

How to fix it
    Convert, then wrap: `model = model.to(memory_format=torch.channels_last)`, then `DDP(model)`. A model that is
    wrapped already can be wrapped again: `DDP(ddp.module)`. `gradient_as_bucket_view=True` is not affected.

When to ignore it
    Where only dimensions of size 1 changed, it is not said. Otherwise never: training goes on with wrong gradients.
"""

from msgspec import Struct

from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described, strided
from stridewise.findings import Finding, Severity, Site
from stridewise.layout import Layout

SEVERITY: Severity = "error"
WAY = "guard"

_START = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from stridewise import guard_ddp

def program():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        run()
    finally:
        dist.destroy_process_group()
"""
FIRES = (
    _START
    + """
def run():
    model = DistributedDataParallel(torch.nn.Conv2d(3, 4, 3))
    with guard_ddp(model):
        model.to(memory_format=torch.channels_last)
""",
    _START
    + """
def run():
    with guard_ddp():
        inner = torch.nn.Conv2d(3, 4, 3)
        model = DistributedDataParallel(inner, find_unused_parameters=True)
        inner.weight.data = inner.weight.data.contiguous(memory_format=torch.channels_last)
        model(torch.zeros(1, 3, 8, 8))
""",
)
QUIET = (
    _START
    + """
def run():
    with guard_ddp():
        inner = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        model = DistributedDataParallel(inner)
        model(torch.zeros(1, 3, 8, 8)).sum().backward()
""",
    _START
    + """
def run():
    with guard_ddp():
        model = DistributedDataParallel(torch.nn.Conv2d(3, 4, 3), gradient_as_bucket_view=True)
        model.to(memory_format=torch.channels_last)
        pointwise = DistributedDataParallel(torch.nn.Conv2d(3, 4, 1))
        pointwise.to(memory_format=torch.channels_last)
""",
)


class Restrided(Struct, frozen=True):
    """A parameter before and after."""

    name: str
    before: Layout
    after: Layout


def is_restrided(before: Layout, after: Layout) -> bool:
    """Whether elements lie elsewhere now; strides of size-1 dimensions don't count, and another shape is no layout."""
    if before.sizes != after.sizes or before.is_empty:
        return False
    pairs = zip(before.sizes, before.strides, after.strides, strict=True)
    return any(size > 1 and old != new for size, old, new in pairs)


def check(parameters: tuple[Restrided, ...], site: Site, mode: str) -> Finding | None:
    """What comes of it that these parameters of one model were re-strided; `mode` is how the model was wrapped."""
    if not parameters:
        return None
    first = parameters[0]
    others = "" if len(parameters) == 1 else f" and {len(parameters) - 1} more"
    when = {
        "find_unused_parameters": "The gradients of every step are wrong",
        "static_graph": "The gradients of the next two steps are wrong",
    }.get(mode, "The gradients of the next step are wrong")
    return finding(
        __name__,
        Problem(
            site,
            f"Parameter `{first.name}`{others} got other strides after DistributedDataParallel was made: "
            f"{strided(first.before)} then, {first.after.strides} now. {when}, and nothing raises.",
            advice=(
                "Convert first, then wrap: `DDP(model.to(memory_format=...))`. Now wrap again, as with "
                "`DDP(ddp.module)`; or make it with `gradient_as_bucket_view=True`."
            ),
            evidence=tuple(
                f"`{each.name}`: {described(each.before)}, when it was wrapped; {described(each.after)} now"
                for each in parameters
            ),
            count=len(parameters),
            details=tuple(each.name for each in parameters),
        ),
    )
