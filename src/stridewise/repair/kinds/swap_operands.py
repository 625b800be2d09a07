"""swap-operands: the operand in the wanted order goes first, where the order of two decides the layout of the result.

The result of `a + b` takes the layout of the first operand that is dense and not broadcast. If that one is in another
order than the calls behind want, and the second is in the wanted one, `b + a` gives the same values in that order, and
the copies behind are gone: no copy is made instead.

Only functions that commute bit for bit are swapped, and only operands whose evaluation can't affect each other.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator

from stridewise.analysis.functions import short_name
from stridewise.findings import Edit
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.names import is_local
from stridewise.repair.reading.places import expression_of
from stridewise.source import edits
from stridewise.source.file import SourceFile

ANSWERS = (
    'A result of two operands that is copied behind it: "put `.contiguous()` in front" of what copies. The result '
    "takes the layout of the first operand: with the operands swapped there is nothing to copy."
)
EXAMPLES = (
    (
        """
import torch
x = torch.randn(8, 64, 32).permute(0, 2, 1)
y = torch.randn(8, 32, 64)
norm = torch.nn.LayerNorm(64)
def program():
    return norm(x + y)
""",
        """
import torch
x = torch.randn(8, 64, 32).permute(0, 2, 1)
y = torch.randn(8, 32, 64)
norm = torch.nn.LayerNorm(64)
def program():
    return norm(y + x)
""",
    ),
    (
        """
import torch
x = torch.randn(2, 8, 16, 16)
conv = torch.nn.Conv2d(8, 8, 3, padding=1).to(memory_format=torch.channels_last)
def program():
    short = x * 2
    return conv(torch.mul(short, conv(short)))
""",
        """
import torch
x = torch.randn(2, 8, 16, 16)
conv = torch.nn.Conv2d(8, 8, 3, padding=1).to(memory_format=torch.channels_last)
def program():
    short = x * 2
    return conv(torch.mul(conv(short), short))
""",
    ),
    (
        """
import torch
x = torch.randn(8, 64, 32)
y = torch.randn(8, 32, 64)
norm = torch.nn.LayerNorm(64)
def program():
    return norm((x - 1).mT.mul(y * 2))
""",
        """
import torch
x = torch.randn(8, 64, 32)
y = torch.randn(8, 32, 64)
norm = torch.nn.LayerNorm(64)
def program():
    return norm((y * 2).mul((x - 1).mT))
""",
    ),
)
QUIET = (
    """
import torch
x = torch.randn(8, 64, 32).permute(0, 2, 1)
y = torch.randn(8, 32, 64)
norm = torch.nn.LayerNorm(64)
def program():
    return norm(x - y)
""",
    """
import torch
x = torch.randn(8, 64, 32).permute(0, 2, 1)
y = torch.randn(8, 32, 64)
norm, drop = torch.nn.LayerNorm(64), torch.nn.Dropout()
def program():
    return norm(drop(x) + drop(y))
""",
    """
import torch
x = torch.randn(8, 64, 32).permute(0, 2, 1)
y = torch.randn(8, 32, 64)
norm = torch.nn.LayerNorm(64)
def program():
    return norm(torch.add(x, y, alpha=2))
""",
    """
import torch
x = torch.randn(8, 64, 32).permute(0, 2, 1)
y = torch.randn(8, 32, 64).permute(0, 1, 2)
norm = torch.nn.LayerNorm(64)
def program():
    z = x + 1
    z += y
    return norm(z)
""",
)

COMMUTATIVE = ("add", "mul", "multiply")
"""A test runs each: swapped operands give equal bits, and the layout of the first.

`maximum` and `minimum` are none of them: of 0 and -0, their order decides which one they give.
"""


def candidates(context: Context) -> Iterator[Candidate]:
    """The calls on the streams of taxed copies whose second operand already is what the payers want."""
    case = context.case
    found: dict[tuple[object, ...], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for position in case.taxed:
        stream, finding = case.streams[position], context.report.copies[position].finding
        if stream is None or stream.operand is None or finding is None:
            continue
        for call in (*stream.carriers, stream.origin.call) if stream.origin.kind == "call" else stream.carriers:
            rows = [case.flow.row(ref) for ref in case.log.calls[call].inputs]
            if short_name(case.function(call)) not in COMMUTATIVE or len(rows) != 2:
                continue
            first, second = rows
            if first is None or second is None or first.sizes != second.sizes:
                continue
            if not stream.goal.is_met_by(first) and stream.goal.is_met_by(second):
                site = case.site(call)
                key = site.file, site.function, " ".join((site.expression or "").split())
                found[key][call].add(finding)
    for calls in found.values():
        made = {call: swap for call in calls if (swap := _swap(context, call)) is not None}
        if made:
            site = case.site(next(iter(made)))
            yield Candidate(
                kind="swap-operands",
                what=f"swap the operands of `{' '.join((site.expression or '').split())}`",
                site=site,
                findings=tuple(sorted({finding for call in made for finding in calls[call]})),
                edits=tuple(dict.fromkeys(edit for swap in made.values() for edit in swap)),
            )


def _swap(context: Context, call: int) -> list[Edit] | None:
    found = expression_of(context, call)
    if found is None:
        return None
    file, node = found
    match node:
        case ast.BinOp(left=first, right=second, op=ast.Add() | ast.Mult()):
            return _swap_operator(file, node) if _can_swap(file, first, second) else None
        case ast.Call(args=[first, second], keywords=[]) if _is_of_module(context, call):
            operands = first, second
        case ast.Call(func=ast.Attribute(value=first), args=[second], keywords=[]) if not _is_of_module(context, call):
            operands = first, second
        case _:
            return None
    if not _can_swap(file, *operands):
        return None
    try:
        return [edits.replace(file, at, file.source(by)) for at, by in (operands, operands[::-1])]
    except ValueError:  # starred, or in an f-string
        return None


def _is_of_module(context: Context, call: int) -> bool:
    """Whether a call was made as `torch.add(a, b)`, and not as a method of its first operand."""
    return not context.case.function(call).startswith("torch.Tensor.")


def _swap_operator(file: SourceFile, node: ast.BinOp) -> list[Edit] | None:
    """One edit of it all: an operand's own parentheses are not part of its node."""
    (start, end), (_, left_end), (right_start, _) = map(file.span, (node, node.left, node.right))
    between = file.content[left_end:right_start].decode(file.encoding)
    sign = "+" if isinstance(node.op, ast.Add) else "*"
    closing, found, opening = between.partition(sign)
    if not found or "#" in between or "\\" in between:
        return None
    left = file.content[start:left_end].decode(file.encoding) + closing.rstrip()
    right = opening.lstrip() + file.content[right_start:end].decode(file.encoding)
    spaces = closing[len(closing.rstrip()) :] + sign + opening[: len(opening) - len(opening.lstrip())]
    for operand in (left, f"({left})"):
        text = f"{right}{spaces}{operand}"
        if _is_swapped(text, node):
            return [Edit(file.name, (start, end), text, "unsafe")]
    return None


def _is_swapped(text: str, node: ast.BinOp) -> bool:
    try:
        new = ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        return False
    return isinstance(new, ast.BinOp) and [*map(ast.dump, (new.left, new.op, new.right))] == [
        *map(ast.dump, (node.right, node.op, node.left))
    ]


def _can_swap(file: SourceFile, first: ast.expr, second: ast.expr) -> bool:
    """Whether two operands may be evaluated in the other order.

    A call may draw random numbers, write into a tensor or bind an attribute: beside one there may only be a name that
    nothing else can bind.
    """
    if any(isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom) for part in _parts(first, second)):
        return False
    calls = [operand for operand in (first, second) if any(isinstance(part, ast.Call) for part in ast.walk(operand))]
    if not calls:
        return True
    others = [operand for operand in (first, second) if operand not in calls]
    function = file.function(first)
    return (
        function is not None
        and all(isinstance(other, ast.Name) and is_local(function, other.id) for other in others)
        and len(others) == 1
    )


def _parts(*nodes: ast.expr) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)
