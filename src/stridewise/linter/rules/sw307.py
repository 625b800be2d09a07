"""SW307 pointer-of-temporary: the address of a tensor that is freed before the address is used.

What it means
    `x.contiguous().data_ptr()` is the address of a copy that nothing holds: it is freed as soon as `data_ptr()` has
    returned, before the call that the address is handed to begins. The kernel reads memory that is free, or belongs to
    another tensor by then. The same holds of `(a + b).data_ptr()`, `x.to(device).data_ptr()`, `x[mask].data_ptr()`.

Why it happens
    In C++ a temporary lives to the end of the full expression; in Python only as long as something refers to it. It
    often seems to work, since freed memory keeps its contents for a while, and since `contiguous()` and `to()` give
    the tensor itself where there is nothing to do. Two such addresses in one call may be the same.

How to fix it
    Give the temporary a name that lives until the kernel is done: `held = x.contiguous()`, then `held.data_ptr()`. For
    an address that is returned or kept, keep the tensor beside it.

When to ignore it
    Never where something is read or written there.
"""

import ast
import itertools
import re
from collections.abc import Iterator

from stridewise.findings import Edit
from stridewise.linter.module import Module, Scope
from stridewise.linter.names import last_name
from stridewise.linter.reading.pointers import CONVERSIONS, Body
from stridewise.linter.rule import Fires, Problem
from stridewise.source import edits

SEVERITY = "error"
WORDS = ("data_ptr",)
_LATER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
_READING = CONVERSIONS | {"data_ptr", "numel", "nelement", "size", "dim", "stride", "element_size", "item", "len"}
"""Calls that change nothing."""
_RANDOM = re.compile(r"rand|normal|bernoulli|multinomial|poisson|dropout")

FIRES = (
    Fires(
        """
import torch

def kernel(address, size):
    ...  # reads `size` floats there

def program():
    x = torch.ones(4, 2)[:, 0]
    return kernel(x.contiguous().data_ptr(), 4)
""",
        fixed="""
import torch

def kernel(address, size):
    ...  # reads `size` floats there

def program():
    x = torch.ones(4, 2)[:, 0]
    x_contiguous = x.contiguous()
    return kernel(x_contiguous.data_ptr(), 4)
""",
    ),
    Fires(
        """
import torch

def kernel(address, size):
    ...  # reads `size` floats there

def program():
    a, b = torch.ones(4), torch.ones(4)
    address = (a + b).data_ptr()
    return kernel(address, 4)
""",
        fixed="""
import torch

def kernel(address, size):
    ...  # reads `size` floats there

def program():
    a, b = torch.ones(4), torch.ones(4)
    held = a + b
    address = held.data_ptr()
    return kernel(address, 4)
""",
    ),
    Fires(
        """
import torch

def program():
    return address_of(torch.ones(4))

def address_of(x):
    return x.to(torch.float64).view(-1).data_ptr()
"""
    ),
    Fires(
        """
import torch

def program():
    x = torch.ones(5000)
    return x.clone().data_ptr() == x.clone().data_ptr()
"""
    ),
)
QUIET = (
    """
import torch

def kernel(*addresses):
    return addresses

def program():
    x = torch.ones(4, 5).t()
    held = x.contiguous()
    kernel(held.data_ptr(), x[0].data_ptr(), x.detach().data_ptr(), held.view(-1).data_ptr() + 4)
    assert x.contiguous().data_ptr() != x.data_ptr()
    address = x.contiguous().data_ptr()
    print(hex(x.contiguous().data_ptr()))
    output = torch.empty(4, 5)
    kernel(output.contiguous().data_ptr(), output.zero_().data_ptr())
    return address == x.data_ptr()
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Addresses of tensors that nothing holds."""
    names: dict[Scope, set[str]] = {}
    bodies: dict[Scope, Body] = {}
    for call in module.calls("data_ptr"):
        if not isinstance(call.func, ast.Attribute):
            continue
        temporary = _temporary(module, call.func.value)
        if temporary is None:
            continue
        text = module.text(temporary)
        if _is_compared_to_another(module, call):
            yield Problem(
                call,
                f"`{text}` is freed as soon as its address is taken, so that the tensor whose address it is compared "
                "to may lie at the same place: they look alike and are not.",
                advice="Give both tensors a name before their addresses are compared.",
            )
            continue
        scope = module.scope(call)
        body = bodies.get(scope) or bodies.setdefault(scope, Body(scope))
        taker = body.taker(call)
        if taker is None:
            continue
        freed = f"`{text}` is" if module.value(temporary).memory == "fresh" else f"Where it has to copy, `{text}` is"
        used = f"`{module.text(taker.func)}`" if isinstance(taker, ast.Call) else "whoever gets it"
        yield Problem(
            call,
            f"{freed} freed as soon as its address is taken: {used} gets that of free memory, or of another tensor's.",
            advice="Give it a name that lives until the kernel is done, and take the address of that.",
            edits=_hold(module, call, temporary, names) if isinstance(taker, ast.Call) else (),
        )


def _temporary(module: Module, node: ast.expr) -> ast.expr | None:
    """The expression in a chain of views that made new memory, if no name holds it."""
    while True:
        memory = module.value(node).memory
        match node:
            case ast.Call(func=ast.Attribute(value=base, attr=name)) if _copies_nothing(module, node, base, name):
                node = base
            case ast.Call(func=ast.Attribute(value=base, attr=name)) if name.endswith("_"):
                node = base  # in place
            case ast.Call() | ast.BinOp() | ast.UnaryOp() | ast.Subscript() if memory in ("fresh", "maybe"):
                return node
            case ast.Call(func=ast.Attribute(value=base)) if memory in ("view", "same") and not module.name(node.func):
                node = base
            case ast.Call(func=ast.Attribute(value=base, attr="untyped_storage" | "storage")):
                node = base
            case ast.Subscript(value=base) | ast.Attribute(value=base) if memory == "view":
                node = base
            case _:
                return None


def _copies_nothing(module: Module, call: ast.Call, base: ast.expr, name: str) -> bool:
    """Whether a call gives the memory of a tensor that is contiguous for sure."""
    if name == "contiguous" and (call.args or call.keywords):
        return False
    return name in ("contiguous", "reshape", "flatten", "ravel") and module.value(base).is_contiguous


def _is_compared_to_another(module: Module, call: ast.Call) -> bool:
    """Whether an address is compared to that of a temporary which is made after it was freed."""
    compare = module.parent(call)
    if not isinstance(compare, ast.Compare) or compare.left is not call:
        return False
    return any(
        isinstance(other, ast.Call)
        and isinstance(other.func, ast.Attribute)
        and other.func.attr == "data_ptr"
        and _temporary(module, other.func.value) is not None
        for other in compare.comparators
    )


def _hold(module: Module, call: ast.Call, temporary: ast.expr, names: dict[Scope, set[str]]) -> tuple[Edit, ...]:
    """A name for the temporary in a line before, if the statement is one that evaluates it once and at once."""
    statement = module.statement(call)
    above = list(module.above(temporary))
    above = above[: above.index(statement)]
    if not isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) or any(map(_is_later, above)):
        return ()
    text = _line(module, temporary)
    if text is None or not _may_come_first(module, temporary, [*above, statement]):
        return ()
    taken = names.setdefault(module.scope(statement), set())
    name = _free_name(module, temporary, taken)
    try:
        fix = (
            edits.insert_before(module.source, statement, f"{name} = {text}"),
            _renamed(module, temporary, name),
        )
    except ValueError:
        return ()
    taken.add(name)
    return fix


def _is_later(node: ast.AST) -> bool:
    """Whether a part of an expression may be evaluated later than where it stands, again, or not at all."""
    return isinstance(node, _LATER) or (isinstance(node, ast.Compare) and len(node.ops) > 1)


def _line(module: Module, temporary: ast.expr) -> str | None:
    """The text of a temporary as it may stand in a statement of its own; None if it, or what goes, has to stay so."""
    source, above = module.source, module.parent(temporary)
    if any(isinstance(each, ast.Constant) and each.end_lineno != each.lineno for each in ast.walk(temporary)):
        return None  # to indent the lines of a string would change it
    (start, end) = source.span(temporary)
    if isinstance(above, ast.Attribute):
        begin, stop = source.span(above)
        if b"#" in source.content[begin:start] + source.content[end:stop]:
            return None
    text = source.source(temporary).replace("\r\n", "\n")
    try:
        ast.parse(text)
    except SyntaxError:
        return f"({text})"  # its line breaks, or a walrus, need the parentheses that it had
    return text


def _may_come_first(module: Module, temporary: ast.expr, above: list[ast.AST]) -> bool:
    """Whether nothing changes if a temporary is made before what its statement evaluates up to there."""
    earlier: list[ast.AST] = []
    below: ast.AST = temporary
    for node in above:
        # The targets of an assignment are evaluated behind its value.
        parts = iter([node.value] if isinstance(node, ast.Assign) else ast.iter_child_nodes(node))
        earlier += itertools.takewhile(lambda part, below=below: part is not below, parts)  # type: ignore[misc]
        below = node
    if _binds(temporary) or not all(_changes_nothing(module, node) and not _draws(node) for node in earlier):
        return False
    return _changes_nothing(module, temporary) or all(_is_the_same_later(node) for node in earlier)


def _changes_nothing(module: Module, node: ast.AST) -> bool:
    """Whether evaluating an expression surely binds nothing and writes nothing."""
    if _binds(node):
        return False
    for each in ast.walk(node):
        if not isinstance(each, ast.Call) or last_name(each.func) in _READING:
            continue
        name = last_name(each.func)
        is_known = module.value(each).memory != "unknown" or (module.name(each.func) or "").startswith("torch.")
        is_writing = name.endswith("_") or any(keyword.arg in ("out", None) for keyword in each.keywords)
        if not is_known or is_writing:
            return False
    return True


def _binds(node: ast.AST) -> bool:
    """Whether an expression binds a name, or lets other code run that may."""
    return any(isinstance(each, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for each in ast.walk(node))


def _draws(node: ast.AST) -> bool:
    """Whether an expression may draw random numbers, whose order would change."""
    return any(isinstance(each, ast.Call) and _RANDOM.search(last_name(each.func)) for each in ast.walk(node))


def _is_the_same_later(node: ast.AST) -> bool:
    """Whether an expression means the same behind a call that may write to any object: names and constants do."""
    node = node.value if isinstance(node, (ast.keyword, ast.Attribute)) else node
    return isinstance(node, (ast.Name, ast.Constant, ast.expr_context))


def _renamed(module: Module, temporary: ast.expr, name: str) -> Edit:
    """The name in the temporary's place; the parentheses in `(a + b).data_ptr` go."""
    above = module.parent(temporary)
    if isinstance(above, ast.Attribute):
        return edits.replace(module.source, above, f"{name}.{above.attr}")
    return edits.replace(module.source, temporary, name)


def _free_name(module: Module, temporary: ast.expr, taken: set[str]) -> str:
    """A name that nothing in the function has: each temporary needs its own."""
    name = "held"
    match temporary:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=base), attr="contiguous")):
            name = f"{base}_contiguous"
    function = module.function(temporary)
    span = (0, len(module.source.content)) if function is None else module.source.span(function)
    used = {*re.findall(r"\w+", module.source.decode(span)), *taken}
    names = itertools.chain((name,), (f"{name}_{at}" for at in itertools.count(2)))
    return next(each for each in names if each not in used)
