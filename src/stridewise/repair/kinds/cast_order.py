"""cast-order: cast and copy a tensor in one pass, or in the order that moves fewer bytes.

What it does
    `x.half().contiguous()` and `x.contiguous().half()` both go over the tensor twice. It proposes
    `x.to(torch.float16, memory_format=torch.contiguous_format)`, which goes over it once; and, where the narrower
    elements could be the ones that are copied, the two calls in the other order.

When it is right
    One pass moves the fewest bytes. On the CPU it is not always the fastest: copies that keep the dtype have a fast
    kernel for transposed matrices. The trial tells.

    The trap: `.to(dtype, memory_format=…)` is `.contiguous()` only while the dtype changes. For a tensor that has that
    dtype already it does nothing, and what is transposed stays so. So one pass is proposed only where the dtype is
    written out, and every recorded call changed it. Code that is to take both needs the two calls.
"""

import ast
from collections.abc import Iterator

from msgspec import Struct

from stridewise.recording.dtypes import ITEM_SIZES
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.applied import Applied, applied, brief, in_function_body, operand_text
from stridewise.repair.reading.recorded import Recorded, Requested
from stridewise.repair.reading.removal import has_comment
from stridewise.repair.reading.writing import may_be_written
from stridewise.source import edits
from stridewise.source.file import SourceFile

ANSWERS = (
    'A tensor to be cast and brought into order: "call `.half()` and `.contiguous()`". Each of them goes over '
    "memory: one `.to()` does both, and of two calls the order decides how many bytes are moved."
)

EXAMPLES = (
    (
        """
import torch
x = torch.randn(64, 32)
def program():
    return x.t().bfloat16().contiguous()
""",
        """
import torch
x = torch.randn(64, 32)
def program():
    return x.t().to(torch.bfloat16, memory_format=torch.contiguous_format)
""",
    ),
    (
        """
import torch
x = torch.randn(64, 32)
def program():
    return x.t().contiguous().to(torch.float16)
""",
        """
import torch
x = torch.randn(64, 32)
def program():
    return x.t().to(torch.float16).contiguous()
""",
    ),
    (
        """
import torch
x = torch.randn(64, 32).half()
y = torch.randn(64, 32)
def program():
    return x.t().type_as(y).contiguous()
""",
        """
import torch
x = torch.randn(64, 32).half()
y = torch.randn(64, 32)
def program():
    return x.t().contiguous().type_as(y)
""",
    ),
)
QUIET = (
    """
import torch
x = torch.randn(64, 32)
def program():
    return x.t().float().contiguous()
""",
    """
import torch
x, y = torch.randn(64, 32), torch.randn(64, 32).half()
def program():
    return x.t().to(y.dtype).contiguous()
""",
)

_CASTS = {"half": "float16", "float": "float32", "double": "float64", "bfloat16": "bfloat16"}


class _Pair(Struct, frozen=True):
    """A copy and a cast that follow each other in one expression."""

    outer: Applied
    copy: Applied
    cast: Applied
    subject: ast.expr
    dtype: str | None
    """How the source writes the new dtype; None if it depends on something."""

    @property
    def copies_first(self) -> bool:
        return self.outer is self.cast


def candidates(context: Context) -> Iterator[Candidate]:
    """For each copy beside a cast: one pass, and the other order."""
    recorded = Recorded(context)
    for request in recorded.requested("contiguous"):
        file, case = request.file, context.case
        pair = _pair(recorded, request)
        sizes = None if pair is None else _item_sizes(recorded, file, pair)
        if pair is None or sizes is None or not in_function_body(file, request.node):
            continue
        function = file.function(request.node)
        if has_comment(file, pair.subject, pair.outer.node) or function is None:
            continue
        if may_be_written(context, file, function, [pair.outer.node], although_recorded=True):
            continue  # where the cast does nothing, what is left may be no copy
        subject = brief(file.source(pair.subject))
        before, after = sizes
        texts = []
        if one_pass := _one_pass(recorded, file, pair):
            texts.append((f"cast and copy `{subject}` in one pass", one_pass))
        if before > after if pair.copies_first else before < after:
            first, then = (pair.cast, pair.copy) if pair.copies_first else (pair.copy, pair.cast)
            swapped = operand_text(file, pair.subject) + _suffix(file, first) + _suffix(file, then)
            texts.append((f"{'cast' if pair.copies_first else 'copy'} `{subject}` first", swapped))
        for what, text in texts:
            yield Candidate(
                kind="cast-order",
                what=what,
                site=case.site(case.copies[request.copies[0]].call),
                findings=recorded.findings(request.copies),
                edits=(edits.replace(file, pair.outer.node, text),),
                removes_copies=False,
            )


def _pair(recorded: Recorded, request: Requested) -> _Pair | None:
    """The copy with the cast that it is called on, or that is called on it."""
    file, names = request.file, recorded.names(request.file)
    copy = applied(request.node, names)
    if copy is None or copy.name != "contiguous" or not copy.is_method or not copy.has_only(0, "memory_format"):
        return None
    attribute = file.parent(request.node)
    if isinstance(attribute, ast.Attribute):
        cast = applied(file.parent(attribute), names)
        if cast is not None and cast.subject is request.node and _is_cast(cast):
            return _Pair(cast, copy, cast, copy.subject, _dtype(recorded, file, cast))
    cast = applied(copy.subject, names)
    if cast is not None and _is_cast(cast):
        return _Pair(copy, copy, cast, cast.subject, _dtype(recorded, file, cast))
    return None


def _is_cast(link: Applied) -> bool:
    if not link.is_method or not isinstance(link.node, ast.Call):
        return False
    if link.name in _CASTS:
        return link.has_only(0)
    given = len(link.args) + len(link.keywords)
    return given == 1 and link.name in ("to", "type", "type_as") and link.has_only(1, "dtype")


def _dtype(recorded: Recorded, file: SourceFile, cast: Applied) -> str | None:
    """The dtype as the file writes it, or can write it."""
    names = recorded.names(file)
    if cast.name in _CASTS:
        return names.spelling(f"torch.{_CASTS[cast.name]}", cast.node)
    given = cast.argument(0, "dtype")
    qualified = None if given is None else names.qualified(given)
    if given is None or qualified is None or not qualified.startswith("torch.") or cast.name == "type_as":
        return None
    return file.source(given)


def _item_sizes(recorded: Recorded, file: SourceFile, pair: _Pair) -> tuple[int, int] | None:
    """Bytes of an element before and after the cast; None unless all calls cast between the same two dtypes."""
    found = set()
    for call in recorded.calls(file, pair.cast.node):
        before, after = next(iter(recorded.inputs(call)), None), recorded.output(call)
        if before is None or after is None or before.sizes != after.sizes:
            return None
        found.add((before.dtype, after.dtype))
    if len(found) != 1:
        return None
    ((old, new),) = found
    if old == new or old not in ITEM_SIZES or new not in ITEM_SIZES:
        return None
    return ITEM_SIZES[old], ITEM_SIZES[new]


def _one_pass(recorded: Recorded, file: SourceFile, pair: _Pair) -> str | None:
    given = pair.copy.keywords.get("memory_format")
    names = recorded.names(file)
    wanted = file.source(given) if given else names.spelling("torch.contiguous_format", pair.outer.node)
    if pair.dtype is None or wanted is None:
        return None
    return f"{operand_text(file, pair.subject)}.to({pair.dtype}, memory_format={wanted})"


def _suffix(file: SourceFile, link: Applied) -> str:
    """A method call without its subject: `.half()`."""
    assert isinstance(link.node, ast.Call)
    assert isinstance(link.node.func, ast.Attribute)
    arguments = file.decode((file.span(link.node.func)[1], file.span(link.node)[1]))
    return f".{link.name}{arguments}"
