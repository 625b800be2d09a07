"""clone-slice: copy a small slice that is kept, so that the large tensor behind it can go.

A step returns a view, or a module stores one, that is a small part of its storage, such as the first token of the
hidden states. As long as somebody holds it the whole storage stays. `.clone()` gives the slice memory of its own.
`.contiguous()` does not: a slice of the leading dimension is contiguous already, and comes back as it is.

A slice that autograd made is left alone: its graph may hold the large tensor anyway. So is one of a parameter, a
buffer, an input, or of a tensor that is returned or stored in full beside it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from stridewise.analysis.functions import short_name
from stridewise.findings import Edit, Site
from stridewise.layout import Layout
from stridewise.recording.model import LayoutRow
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.objects import is_row_of, is_tensor, memory, tensors
from stridewise.repair.reading.places import SPLITS, expression_of
from stridewise.repair.reading.writing import may_be_written
from stridewise.source import edits

ANSWERS = (
    'A slice that is kept for long: "rewrite it with `index_select` or `gather`". Where the source is strided that '
    "is slower, since they bring all of it into order first. Where a copy is wanted, because the view keeps a large"
    " storage alive, `.clone()` the slice."
)
EXAMPLES = (
    (
        """
import torch
x = torch.randn(4, 1000, 128)
def program():
    hidden = x * 2
    return hidden[:, 0]
""",
        """
import torch
x = torch.randn(4, 1000, 128)
def program():
    hidden = x * 2
    return hidden[:, 0].clone()
""",
    ),
    (
        """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        hidden = torch.relu(x)
        self.last = {"state": hidden.narrow(1, 999, 1)}
        return hidden.mean()
model = Model()
x = torch.randn(4, 1000, 128)
def program():
    return model(x)
""",
        """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        hidden = torch.relu(x)
        self.last = {"state": hidden.narrow(1, 999, 1).clone()}
        return hidden.mean()
model = Model()
x = torch.randn(4, 1000, 128)
def program():
    return model(x)
""",
    ),
    (
        """
import torch
x = torch.randn(4, 1000, 128)
def program():
    hidden = x * 2
    return {"first": hidden[:, 0], "rest": [hidden[:, 1:3]]}
""",
        """
import torch
x = torch.randn(4, 1000, 128)
def program():
    hidden = x * 2
    return {"first": hidden[:, 0].clone(), "rest": [hidden[:, 1:3].clone()]}
""",
    ),
)
QUIET = (
    # The storage is an input's, and stays.
    """
import torch
args = (torch.randn(4, 1000, 128),)
def program():
    return args[0][:, 0]
""",
    # It is a parameter's.
    """
import torch
model = torch.nn.Embedding(4000, 128)
def program():
    return model.weight.detach()[:4]
""",
    # It is returned in full as well.
    """
import torch
x = torch.randn(4, 1000, 128)
def program():
    hidden = x * 2
    return hidden, hidden[:, 0]
""",
    # The graph holds it.
    """
import torch
x = torch.randn(4, 1000, 128, requires_grad=True)
def program():
    return (x * 2)[:, 0]
""",
    # It is small.
    """
import torch
x = torch.randn(4, 100, 128)
def program():
    return (x * 2)[:, 0]
""",
    # Most of it is what is wanted.
    """
import torch
x = torch.randn(4, 1000, 128)
def program():
    return (x * 2)[:, 500:]
""",
    # It has memory of its own.
    """
import torch
x = torch.randn(4, 1000, 128)
def program():
    return (x * 2)[:, 0].clone()
""",
)

_LEAST_BYTES = 1_000_000
_LEAST_TIMES = 4
"""How much larger the storage is than what of it is wanted."""


class _Kept(Struct, frozen=True):
    """A tensor that outlives the step."""

    tensor: Any
    layout: Layout

    @property
    def bytes(self) -> int:
        size: int = self.tensor.numel() * self.tensor.element_size()
        return size


def candidates(context: Context) -> Iterator[Candidate]:
    """The views that keep a storage alive which is much larger than they are."""
    free: dict[Any, list[_Kept]] = defaultdict(list)
    held = {memory(tensor) for tensor in _held(context)}
    for kept in _kept(context):
        where = memory(kept.tensor)
        if where not in held:
            free[where].append(kept)
    seen: set[frozenset[Edit]] = set()
    for group in free.values():
        storage = group[0].tensor.untyped_storage().nbytes()
        wanted = sum({id(kept.tensor): kept.bytes for kept in group}.values())
        if storage - wanted < _LEAST_BYTES or storage < _LEAST_TIMES * wanted:
            continue
        found = _clones(context, group)
        if found is not None and frozenset(found[1]) not in seen:  # equal layers keep equal slices
            seen.add(frozenset(found[1]))
            yield _candidate(*found, storage, wanted)


def _candidate(site: Site, made: Sequence[Edit], storage: int, wanted: int) -> Candidate:
    slices = f"`{' '.join((site.expression or 'the slice').split())}`" if len(made) == 1 else f"{len(made)} slices"
    verb = "keeps" if len(made) == 1 else "keep"
    return Candidate(
        kind="clone-slice",
        what=f"clone {slices}, {wanted / 1e6:.2g} MB that {verb} {storage / 1e6:.2g} MB",
        site=site,
        edits=tuple(made),
        removes_copies=False,
        saves_memory=True,
    )


def _kept(context: Context) -> Iterator[_Kept]:
    """What a step returns and what modules store, but for what a graph holds."""
    outputs = list(tensors(context.live.output))
    for _, tensor, shape in (*outputs, *_stored(context.live.model)):
        if tensor.grad_fn is None and not tensor.is_meta and tensor.numel():
            yield _Kept(tensor, shape)


def _stored(model: Any) -> Iterator[tuple[str, Any, Layout]]:
    """The tensors in the attributes of modules that are neither parameters nor buffers."""
    for module in model.modules() if model is not None else ():
        for name, value in vars(module).items():
            if not name.startswith("_") or is_tensor(value):
                yield from tensors(value)


def _held(context: Context) -> Iterator[Any]:
    """The tensors whose storages stay whatever becomes of the slices."""
    live = context.live
    named = () if live.model is None else (*live.model.parameters(), *live.model.buffers())
    given = (tensor for value in (live.args, live.kwargs) for _, tensor, _ in tensors(value))
    graphs = (tensor for _, tensor, _ in (*tensors(live.output), *_stored(live.model)) if tensor.grad_fn is not None)
    for _, tensor, _ in (found for value in (named, [*given], [*graphs]) for found in tensors(tuple(value))):
        yield tensor


def _clones(context: Context, group: list[_Kept]) -> tuple[Site, list[Edit]] | None:
    """The edits that clone all slices of one storage, and where the first is; None if one can't be found."""
    sites, made = [], []
    for kept in group:
        call = _view(context, kept)
        found = expression_of(context, call) if call is not None else None
        if call is None or found is None:
            return None
        file, node = found
        function = file.function(node)
        if function is not None and may_be_written(context, file, function, [node]):
            return None
        try:
            made.append(edits.append(file, node, ".clone()"))
        except ValueError:  # no place that such an edit may have
            return None
        sites.append(context.case.site(call))
    return sites[0], list(dict.fromkeys(made))


def _view(context: Context, kept: _Kept) -> int | None:
    """The last call that gave a tensor of this layout as a view of something else."""
    case, log = context.case, context.case.log
    for call in reversed(range(len(log.calls))):
        outputs = [case.flow.row(ref) for ref in log.calls[call].outputs]
        if any(_is_layout_of(row, kept) for row in outputs) and _is_view(context, call):
            is_split = short_name(case.function(call)) in SPLITS
            return call if len(outputs) == 1 and not is_split else None
    return None


def _is_layout_of(row: LayoutRow | None, kept: _Kept) -> bool:
    return row is not None and is_row_of(row, kept.tensor, kept.layout) and row.offset == kept.layout.offset


def _is_view(context: Context, call: int) -> bool:
    """Whether a call's output lies in the storage of an input and is another tensor."""
    refs = context.case.log.refs
    row = context.case.log.calls[call]
    made = refs[row.outputs[0]]
    sources = [refs[ref] for ref in row.inputs if refs[ref].storage == made.storage >= 0]
    return any(source.object != made.object for source in sources)
