"""sdpa: `scaled_dot_product_attention` instead of attention that is written out.

What it does
    Two products with a softmax between them, `softmax(q @ k.transpose(-2, -1) * scale + mask) @ v`, become one call of
    `torch.nn.functional.scaled_dot_product_attention`, which does not keep the scores, and takes q, k and v as
    `transpose(1, 2)` leaves them. The mask, the scale and the dropout go into its arguments; statements that only led
    to the result are taken out.

When it is right
    When nothing else reads the scores or the weights, and the mask is a floating point number that is added, or
    -inf that is filled in. A module for dropout is called no more: it has to be torch's own, without hooks. The results
    are equal but for rounding, and two cases: a row that is masked altogether gives 0 instead of NaN, and dropout draws
    other random numbers.
"""

import ast
from collections.abc import Iterator
from functools import partial

from stridewise.findings import Edit
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.applied import brief, in_function_body
from stridewise.repair.reading.attention import Attention, Scale, call_of, find_attention
from stridewise.repair.reading.modules import are_plain
from stridewise.repair.reading.recorded import Recorded
from stridewise.repair.reading.removal import remove_statement, with_parentheses
from stridewise.repair.reading.sizes import dimension
from stridewise.source import edits
from stridewise.source.file import Function, SourceFile

ANSWERS = (
    'Attention that is written out: "put `.contiguous()` in front of each product". That is a copy for each of q, k'
    " and v; one call that takes them as they are needs none."
)

EXAMPLES = (
    (
        """
import math
import torch
import torch.nn.functional as F
q, k, v = torch.randn(3, 2, 4, 16, 8)
mask = torch.ones(16, 16).tril()
def program():
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(mask == 0, float("-inf"))
    att = F.softmax(att, dim=-1)
    y = att @ v
    return y.transpose(1, 2)
""",
        """
import math
import torch
import torch.nn.functional as F
q, k, v = torch.randn(3, 2, 4, 16, 8)
mask = torch.ones(16, 16).tril()
def program():
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask != 0)
    return y.transpose(1, 2)
""",
    ),
    (
        """
import torch
from torch import nn
q, k, v = torch.randn(3, 8, 16, 8)
drop = nn.Dropout(0.0)
def attend(q, k, v, scale, mask=None):
    scores = torch.bmm(q, k.transpose(1, 2)) * scale
    if mask is not None:
        scores = scores + mask
    return torch.bmm(drop(scores.softmax(dim=2)), v).sum(0)
def program():
    return attend(q, k, v, 0.3, torch.zeros(16, 16))
""",
        """
import torch
from torch import nn
q, k, v = torch.randn(3, 8, 16, 8)
drop = nn.Dropout(0.0)
def attend(q, k, v, scale, mask=None):
    return nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=drop.p if drop.training else 0.0, scale=scale
    ).sum(0)
def program():
    return attend(q, k, v, 0.3, torch.zeros(16, 16))
""",
    ),
    (
        """
import torch
q, k, v = torch.randn(3, 2, 4, 16, 8)
def program():
    return (torch.softmax(q @ k.mT, -1) @ v).relu()
""",
        """
import torch
q, k, v = torch.randn(3, 2, 4, 16, 8)
def program():
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0).relu()
""",
    ),
)
QUIET = (
    """
import torch
q, k, v = torch.randn(3, 2, 4, 16, 8)
def program():
    attn = (q @ k.mT).softmax(-1)
    return attn @ v, attn
""",
    """
import torch
q, k, v = torch.randn(3, 2, 4, 16, 8)
def program():
    attn = (q @ k.mT).softmax(-2)
    return attn @ v
""",
    """
import torch
x, w, v = torch.randn(4, 16, 8), torch.randn(8, 16), torch.randn(16, 8)
def program():
    return torch.softmax(x @ w, -1) @ v
""",
)

_FUNCTION = "torch.nn.functional.scaled_dot_product_attention"
_WIDTH = 120


def candidates(context: Context) -> Iterator[Candidate]:
    """One for each attention that is written out in a function that ran."""
    recorded = Recorded(context)
    for file, function in _functions(recorded):
        names, rank = recorded.names(file), partial(_rank, recorded, file)
        for node in ast.walk(function):
            if not isinstance(node, ast.BinOp | ast.Call) or file.function(node) is not function:
                continue
            found = find_attention(file, names, function, node, rank)
            if found is None or not in_function_body(file, node) or not _fits(recorded, file, found):
                continue
            spelling = names.spelling(_FUNCTION, node)
            if spelling is None or "#" in file.source(node):
                continue
            yield _candidate(recorded, file, found, spelling)


def _functions(recorded: Recorded) -> Iterator[tuple[SourceFile, Function]]:
    """The functions that call a softmax."""
    seen: set[Function] = set()
    for at in recorded.places("softmax"):
        file = recorded.context.file(at.file)
        node = None if file is None else file.expression(at)
        function = None if file is None or node is None else file.function(node)
        if file is not None and function is not None and function not in seen:
            seen.add(function)
            yield file, function


def _candidate(recorded: Recorded, file: SourceFile, found: Attention, spelling: str) -> Candidate:
    text = call_of(file, found, spelling, _is_default(recorded, file, found))
    calls = {call for node in (*found.products, found.softmax.node) for call in recorded.calls(file, node)}
    copies = tuple(at for at in recorded.case.taxed if recorded.case.copies[at].call in calls)
    return Candidate(
        kind="sdpa",
        what=f"call `scaled_dot_product_attention` for `{brief(file.source(found.end))}` and what leads to it",
        site=recorded.case.site(recorded.calls(file, found.end)[0]),
        findings=recorded.findings(copies),
        edits=(*(remove_statement(file, step) for step in found.steps), _replaced(file, found.end, text)),
        removes_copies=False,
        keeps_values=found.dropout is None,
    )


def _replaced(file: SourceFile, end: ast.expr, text: str) -> Edit:
    begin = file.offset(end.lineno, 0)
    start, stop = with_parentheses(file, end)
    line = file.decode((begin, start))
    if len(line) + len(text) > _WIDTH and not line.isspace():
        indent = line[: len(line) - len(line.lstrip())]
        name, _, arguments = text.partition("(")
        text = f"{name}({file.newline}{indent}    {arguments[:-1]}{file.newline}{indent})"
    if (start, stop) == file.span(end):
        return edits.replace(file, end, text)
    return Edit(file.name, (start, stop), text, "unsafe")


def _rank(recorded: Recorded, file: SourceFile, node: ast.expr) -> int | None:
    ranks = {None if (row := recorded.output(call)) is None else len(row.sizes) for call in recorded.calls(file, node)}
    return ranks.pop() if len(ranks) == 1 else None


def _is_default(recorded: Recorded, file: SourceFile, found: Attention) -> bool:
    """Whether the scale is the one that the call takes by itself: 1 / sqrt(size of a query)."""
    scale = found.scale
    if scale is None:
        return False
    size = _root(recorded, file, scale.value, 1 if scale.divides else -1)
    rank = _rank(recorded, file, found.end)
    if size is None or rank is None:
        return False
    return any(dimension(file, size, tensor, rank) == rank - 1 for tensor in (found.query, found.key))


def _root(recorded: Recorded, file: SourceFile, node: ast.expr, sign: int) -> ast.expr | None:
    """What an expression is the square root of, or for -1 one over the square root."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        power = node.right
        negative = isinstance(power, ast.UnaryOp) and isinstance(power.op, ast.USub)
        number = power.operand if isinstance(power, ast.UnaryOp) else power
        half = isinstance(number, ast.Constant) and number.value == 0.5
        return node.left if half and negative == (sign < 0) else None
    if sign < 0 and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        one = isinstance(node.left, ast.Constant) and node.left.value == 1
        return _root(recorded, file, node.right, 1) if one else None
    if sign > 0 and isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        named = recorded.names(file).qualified(node.func)
        return node.args[0] if named in ("math.sqrt", "numpy.sqrt") else None
    return None


# -- what the recording has to say to it ------------------------------------------------------------------------------


def _fits(recorded: Recorded, file: SourceFile, found: Attention) -> bool:
    return (
        _products_fit(recorded, file, found)
        and (found.scale is None or _is_number(recorded, file, found.scale))
        and _mask_fits(recorded, file, found)
        and _dropout_fits(recorded, file, found)
        and all(_changes_no_dtype(recorded, file, node) for node in (found.softmax.node, *found.casts))
    )


def _products_fit(recorded: Recorded, file: SourceFile, found: Attention) -> bool:
    """Query, key and value have one dtype, three or more dimensions, and the same batch and heads."""
    first, second = (recorded.calls(file, node) for node in found.products)
    if not first or len(first) != len(second):
        return False
    for scores, weighted in zip(first, second, strict=True):
        rows = [*recorded.inputs(scores), *recorded.inputs(weighted)]
        if len(rows) != 4 or any(row is None or len(row.sizes) < 3 for row in rows):
            return False
        if len({(row.sizes[:-2], row.dtype) for row in rows if row is not None}) != 1:
            return False
    return True


def _is_number(recorded: Recorded, file: SourceFile, scale: Scale) -> bool:
    """Whether the scale is no tensor."""
    calls = recorded.calls(file, scale.node)
    return bool(calls) and all(len(recorded.inputs(call)) == 1 for call in calls)


def _mask_fits(recorded: Recorded, file: SourceFile, found: Attention) -> bool:
    if found.mask is None:
        return True
    calls = recorded.calls(file, found.mask.node)
    for call in calls:
        rows = recorded.inputs(call)
        if len(rows) != 2 or any(row is None or len(row.sizes) < 2 for row in rows):
            return False
        dtypes = [row.dtype for row in rows if row is not None]
        if found.mask.is_added and (len(set(dtypes)) > 1 or "float" not in dtypes[0]):
            return False
        if not found.mask.is_added and dtypes[0 if found.mask.keeps else 1] != "bool":
            return False
    return bool(calls)


def _dropout_fits(recorded: Recorded, file: SourceFile, found: Attention) -> bool:
    if found.dropout is None:
        return True
    calls = recorded.calls(file, found.dropout.node)
    inside = found.dropout.module is not None
    if inside and not are_plain(recorded.context, calls, "Dropout"):
        return False
    return bool(calls) and all(
        recorded.name(call) == "dropout"
        and ("torch/nn/modules/dropout.py" in (recorded.case.site(call).via or "")) == inside
        for call in calls
    )


def _changes_no_dtype(recorded: Recorded, file: SourceFile, node: ast.expr) -> bool:
    for call in recorded.calls(file, node):
        before, after = next(iter(recorded.inputs(call)), None), recorded.output(call)
        if before is None or after is None or (before.dtype, before.device) != (after.dtype, after.device):
            return False
    return bool(recorded.calls(file, node))
