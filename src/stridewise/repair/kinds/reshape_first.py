"""reshape-first: reshape before the dimensions are swapped, where that is the same.

What it does
    `x.permute(0, 3, 1, 2).contiguous().view(b, d, h * w)` becomes `x.reshape(b, h * w, d).permute(0, 2, 1)`: the sizes
    are the program's own, in another order. The values are equal. Where `x` has gaps the reshape has to copy, but row
    by row, and not in another order. Where it has none, leaving the copy out gives the same: that is drop-copy's.

When it is right
    When what is taken together lies side by side in `x`, and the sizes mean its dimensions. That is certain for
    `flatten`, for `x.shape[0]`, and for names that `b, n, d = x.shape` bound; one group of sizes follows from the
    others. Any other size has to have been the dimension's in every recorded call, and none with a size of 1 is
    guessed. The result stays strided where the copy made it row-major, so what follows decides whether it pays.
"""

import ast
from collections.abc import Iterator, Sequence

from msgspec import Struct

from stridewise.findings import Edit
from stridewise.layout import Layout, is_expanded, memory_order, reshape
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.applied import Applied, applied, brief, in_function_body, integer, operand_text
from stridewise.repair.reading.merging import Group, Swapped, group, permutation_of, swap
from stridewise.repair.reading.recorded import Recorded
from stridewise.repair.reading.removal import block, has_comment, remove_statement
from stridewise.repair.reading.sizes import dimension
from stridewise.repair.reading.writing import may_be_written
from stridewise.source import edits
from stridewise.source.file import SourceFile

ANSWERS = (
    "A `view` behind `permute` or `transpose` raises: use `reshape`, which costs nothing. "
    "It costs a whole copy whenever the strides don't merge; reshaping first costs nothing where it means the same."
)

EXAMPLES = (
    (
        """
import torch
x = torch.randn(8, 4, 17, 32)[:, :, 1:]
def program():
    b, h, w, d = x.shape
    return x.permute(0, 3, 1, 2).contiguous().view(b, d, h * w)
""",
        """
import torch
x = torch.randn(8, 4, 17, 32)[:, :, 1:]
def program():
    b, h, w, d = x.shape
    return x.reshape(b, h * w, d).permute(0, 2, 1)
""",
    ),
    (
        """
import torch
x = torch.randn(8, 7, 6, 5)[:, :, 1:]
def program():
    return x.permute(3, 0, 1, 2).flatten(2)
""",
        """
import torch
x = torch.randn(8, 7, 6, 5)[:, :, 1:]
def program():
    return x.flatten(1, 2).permute(2, 0, 1)
""",
    ),
    (
        """
import torch
x = torch.randn(8, 4, 17, 32)[:, :, 1:]
def program():
    y = x.permute(0, 3, 1, 2).contiguous()
    return y.view(x.size(0), x.size(3), -1)
""",
        """
import torch
x = torch.randn(8, 4, 17, 32)[:, :, 1:]
def program():
    return x.reshape(x.size(0), -1, x.size(3)).permute(0, 2, 1)
""",
    ),
)
QUIET = (
    # drop-copy proposes the same.
    """
import torch
x = torch.randn(8, 64, 32)
def program(h=4, w=16):
    b, n, d = x.shape
    return x.transpose(1, 2).contiguous().view(b, d, h, w)
""",
    """
import torch
x = torch.randn(8, 64, 32)
def program():
    return x.transpose(1, 2).reshape(8, -1)
""",
    """
import torch
x = torch.randn(1, 4, 17, 32)[:, :, 1:]
def program(b=1):
    return x.permute(0, 3, 1, 2).contiguous().view(b, 32, 64)
""",
    # Without the copy, what is written in a branch that did not run would be `x`.
    """
import torch
x = torch.randn(8, 7, 6, 5)[:, :, 1:]
def program(double=False):
    y = x.permute(3, 0, 1, 2).flatten(2)
    if double:
        y *= 2
    return y
""",
)

_SWAPS = frozenset({"transpose", "permute", "t", "T", "mT", "movedim", "moveaxis", "swapaxes", "swapdims"})
_RESHAPES = frozenset({"reshape", "view", "flatten"})


class _Chain(Struct, frozen=True):
    """`x.transpose(…).contiguous().view(…)`, from the outside in."""

    links: tuple[Applied, ...]
    subject: ast.expr
    definition: ast.stmt | None
    """The statement before, which gives the inner links a name that only this one uses."""


class _Use(Struct, frozen=True):
    """One recorded run of a chain."""

    source: Layout
    shape: tuple[int, ...]
    calls: tuple[int, ...]


def candidates(context: Context) -> Iterator[Candidate]:
    """One for each reshape behind swapped dimensions that copied, or had to have a copy made."""
    recorded = Recorded(context)
    seen: set[ast.expr] = set()
    for request in recorded.requested("contiguous", *_RESHAPES):
        file = request.file
        for call in sorted({context.case.copies[position].call for position in request.copies}):
            for end in (call, *context.case.flow.consumers.get(call, [])):
                node = file.expression(context.case.site(end))
                if node is None or node in seen or recorded.name(end) not in _RESHAPES:
                    continue
                seen.add(node)
                if in_function_body(file, node) and (found := _candidate(recorded, file, node)):
                    yield found


def _candidate(recorded: Recorded, file: SourceFile, node: ast.expr) -> Candidate | None:
    chain = _chain(recorded, file, node)
    uses = [] if chain is None else _uses(recorded, file, chain)
    if chain is None or not uses or has_comment(file, chain.subject, node):
        return None
    swapped = _swapped(file, chain, uses)
    text = None if swapped is None else _text(file, chain, swapped)
    calls = {call for use in uses for call in use.calls}
    copies = tuple(at for at in recorded.case.taxed if recorded.case.copies[at].call in calls)
    if swapped is None or text is None or not copies:
        return None
    function = file.function(node)
    if function is None or may_be_written(recorded.context, file, function, [node]):
        return None
    still_copies = [use for use in uses if reshape(use.source, [use.shape[at] for at in swapped.order]).copied]
    if any(not _is_in_order(use.source) for use in still_copies):
        return None
    if not still_copies and any(link.name == "contiguous" for link in chain.links):
        return None  # without the copy the reshape gives the same view: that is what drop-copy proposes
    changes: tuple[Edit, ...] = (edits.replace(file, node, text),)
    if chain.definition is not None:
        changes = (remove_statement(file, chain.definition), *changes)
    return Candidate(
        kind="reshape-first",
        what=f"reshape `{brief(file.source(chain.subject))}` before its dimensions are swapped",
        site=recorded.case.site(uses[0].calls[0]),
        findings=recorded.findings(copies),
        edits=changes,
        removes_copies=not still_copies,
    )


def _is_in_order(source: Layout) -> bool:
    """Whether a copy of it goes row by row."""
    order = memory_order(source)
    return order == tuple(sorted(order)) and not is_expanded(source)


def _chain(recorded: Recorded, file: SourceFile, node: ast.expr) -> _Chain | None:
    names = recorded.names(file)
    end = applied(node, names)
    if end is None or end.name not in _RESHAPES:
        return None
    links, subject, definition = [end], end.subject, None
    while True:
        if definition is None and isinstance(subject, ast.Name) and len(links) <= 2:
            definition = _definition(file, subject)
            if definition is not None:
                subject = definition.value
        link = applied(subject, names)
        plain_copy = link is not None and link.name == "contiguous" and link.has_only(0)
        swaps = link is not None and link.name in _SWAPS and not link.keywords
        if link is None or not (swaps or (plain_copy and len(links) == 1)):
            break
        links.append(link)
        subject = link.subject
    if links[-1].name not in _SWAPS:
        return None
    return _Chain(tuple(links), subject, definition)


def _definition(file: SourceFile, name: ast.Name) -> ast.Assign | None:
    """The statement just before that gives a name its value, if nothing else uses that value."""
    function, statement = file.function(name), file.statement(name)
    body = block(file, statement)
    place = next(at for at, each in enumerate(body) if each is statement) if statement in body else 0
    before = body[place - 1] if place else None
    if function is None or not isinstance(before, ast.Assign) or len(before.targets) != 1:
        return None
    target = before.targets[0]
    if not isinstance(target, ast.Name) or target.id != name.id or not isinstance(statement, ast.Assign | ast.Return):
        return None
    mentions = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name.id]
    own = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name.id]
    if sum(isinstance(node.ctx, ast.Load) for node in own) != 1:
        return None
    rebinds = isinstance(statement, ast.Assign) and any(isinstance(node.ctx, ast.Store) for node in own)
    others = [node for node in mentions if node is not target and not any(node is each for each in own)]
    if any(isinstance(node, ast.Global | ast.Nonlocal) and name.id in node.names for node in ast.walk(function)):
        return None
    return before if rebinds or not any(isinstance(node.ctx, ast.Load | ast.Del) for node in others) else None


def _uses(recorded: Recorded, file: SourceFile, chain: _Chain) -> list[_Use]:
    """The recorded runs; none if one of them ran otherwise than the text says."""
    flow, found = recorded.case.flow, []
    places = [set(recorded.calls(file, link.node)) for link in chain.links]
    for end in sorted(places[0]):
        calls = [end]
        for place in places[1:]:
            producers = flow.producers[calls[-1]]
            if not producers or producers[0] not in place:
                return []
            calls.append(producers[0])
        source, made = recorded.inputs(calls[-1])[0], recorded.output(end)
        copied = [call for call in calls if recorded.name(call) == "contiguous"]
        if source is None or made is None or source.dtype != made.dtype or any(map(recorded.is_written, copied)):
            return []
        found.append(_Use(source.layout, made.sizes, tuple(calls)))
    return found


def _swapped(file: SourceFile, chain: _Chain, uses: Sequence[_Use]) -> Swapped | None:
    """How to reshape first, the same for all runs; None where the sizes do not say for certain what they are."""
    found = {_swapped_once(file, chain, use) for use in uses}
    return found.pop() if len(found) == 1 else None


def _swapped_once(file: SourceFile, chain: _Chain, use: _Use) -> Swapped | None:
    ndim = use.source.ndim
    permutation = tuple(range(ndim))
    for link in reversed(chain.links):
        if link.name in _SWAPS:
            dims = [_dims(arg) for arg in link.args]
            step = None if None in dims else permutation_of(link.name, [dim for dim in dims if dim is not None], ndim)
            if step is None:
                return None
            permutation = tuple(permutation[at] for at in step)
    own = [use.source.sizes[at] for at in permutation]
    end = chain.links[0]
    if end.name == "flatten":
        groups = _flattened(end, ndim)
        return None if groups is None else swap(permutation, groups)
    sizes = _sizes(end)
    if sizes is None or len(sizes) != len(use.shape):
        return None
    same = {
        (at, new)
        for new, size in enumerate(sizes)
        for at in range(ndim)
        if dimension(file, size, chain.subject, ndim) == permutation[at]
    }
    found = group(own, use.shape, lambda at, new: (at, new) in same)
    if found is None or not _is_certain(found, same, sizes, own, permutation):
        return None
    return swap(permutation, found)


def _is_certain(
    groups: Sequence[Group],
    same: set[tuple[int, int]],
    sizes: Sequence[ast.expr],
    own: Sequence[int],
    permutation: Sequence[int],
) -> bool:
    """Whether the sizes will stand for these dimensions in other runs, too."""
    open_ = [each for each in groups if not (len(each[0]) == len(each[1]) == 1 and (each[0][0], each[1][0]) in same)]
    if len(open_) <= 1:  # it holds what is left of the elements
        return True
    lengths = [own[at] for together, _ in open_ for at in together]
    if len(set(lengths)) < len(lengths):
        return False
    # A number where the batch is may mean something else: it does not follow the batch's size.
    batch = (to for from_, to in open_ if any(permutation[at] == 0 for at in from_))
    return not any(all(integer(sizes[new]) not in (None, -1) for new in to) for to in batch)


def _dims(arg: ast.expr) -> int | tuple[int, ...] | None:
    if isinstance(arg, ast.Tuple | ast.List):
        each = [integer(element) for element in arg.elts]
        return None if None in each else tuple(value for value in each if value is not None)
    return integer(arg)


def _sizes(end: Applied) -> list[ast.expr] | None:
    """The sizes that a reshape is given, each as an expression."""
    if end.keywords or not end.args:
        return None
    first = end.args[0]
    sizes = list(first.elts) if len(end.args) == 1 and isinstance(first, ast.Tuple | ast.List) else list(end.args)
    return None if any(isinstance(size, ast.Starred) for size in sizes) else sizes


def _flattened(end: Applied, ndim: int) -> list[Group] | None:
    between = _ends(end, ndim)
    if between is None:
        return None
    first, last = between
    before = [((at,), (at,)) for at in range(first)]
    behind = [((at,), (at - last + first,)) for at in range(last + 1, ndim)]
    return [*before, (tuple(range(first, last + 1)), (first,)), *behind]


def _ends(end: Applied, ndim: int) -> tuple[int, int] | None:
    """The first and last dimension that a `flatten` merges."""
    given = end.argument(0, "start_dim"), end.argument(1, "end_dim")
    first, last = (integer(arg) if arg is not None else default for arg, default in zip(given, (0, -1), strict=True))
    if first is None or last is None or not end.has_only(2, "start_dim", "end_dim"):
        return None
    first, last = first % ndim, last % ndim
    return (first, last) if first < last else None


def _text(file: SourceFile, chain: _Chain, swapped: Swapped) -> str | None:
    end, subject = chain.links[0], operand_text(file, chain.subject)
    ndim = len(swapped.permutation)
    if swapped.permutation == tuple(range(ndim)):
        return None
    if end.name == "flatten":
        in_memory = sorted(swapped.groups, key=lambda each: swapped.order.index(each[1][0]))
        place = next(at for at, each in enumerate(in_memory) if len(each[0]) > 1)
        length = len(in_memory[place][0])
        reshaped = f"{subject}.flatten({place}, {place + length - 1})"
    else:
        sizes = _sizes(end)
        assert sizes is not None
        reshaped = f"{subject}.reshape({', '.join(file.source(sizes[at]) for at in swapped.order)})"
    return f"{reshaped}.permute({', '.join(map(str, swapped.permutation))})"
