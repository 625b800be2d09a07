"""copy-before-kernel: copy a strided operand before a call that reads it so slowly that the copy pays.

What it does
    It puts `.contiguous()`, or the conversion to channels_last, behind the operand of one call; where several such
    calls read the same name, also once where that name is bound.

When it is right
    When the call makes no copy of its own and its kernel steps through memory: the call was run again on random data,
    and with the copy before it, it was faster. Candidates come only from calls of which that was measured.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from stridewise.analysis.functions import short_name
from stridewise.findings import Edit, Site
from stridewise.recording.model import CallLog
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.plan.slow import Operand, Slow
from stridewise.repair.reading.imported import Names
from stridewise.repair.reading.names import bindings, is_deferred, is_local, parameters
from stridewise.repair.reading.writing import may_be_written
from stridewise.repair.rules.sw109 import fingerprint_of
from stridewise.source import edits
from stridewise.source.file import SourceFile

ANSWERS = (
    "A strided tensor and one operator that reads it: put `.contiguous()` in front of it. "
    "That pays where the kernel is slow on such strides and makes no copy itself, as a sum over the first dimension of "
    "a transposed tensor, or an activation on every second element. It is proposed only where that was measured."
)

EXAMPLES = (
    (
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    return x.transpose(1, 2).sum(0)
""",
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    return x.transpose(1, 2).contiguous().sum(0)
""",
    ),
    (
        """
import torch
from torch.nn import functional as F
x = torch.randn(8, 64, 32)
def program():
    return F.gelu(x[..., ::2])
""",
        """
import torch
from torch.nn import functional as F
x = torch.randn(8, 64, 32)
def program():
    return F.gelu(x[..., ::2].contiguous())
""",
    ),
    (
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = x[..., ::2]
    return y.amax(-1), torch.exp(y), y + 1
""",
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = x[..., ::2].contiguous()
    return y.amax(-1), torch.exp(y), y + 1
""",
    ),
    (
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    return torch.cat([x, 2 * x.transpose(1, 2)[:, :8].mT], dim=2)
""",
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    return torch.cat([x, 2 * x.transpose(1, 2)[:, :8].mT.contiguous()], dim=2)
""",
    ),
    (
        """
import torch
x = torch.randn(2, 8, 32, 32)
norm = torch.nn.BatchNorm2d(8).eval()
def program():
    with torch.no_grad():
        return norm(x[:, :, 4:-4, 4:-4])
""",
        """
import torch
x = torch.randn(2, 8, 32, 32)
norm = torch.nn.BatchNorm2d(8).eval()
def program():
    with torch.no_grad():
        return norm(x[:, :, 4:-4, 4:-4].contiguous())
""",
    ),
)
QUIET = (
    """
import torch
x = torch.randn(8, 64, 32)
def program():
    return x.sum(0), x.transpose(1, 2).contiguous()
""",
    # The operand is made inside of what is called there.
    """
import torch
class Swap(torch.nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)
x = torch.randn(2, 8, 4)
net = torch.nn.Sequential(Swap(), torch.nn.GELU())
def program():
    return net(x)
""",
    # Which side of the operator is the tensor can't be seen in the source.
    """
import torch
x = torch.randn(8, 64, 32)
half = 0.5
def program():
    y = x.transpose(1, 2)
    return half * y, y ** half
""",
)


class _Place(Struct, frozen=True):
    """A slow call in the source, and the nodes of the operands that were converted."""

    slow: Slow
    file: SourceFile
    operands: tuple[ast.expr, ...]
    suffix: str


def candidates(context: Context) -> Iterator[Candidate]:
    """One for each expression, and one for each name that several of them read."""
    places: dict[tuple[object, ...], _Place] = {}
    for slow in context.slow:
        place = _place(context, slow) if slow.pays_for_copy else None
        if place is not None:
            places.setdefault((place.file.name, place.operands, place.suffix), place)
    for group in _by_name(list(places.values())):
        yield from _at_binding(context, group)
    for place in places.values():
        names = ", ".join(_short(place.file.source(node)) for node in place.operands)
        what = f"copy `{names}` before `{short_name(place.slow.function)}`"
        made = _appended(place.file, place.operands, place.suffix)
        if made is not None:
            yield _candidate([place], what, place.slow.site, made)


def _candidate(places: Sequence[_Place], what: str, site: Site, made: tuple[Edit, ...]) -> Candidate:
    return Candidate(
        kind="copy-before-kernel",
        what=what,
        site=site,
        findings=tuple(dict.fromkeys(fingerprint_of(place.slow) for place in places)),
        edits=made,
        removes_copies=False,
    )


def _appended(file: SourceFile, nodes: Sequence[ast.expr], suffix: str) -> tuple[Edit, ...] | None:
    try:
        return tuple(edits.append(file, node, suffix) for node in nodes)
    except ValueError:
        return None


# -- which expressions the operands are -----------------------------------------------------------------------------


def _place(context: Context, slow: Slow) -> _Place | None:
    file = context.file(slow.site.file)
    node = file.expression(slow.site) if file is not None else None
    if file is None or node is None:
        return None
    wanted = [operand for operand in slow.operands if slow.format == "contiguous" or len(operand.sizes) in (4, 5)]
    if not _is_direct(file, node, slow):
        if len(wanted) > 1 or not _is_given_from_outside(context, slow, wanted[0]):
            return None
        nodes = [_only_argument(node)]
    else:
        nodes = [_operand(file, node, slow, operand) for operand in wanted]
    suffix = _suffix(file, node, slow, wanted)
    found = tuple(dict.fromkeys(node for node in nodes if node is not None))
    if suffix is None or None in nodes or any(isinstance(node, ast.Constant) for node in found):
        return None
    return _Place(slow, file, found, suffix)


def _is_direct(file: SourceFile, node: ast.expr, slow: Slow) -> bool:
    """Whether the expression is the call itself, and not one of a module that makes it."""
    # Some functions (`max_pool2d`) reach torch by another of torch's, which is the site's `via`.
    called = Names(file).qualified(node.func) if isinstance(node, ast.Call) else None
    return slow.site.via is None or called == slow.function


def _suffix(file: SourceFile, at: ast.expr, slow: Slow, operands: Sequence[Operand]) -> str | None:
    if slow.format == "contiguous":
        return ".contiguous()"
    ranks = {len(operand.sizes) for operand in operands}
    name = "torch.channels_last" if ranks == {4} else "torch.channels_last_3d"
    spelled = Names(file).spelling(name, at) if len(ranks) == 1 else None
    return None if spelled is None else f".contiguous(memory_format={spelled})"


def _is_given_from_outside(context: Context, slow: Slow, operand: Operand) -> bool:
    """Whether a call that torch makes at a site has its operand from there: it was made where the module was called."""
    case, log = context.case, context.case.log
    (calls,) = context.calls_of([slow.site]).values()
    for call in calls:
        for ref in log.calls[call].inputs:
            row = case.flow.row(ref)
            if row is not None and (row.sizes, row.strides) == (operand.sizes, operand.strides):
                return _is_made_beside_module(context, call, log.refs[ref].object)
    return False


def _is_made_beside_module(context: Context, call: int, thing: int) -> bool:
    log = context.case.log
    around = list(context.modules_around(call))
    given = [at for at, number in enumerate(around) if thing in _given(log, number)]
    if not given:
        return False
    caller = around[given[-1] + 1] if given[-1] + 1 < len(around) else -1
    makers = [at for at in range(call) if thing in (log.refs[ref].object for ref in log.calls[at].outputs)]
    maker = log.calls[makers[-1]] if makers else None
    return maker is None or (maker.module_call == caller and maker.site != log.calls[call].site)


def _given(log: CallLog, module_call: int) -> set[int]:
    return {log.refs[ref].object for _, ref in log.module_calls[module_call].inputs}


def _only_argument(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Call(args=[argument], keywords=[]) if not isinstance(argument, ast.Starred):
            return argument
    return None


def _operand(file: SourceFile, node: ast.expr, slow: Slow, operand: Operand) -> ast.expr | None:
    """The expression that a call of torch's got an operand from."""
    first, *rest = operand.path
    match node:
        case ast.BinOp(left=left, right=right):
            sides = _sides(slow, left, right)
            found = sides[first] if isinstance(first, int) and first < len(sides) and not rest else None
        case ast.Compare(left=left, comparators=[right]):
            sides = _sides(slow, left, right)
            found = sides[first] if isinstance(first, int) and first < len(sides) and not rest else None
        case ast.UnaryOp(operand=value) | ast.Subscript(value=value):
            found = value if operand.path == (0,) else None
        case ast.Call():
            found = _argument(file, node, slow, first)
            for place in rest:
                entries = found.elts if isinstance(found, (ast.List, ast.Tuple)) else []
                known = isinstance(place, int) and place < len(entries)
                found = entries[place] if known and isinstance(place, int) else None
                if any(isinstance(entry, ast.Starred) for entry in entries):
                    return None
        case _:
            found = None
    return found


def _sides(slow: Slow, left: ast.expr, right: ast.expr) -> list[ast.expr]:
    """The sides of an operator as arguments of its function: `2 - x` calls `__rsub__(x, 2)`, `2 * x` calls `mul`."""
    if slow.tensors > 1:
        return [left, right]
    if short_name(slow.function).startswith("__r") or isinstance(left, ast.Constant):
        return [right, left]
    return [left, right] if isinstance(right, ast.Constant) else []  # which of them is the tensor can't be seen


def _argument(file: SourceFile, node: ast.Call, slow: Slow, at: int | str) -> ast.expr | None:
    is_method = isinstance(node.func, ast.Attribute) and Names(file).qualified(node.func) is None
    given: list[ast.expr] = [*node.args]
    if is_method and slow.function.startswith("torch.Tensor."):
        assert isinstance(node.func, ast.Attribute)
        given.insert(0, node.func.value)
    elif is_method:
        return None
    if any(isinstance(argument, ast.Starred) for argument in given):
        return None
    if isinstance(at, int) and at < len(given):
        return given[at]
    return next((keyword.value for keyword in node.keywords if keyword.arg == at), None)


# -- once for several calls ------------------------------------------------------------------------------------------


def _by_name(places: Sequence[_Place]) -> Iterator[list[_Place]]:
    """The calls of one function that read the same name, where there are several."""
    groups: dict[tuple[object, ...], list[_Place]] = defaultdict(list)
    for place in places:
        if all(isinstance(node, ast.Name) for node in place.operands):
            (name, *others) = {node.id for node in place.operands if isinstance(node, ast.Name)}
            if not others:
                groups[place.file.name, place.file.function(place.operands[0]), name, place.suffix].append(place)
    yield from (group for group in groups.values() if len(group) > 1)


def _at_binding(context: Context, places: Sequence[_Place]) -> Iterator[Candidate]:
    file, node = places[0].file, places[0].operands[0]
    function = file.function(node)
    assert isinstance(node, ast.Name)
    if function is None or node.id in parameters(function) or not is_local(function, node.id):
        return
    if may_be_written(context, file, function, [node.id]):
        return
    bound = list(bindings(function.body, node.id))
    match bound and file.parent(bound[0]):
        case ast.Assign(targets=[ast.Name()], value=value) if len(bound) == 1 and not is_deferred(file, value):
            made = _appended(file, [value], places[0].suffix)
            if made is not None:
                yield _candidate(places, f"copy once where `{node.id}` is made", places[0].slow.site, made)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"
