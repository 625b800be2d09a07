"""hoist: a copy that is made again and again, made once: before the loop, before its first use, or in `__init__`.

Several calls copy the same tensor the same way. Where it is one name in one function, it is assigned its own copy
before the first of them, and before the loops in which nothing binds it. Where it is an expression such as
`self.table.t()`, the copy gets a name of its own, which stands for the expression from there on; so does a copy that a
loop asks for (`.contiguous()`, `.to(...)`) with nothing in it that changes. A parameter or a buffer that is stored in
another order is made in order where the module is built.

Nothing is moved over a statement that binds one of its names or writes into what they hold, nor out of an `if` that
looks at it first. If a loop does not run at all, the copy is one too many; the values are the same.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct

from stridewise.analysis.functions import CASTS, IMPLICIT, VIEWS, short_name
from stridewise.findings import Edit, Site
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.before import Anchor, anchor_of
from stridewise.repair.reading.built import What, contiguous, conversions, keepers, where_built
from stridewise.repair.reading.names import is_captured, is_deferred, is_local, names_in, unused_name
from stridewise.repair.reading.operands import operand_of
from stridewise.repair.reading.places import is_value
from stridewise.repair.reading.writing import may_be_written
from stridewise.source import edits
from stridewise.source.file import Function, SourceFile

ANSWERS = (
    'An operator that is called again and again on a strided tensor: "call `.contiguous()` once, before". Right '
    "where the operator copies each time, as layer_norm on a transposed tensor does; one that takes the strides as "
    "they are gains nothing."
)
_MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.{made}
        self.norm = torch.nn.LayerNorm(64)
    def forward(self, x):
        {first}
        for _ in range(3):
            x = x + self.norm({used})
        return x
model = Model()
x = torch.randn(32, 64)
def program():
    return model(x)
"""


def _model(made: str, used: str, first: str = "x = x * 2") -> str:
    return _MODEL.format(made=made, used=used, first=first)


EXAMPLES = (
    (
        """
import torch
norm = torch.nn.LayerNorm(64)
def step(table):
    total = 0
    for _ in range(3):
        total = total + norm(table)
    return total
table = torch.randn(64, 32).t()
def program():
    return step(table)
""",
        """
import torch
norm = torch.nn.LayerNorm(64)
def step(table):
    total = 0
    table = table.contiguous()
    for _ in range(3):
        total = total + norm(table)
    return total
table = torch.randn(64, 32).t()
def program():
    return step(table)
""",
    ),
    (
        """
import torch
norm = torch.nn.LayerNorm(64)
def step(table):
    first = norm(table)
    return first, norm(table)
table = torch.randn(64, 32).t()
def program():
    return step(table)
""",
        """
import torch
norm = torch.nn.LayerNorm(64)
def step(table):
    table = table.contiguous()
    first = norm(table)
    return first, norm(table)
table = torch.randn(64, 32).t()
def program():
    return step(table)
""",
    ),
    (
        _model("table = torch.nn.Parameter(torch.randn(64, 32))", "self.table.t()"),
        _model(
            "table = torch.nn.Parameter(torch.randn(64, 32))",
            "table",
            "x = x * 2\n        table = self.table.t().contiguous()",
        ),
    ),
    (
        _model("table = torch.randn(64, 32)", "self.table.t().contiguous()"),
        _model("table = torch.randn(64, 32)", "table", "x = x * 2\n        table = self.table.t().contiguous()"),
    ),
    (
        _model("table = torch.nn.Parameter(torch.randn(64, 32).t())", "self.table"),
        _model("table = torch.nn.Parameter(torch.randn(64, 32).t().contiguous())", "self.table"),
    ),
    (
        _model('register_buffer("table", torch.randn(64, 32).t())', "self.table"),
        _model('register_buffer("table", torch.randn(64, 32).t().contiguous())', "self.table"),
    ),
    (
        _model("table = torch.randn(64, 32).t()", "self.table"),
        _model("table = torch.randn(64, 32).t().contiguous()", "self.table"),
    ),
)
QUIET = (
    """
import torch
norm = torch.nn.LayerNorm(64)
def step(table):
    total = 0
    for _ in range(3):
        total = total + norm(table)
        table = table * 2
    return total
table = torch.randn(64, 32).t()
def program():
    return step(table)
""",
    """
import torch
norm = torch.nn.LayerNorm(64)
def step(table):
    total = norm(table) + norm(table)
    table.add_(1)
    return total
table = torch.randn(64, 32).t()
def program():
    return step(table)
""",
    _model("table = torch.nn.Parameter(torch.randn(32, 64))", "self.table"),
)

_LATER = VIEWS | IMPLICIT | CASTS | {"contiguous", "clone", "view", "view_as", "unflatten", "numpy_T", "T"}
"""What an expression may call to be evaluated another time: nothing that draws random numbers or writes."""


class _Use(Struct, frozen=True):
    """What would be evaluated once instead of at each of some places in a function."""

    file: SourceFile
    function: Function
    text: str
    is_copy: bool
    """It asks for the copy itself."""


def candidates(context: Context) -> Iterator[Candidate]:
    """The operands of repeated copies, and what modules keep in another order."""
    yield from _in_functions(context)
    yield from _in_init(context)


def _in_functions(context: Context) -> Iterator[Candidate]:
    places: dict[tuple[str, Function, str, bool], dict[ast.expr, tuple[int, str]]] = defaultdict(dict)
    files: dict[str, SourceFile] = {}
    for finding, copies in context.findings("SW102"):
        for position in copies:
            call, stream = context.case.copies[position].call, context.case.streams[position]
            expression = context.expression(context.case.site(call))
            if expression is None or stream is None or stream.goal.channels_last:
                continue
            file, node = expression
            is_copy = context.case.copies[position].kind in ("explicit", "implicit")
            used = node if is_copy else operand_of(context, file, node, call, stream)
            function = file.function(node)
            if isinstance(used, ast.Name) and stream.ref is not None and context.is_written_after(call, stream.ref):
                continue  # a name would go on with the copy, and what is written would not reach the tensor itself
            if used is not None and function is not None and not is_deferred(file, used):
                files[file.name] = file
                places[file.name, function, ast.unparse(used), is_copy].setdefault(used, (call, finding.fingerprint))
    for (name, function, text, is_copy), nodes in places.items():
        use = _Use(files[name], function, text, is_copy)
        try:
            made = _hoisted(context, use, [*nodes])
        except ValueError:  # no line of its own for it, or no place for a name
            continue
        if made is not None:
            anchor, changes = made
            where = "before the loop" if anchor.leaves_loop else "before its first use"
            yield Candidate(
                kind="hoist",
                what=f"copy `{text.removesuffix('.contiguous()')}` once, {where}",
                site=context.case.site(min(call for call, _ in nodes.values())),
                findings=tuple(dict.fromkeys(fingerprint for _, fingerprint in nodes.values())),
                edits=tuple(changes),
            )


def _hoisted(context: Context, use: _Use, nodes: list[ast.expr]) -> tuple[Anchor, list[Edit]] | None:
    file, function, first = use.file, use.function, nodes[0]
    base = _base(context, file, first)
    if base is None or may_be_written(context, file, function, [ast.unparse(base)], although_recorded=True):
        return None
    anchor = anchor_of(file, function, nodes, names_in(first), ast.unparse(base))
    if anchor is None or not (anchor.leaves_loop or len(nodes) > 1):
        return None
    if isinstance(first, ast.Name) and is_local(function, first.id):
        if is_captured(function, first.id):
            return None
        line = f"{first.id} = {first.id}.contiguous()"
        return anchor, [edits.insert_before(file, anchor.statement, line)]
    text = file.source(first)
    if use.is_copy and any(_is_kept(file, node) for node in nodes):
        return None
    if may_be_written(context, file, function, nodes, although_recorded=True):
        return None
    if "\n" in text or not all(is_value(file, node) or isinstance(node, ast.Name) for node in nodes):
        return None
    name = unused_name(file, base.id if isinstance(base, ast.Name) else base.attr)
    line = f"{name} = {text}" if use.is_copy else f"{name} = {text}.contiguous()"
    return anchor, [
        edits.insert_before(file, anchor.statement, line),
        *(edits.replace(file, node, name) for node in nodes),
    ]


def _is_kept(file: SourceFile, node: ast.expr) -> bool:
    """Whether a copy is kept where others may write into it: then each needs memory of its own."""
    match file.parent(node):
        case ast.Assign(targets=[ast.Name()]) | ast.AnnAssign(target=ast.Name()):
            return False
        case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() | ast.List() | ast.Tuple() | ast.Dict() | ast.Return():
            return True
    return False


def _base(context: Context, file: SourceFile, node: ast.expr) -> ast.Name | ast.Attribute | None:
    """The name or the attribute that views and casts are of; None if an expression holds anything else."""
    match node:
        case ast.Name():
            return node
        case ast.Call(func=ast.Attribute(value=value), args=args, keywords=keywords):
            given = [*args, *(keyword.value for keyword in keywords)]
            called = {short_name(function) for function in context.functions_at(file, node)}
            is_fixed = all(map(_is_fixed, given)) and bool(called) and called <= _LATER
            return _base(context, file, value) if is_fixed else None
        case ast.Subscript(value=value, slice=index):
            return _base(context, file, value) if _is_fixed(index) else None
        case ast.Attribute(value=value):
            if context.functions_at(file, node):  # `self.table.T`
                return _base(context, file, value)
            return node if _is_fixed(node) else None
    return None


def _is_fixed(node: ast.expr) -> bool:
    """Whether an argument has nothing in it that runs."""
    runs = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Starred, ast.Lambda, ast.ListComp)
    return not any(isinstance(part, (*runs, ast.SetComp, ast.DictComp, ast.GeneratorExp)) for part in ast.walk(node))


def _in_init(context: Context) -> Iterator[Candidate]:
    found: dict[tuple[Edit, What, str], tuple[Candidate, list[str]]] = {}
    for finding, copies in context.findings("SW101", "SW102", "SW103"):
        for position in copies:
            stream = context.case.streams[position]
            if stream is None or stream.goal.channels_last:
                continue
            for module, what, name in keepers(context, position, stream):
                built = where_built(context, module, what, name)
                edit = contiguous(built) if built is not None else None
                if built is None or edit is None:
                    continue
                text = " ".join(built.file.source(built.value).split())
                candidate = Candidate(
                    kind="hoist",
                    what=f"store `{name}` in order: `{text}.contiguous()` in `{built.init.name}`",
                    site=Site(
                        file=built.file.name,
                        line=built.value.lineno,
                        column=built.value.col_offset,
                        end_line=built.value.end_lineno,
                        end_column=built.value.end_col_offset,
                        function=built.init.name,
                        expression=text,
                    ),
                    edits=(edit,),
                    conversions=conversions(context, built, what, name),
                )
                found.setdefault((edit, what, name), (candidate, []))[1].append(finding.fingerprint)
    for candidate, fingerprints in found.values():
        yield Candidate(
            kind=candidate.kind,
            what=candidate.what,
            site=candidate.site,
            findings=tuple(dict.fromkeys(fingerprints)),
            edits=candidate.edits,
            conversions=candidate.conversions,
        )
