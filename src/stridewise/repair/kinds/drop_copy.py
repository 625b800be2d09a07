"""drop-copy: leave out a copy that nothing behind it needs.

What it does
    It takes one `.contiguous()`, or one `memory_format=` of a `.to()`, out of an expression, and makes the `view` that
    follows a `reshape`. A statement that does nothing else goes as a whole, and an `if` with it that holds nothing
    else.

When it is right
    When what follows takes any strides: elementwise operations, transposed operands of `mm` and `bmm`, a `reshape` that
    can be a view. Then the copy is spent for nothing. Where it was needed, what follows copies by itself or gets
    slower, which the trial shows. A copy stays if its memory is written to, or may be in a branch that did not run, or
    is handed to other code than torch's (`.numpy()`): without it that would be the original.
"""

import ast
from collections.abc import Iterator

from stridewise.analysis.functions import IMPLICIT
from stridewise.findings import Edit
from stridewise.layout import reshape
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.applied import Applied, applied, brief, in_function_body
from stridewise.repair.reading.recorded import Recorded, Requested
from stridewise.repair.reading.removal import drop_link, enclosing, has_comment, remove_statement, rename
from stridewise.repair.reading.writing import may_be_written
from stridewise.source import edits
from stridewise.source.file import SourceFile

ANSWERS = (
    'A tensor out of order: "bring it into order first, to be safe". It is safe without: what needs another order '
    "copies by itself, and elementwise operators, matrix products and convolutions take more than one. A copy pays "
    "where several calls would each make one."
)

EXAMPLES = (
    (
        """
import torch
x, w = torch.randn(8, 64, 32), torch.randn(8, 64, 16)
def program():
    return torch.bmm(x.transpose(1, 2).contiguous(), w)
""",
        """
import torch
x, w = torch.randn(8, 64, 32), torch.randn(8, 64, 16)
def program():
    return torch.bmm(x.transpose(1, 2), w)
""",
    ),
    (
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = (x + 1).transpose(1, 2).contiguous().view(8, 32, 8, 8)
    return y * 2
""",
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = (x + 1).transpose(1, 2).reshape(8, 32, 8, 8)
    return y * 2
""",
    ),
    (
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = x.transpose(1, 2)
    y = y.contiguous()
    return y * 2
""",
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = x.transpose(1, 2)
    return y * 2
""",
    ),
    (
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = x.transpose(1, 2)
    if not y.is_contiguous():
        # to be safe
        y = y.contiguous()
    return y * 2
""",
        """
import torch
x = torch.randn(8, 64, 32)
def program():
    y = x.transpose(1, 2)
    return y * 2
""",
    ),
    (
        """
import torch
x = torch.randn(2, 8, 16, 16)
def program():
    return torch.relu(x.to("cpu", memory_format=torch.channels_last))
""",
        """
import torch
x = torch.randn(2, 8, 16, 16)
def program():
    return torch.relu(x.to("cpu"))
""",
    ),
)
QUIET = (
    """
import torch
x = torch.randn(64, 32)
def program():
    return x.contiguous() + 1
""",
    """
import torch
x = torch.randn(64, 32)
def program():
    y = x.t().contiguous()
    y[0] = 1
    return y
""",
    # In training, which was not recorded, the parameter would be written to.
    """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(64, 32))
    def forward(self, x):
        w = self.table.detach().t().contiguous()
        if self.training:
            w.mul_(torch.rand(64) > 0.1)
        return x @ w
model = Model().eval()
x = torch.randn(8, 32)
def program():
    return model(x)
""",
    """
import torch
x = torch.randn(8, 64, 32)
def program():
    return x.transpose(1, 2).contiguous().view(8, -1)
""",
)

_VIEWS = {"view": "reshape", "view_as": "reshape_as"}


def candidates(context: Context) -> Iterator[Candidate]:
    """One for each place that asks for a copy."""
    recorded = Recorded(context)
    for request in recorded.requested("contiguous", "to"):
        case = context.case
        calls = [case.copies[position].call for position in request.copies]
        function = request.file.function(request.node)
        if function is None or not in_function_body(request.file, request.node):
            continue
        if any(map(recorded.is_written, calls)) or may_be_written(context, request.file, function, [request.node]):
            continue
        if all(_is_copied_anyway(recorded, call) for call in calls):
            continue
        found = _edits(recorded, request)
        if found is not None:
            what, changes = found
            yield Candidate(
                kind="drop-copy",
                what=what,
                site=case.site(calls[0]),
                findings=recorded.findings(request.copies),
                edits=changes,
                needless=True,
            )


def _edits(recorded: Recorded, request: Requested) -> tuple[str, tuple[Edit, ...]] | None:
    file, node = request.file, request.node
    link = applied(node, recorded.names(file))
    if link is None:
        return None
    subject = brief(file.source(link.subject))
    if link.name == "to":
        changes = tuple(_without_format(recorded, request, link))
        return (f"leave `memory_format` out of `{subject}.to(…)`", changes) if changes else None
    if link.name != "contiguous" or not link.has_only(0, "memory_format"):
        return None
    return f"leave out `contiguous` of `{subject}`", tuple(_without_copy(recorded, request, link))


def _without_copy(recorded: Recorded, request: Requested, link: Applied) -> Iterator[Edit]:
    """A `view` of what was copied can't be sure of its strides any more: it becomes a `reshape`."""
    file = request.file
    views = list(_views(recorded, request))
    behind = next((view for view in views if view.value is link.node), None)
    if _is_all_of_statement(file, link):
        yield remove_statement(file, enclosing(file, file.statement(link.node)))
    else:
        yield drop_link(file, link, behind, _VIEWS[behind.attr] if behind is not None else "")
    for view in views:
        if view is not behind:
            yield rename(file, view, _VIEWS[view.attr])


def _is_all_of_statement(file: SourceFile, link: Applied) -> bool:
    """`x.contiguous()`, and `x = x.contiguous()`."""
    statement = file.statement(link.node)
    if isinstance(statement, ast.Expr):
        return statement.value is link.node
    if not isinstance(statement, ast.Assign) or statement.value is not link.node or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    return isinstance(target, ast.Name) and isinstance(link.subject, ast.Name) and target.id == link.subject.id


def _without_format(recorded: Recorded, request: Requested, link: Applied) -> Iterator[Edit]:
    """The same `.to()`, without the format; without itself where it has no other argument."""
    file, call = request.file, link.node
    casts = any(recorded.case.copies[position].cast for position in request.copies)
    if casts or not link.is_method or "memory_format" not in link.keywords or "copy" in link.keywords:
        return
    assert isinstance(call, ast.Call)
    rest = [file.source(arg) for arg in call.args]
    rest += [f"{word.arg}={file.source(word.value)}" for word in call.keywords if word.arg != "memory_format"]
    if not rest:
        yield from _without_copy(recorded, request, link)
    elif not has_comment(file, call.func, call):
        yield edits.replace(file, call, f"{file.source(call.func)}({', '.join(rest)})")


def _views(recorded: Recorded, request: Requested) -> Iterator[ast.Attribute]:
    """The `view` of each `x.view(…)` that uses a copy, those that only look at it as another dtype left out."""
    case, done = recorded.case, set()
    for position in request.copies:
        for consumer in case.flow.consumers.get(case.copies[position].call, []):
            site = case.site(consumer)
            node = request.file.expression(site) if site.file == request.file.name else None
            if not isinstance(node, ast.Call) or node in done or recorded.name(consumer) not in _VIEWS:
                continue
            before, after = recorded.inputs(consumer)[0], recorded.output(consumer)
            casts = before is None or after is None or before.dtype != after.dtype
            if isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and not casts:
                done.add(node)
                yield node.func


def _is_copied_anyway(recorded: Recorded, call: int) -> bool:
    """Whether all that use a copy only lay other sizes over it, and could not without it."""
    source = recorded.inputs(call)[0]
    consumers = recorded.case.flow.consumers.get(call, [])
    if source is None or not consumers:
        return False
    for consumer in consumers:
        made = recorded.output(consumer)
        if recorded.name(consumer) not in IMPLICIT | set(_VIEWS) or made is None or made.dtype != source.dtype:
            return False
        if not reshape(source.layout, made.sizes).copied:
            return False
    return True
