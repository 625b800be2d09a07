"""SW302 missing-call: `is_contiguous` or `contiguous` without parentheses is the method, not what it tells or gives.

What it means
    `if x.is_contiguous:` and `assert x.is_contiguous` hold for every tensor: a method counts as true. It is never equal
    to `True`, so `x.is_contiguous == True` holds for none. `x = x.contiguous` binds the method, and nothing is made
    contiguous.

Why it happens
    `x.is_cuda`, `x.shape` and `x.T` are attributes; these two are methods. A check without its parentheses never
    fails, so it is not missed until a kernel behind it reads strided memory as if it were dense.

How to fix it
    Write the parentheses. A check that has never failed may fail then, rightly: no fix is made unasked.

When to ignore it
    When the value is no tensor, and has an attribute of that name.
"""

import ast
from collections.abc import Iterator

from stridewise.linter.facts.effects import FUNCTIONS, METHODS
from stridewise.linter.module import Module
from stridewise.linter.reading.tensors import asked_of, defines, is_array, is_tensor, is_tensor_name
from stridewise.linter.rule import Fires, Problem
from stridewise.source import edits as editing

SEVERITY = "error"
_CHECK, _COPY = "is_contiguous", "contiguous"
WORDS = (_CHECK, _COPY)
_SAME, _OTHER = (ast.Eq, ast.Is), (ast.NotEq, ast.IsNot)
_ASSERT = "torch._assert"
_SHOW_OR_TEST = ("print", "bool", "all", "any", "assertTrue", "assertFalse", "assertEqual")
_TENSOR_ATTRIBUTES = frozenset(
    (
        *("shape", "dtype", "device", "ndim", "is_cuda", "grad", "requires_grad"),
        *("size", "stride", "dim", "numel", "data_ptr", "element_size", "storage_offset"),
        *("contiguous", "view", "reshape", "transpose", "permute", "t", "unsqueeze", "squeeze", "expand", "expand_as"),
        *("flatten", "clone", "detach"),
    )
)
"""What code asks of a tensor; not what a mesh edge or a codec's tile is asked."""
_MEMORYVIEWS = frozenset(("shape", "ndim"))
"""What a `memoryview` is asked as well. Its `contiguous` is true or false."""

FIRES = (
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    if x.is_contiguous:
        return True
    return False
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3).t()
    if x.is_contiguous():
        return True
    return False
""",
    ),
    Fires(
        """
import torch

def launch(x, out):
    assert x.is_contiguous, "the kernel reads dense memory"
    if not out.is_contiguous or out.dtype != x.dtype:
        raise ValueError("out")
    return x.data_ptr(), out.data_ptr()

def program():
    return launch(torch.zeros(2, 3).t(), torch.zeros(3, 2))
""",
        fixed="""
import torch

def launch(x, out):
    assert x.is_contiguous(), "the kernel reads dense memory"
    if not out.is_contiguous() or out.dtype != x.dtype:
        raise ValueError("out")
    return x.data_ptr(), out.data_ptr()

def program():
    return launch(torch.zeros(2, 3).t(), torch.zeros(3, 2))
""",
        count=2,
    ),
    Fires(
        """
import torch

def refuse_strided(t):
    assert t.is_contiguous

def all_dense(q, k):
    return all(each.is_contiguous for each in (q, k))

def program():
    refuse_strided(torch.zeros(2, 3).t())
    return all_dense(torch.zeros(2, 3).t(), torch.zeros(2))
""",
        fixed="""
import torch

def refuse_strided(t):
    assert t.is_contiguous()

def all_dense(q, k):
    return all(each.is_contiguous() for each in (q, k))

def program():
    refuse_strided(torch.zeros(2, 3).t())
    return all_dense(torch.zeros(2, 3).t(), torch.zeros(2))
""",
        count=2,
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    x = x.contiguous
    return x
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3).t()
    x = x.contiguous()
    return x
""",
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3).t()
    x.contiguous
    return torch.relu(x.contiguous)
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3).t()
    x.contiguous()
    return torch.relu(x.contiguous())
""",
        count=2,
    ),
    Fires(
        """
import torch

def program():
    x = torch.zeros(2, 3)
    return x.is_contiguous == True, x.is_contiguous is not True
""",
        fixed="""
import torch

def program():
    x = torch.zeros(2, 3)
    return x.is_contiguous() == True, x.is_contiguous() is not True
""",
        count=2,
    ),
    Fires(
        """
import torch

def program():
    xs = [torch.zeros(2, 3).t()]
    torch._assert(xs[0].is_contiguous, "strided")
    assert all([xs[0].is_contiguous])
    return all(x.is_contiguous for x in xs), any([x.is_contiguous for x in xs])
""",
        count=4,
        fixed="""
import torch

def program():
    xs = [torch.zeros(2, 3).t()]
    torch._assert(xs[0].is_contiguous(), "strided")
    assert all([xs[0].is_contiguous()])
    return all(x.is_contiguous() for x in xs), any([x.is_contiguous() for x in xs])
""",
    ),
)
QUIET = (
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    if not x.is_contiguous():
        x = x.contiguous()
    return x
""",
    """
import torch

def program():
    x = torch.zeros(2, 3).t()
    pack = x.contiguous
    every = {torch.Tensor.contiguous: 1, "check": torch.Tensor.is_contiguous}
    return [pack(), list(map(torch.Tensor.contiguous, [x])), hasattr(x, "is_contiguous"), every]
""",
    """
import torch

class Edge:
    def __init__(self, is_contiguous):
        self.is_contiguous = is_contiguous

def program():
    return [edge for edge in (Edge(True), Edge(False)) if edge.is_contiguous]
""",
    """
import torch

def sound(mesh, page):
    offset = page.offset if page.is_contiguous else None
    return offset, all(edge.is_contiguous for edge in mesh.edges)

def program():
    return torch.zeros(2)
""",
    """
import timeit
import torch

def program():
    x = torch.zeros(2, 3).t()
    return timeit.timeit(x.contiguous, number=1)
""",
    """
import torch

class Wrapper:
    contiguous: bool = True

def program():
    wrapper = Wrapper()
    return torch.zeros(2) if wrapper.contiguous else None
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Loads of the two methods that are not called."""
    for name in WORDS:
        own: bool | None = None
        for attribute in module.attributes(name):
            parent = module.parent(attribute)
            if not isinstance(attribute.ctx, ast.Load) or (isinstance(parent, ast.Call) and parent.func is attribute):
                continue
            own = _is_own(module, name) if own is None else own
            if not own and _is_value(module, attribute) and _is_of_tensor(module, attribute):
                yield _problem(module, attribute)


def _problem(module: Module, attribute: ast.Attribute) -> Problem:
    text, base = module.text(attribute), module.text(attribute.value)
    compared = module.parent(attribute)
    if isinstance(compared, ast.Compare):
        # A method is neither True nor False, and equal to none of them.
        outcome = "true" if isinstance(compared.ops[0], _OTHER) else "false"
        message = (
            f"`{text}` is the method, which is not called: `{module.text(compared)}` is {outcome} however `{base}` "
            "lies in memory."
        )
    elif attribute.attr == _COPY:
        message = f"`{text}` is the method, which is not called: `{base}` stays as it lies in memory."
    else:
        message = f"`{text}` is the method, which is not called: that is true however `{base}` lies in memory."
    return Problem(
        attribute,
        message,
        advice=f"Write `{text}()`.",
        edits=(editing.append(module.source, attribute, "()"),),
    )


def _is_own(module: Module, name: str) -> bool:
    """Whether something in this file has an attribute of that name."""
    fields = (each.target for each in module.nodes(ast.AnnAssign))
    return defines(module, name) or any(isinstance(field, ast.Name) and field.id == name for field in fields)


def _is_value(module: Module, attribute: ast.Attribute) -> bool:
    """Whether what stands there is used as a truth value or a tensor, and not as something to call."""
    below: ast.expr = attribute
    parent = module.parent(attribute)
    while isinstance(parent, (ast.BoolOp, ast.IfExp)) or (
        isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    ):
        if isinstance(parent, ast.UnaryOp) or (isinstance(parent, ast.IfExp) and parent.test is below):
            return True
        below, parent = parent, module.parent(parent)
    match parent:
        case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test):
            return test is below
        case ast.comprehension(ifs=conditions):
            return any(condition is below for condition in conditions)
        case ast.GeneratorExp() | ast.ListComp():
            return attribute.attr == _CHECK
        case ast.List() | ast.Tuple() | ast.Set():
            call = module.parent(parent)
            return attribute.attr == _CHECK and isinstance(call, ast.Call) and _tests_each(call)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, (*_SAME, *_OTHER)):
            other = right if left is below else left
            return below is attribute and isinstance(other, ast.Constant) and isinstance(other.value, bool)
        case ast.Expr() | ast.Return() | ast.BinOp():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            itself = isinstance(attribute.value, ast.Name) and attribute.value.id == name
            return itself or not _is_called(module, attribute, name)
        case ast.Call():
            return _takes_values(module, parent)
    return False


def _is_called(module: Module, attribute: ast.Attribute, name: str) -> bool:
    """Whether the name that the method is bound to is called, or handed on."""
    return any(
        isinstance(node, ast.Call)
        and any(isinstance(each, ast.Name) and each.id == name for each in (node.func, *node.args))
        and module.name(node.func) not in FUNCTIONS
        for node in ast.walk(module.scope(attribute))
    )


def _tests_each(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("all", "any")


def _takes_values(module: Module, call: ast.Call) -> bool:
    """Whether a function shows its arguments, or tests them, or works on tensors."""
    full = module.name(call.func)
    if full is not None:
        return full in FUNCTIONS or full == _ASSERT
    if isinstance(call.func, ast.Name):
        return call.func.id in _SHOW_OR_TEST
    return isinstance(call.func, ast.Attribute) and (call.func.attr in _SHOW_OR_TEST or call.func.attr in METHODS)


def _is_of_tensor(module: Module, attribute: ast.Attribute) -> bool:
    """Whether it is asked of a tensor: something known as one, or asked for what a tensor has."""
    base = attribute.value
    if module.name(attribute) is not None or (isinstance(base, ast.Name) and base.id in ("self", "cls")):
        return False
    value = module.value(base)
    if is_tensor(module, value):
        return True
    if value.kind == "other" or is_array(module, value):
        return False
    asked = asked_of(module.scope(attribute), base) - {*WORDS}
    if attribute.attr == _COPY and asked & _TENSOR_ATTRIBUTES <= _MEMORYVIEWS and not _is_by_name(module, attribute):
        return False
    if asked:
        return bool(asked & _TENSOR_ATTRIBUTES)
    if isinstance(base, ast.Subscript):
        return isinstance(base.value, ast.Name) and is_tensor_name(base.value.id)
    return isinstance(base, ast.Name) and _is_handed(module, base)


def _is_by_name(module: Module, attribute: ast.Attribute) -> bool:
    """Whether the name tells a tensor, or that the result is meant to take its place."""
    statement, base = module.parent(attribute), module.text(attribute.value)
    is_itself = isinstance(statement, ast.Assign) and [module.text(each) for each in statement.targets] == [base]
    return is_itself or is_tensor_name(base.rpartition(".")[2].partition("[")[0])


def _is_handed(module: Module, name: ast.Name) -> bool:
    """Whether a name is a function's parameter, or one of several tensors, of which nothing else is asked."""
    scope = module.scope(name)
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    if any(each.arg == name.id for each in ast.walk(scope.args) if isinstance(each, ast.arg)):
        return True
    loops = (node for node in ast.walk(scope) if isinstance(node, (ast.For, ast.comprehension)))
    return any(
        isinstance(loop.target, ast.Name)
        and loop.target.id == name.id
        and (isinstance(loop.iter, (ast.Tuple, ast.List)) or _are_tensors(scope, name.id, loop.iter))
        for loop in loops
    )


def _are_tensors(scope: ast.FunctionDef | ast.AsyncFunctionDef, name: str, several: ast.expr) -> bool:
    """Whether what a loop goes over are tensors, by the name of each, or of all, or by an annotation."""
    if not isinstance(several, ast.Name):
        return is_tensor_name(name)
    hints = [each.annotation for each in ast.walk(scope.args) if isinstance(each, ast.arg) and each.arg == several.id]
    is_hinted = any(hint is not None and "Tensor" in ast.unparse(hint) for hint in hints)
    return is_tensor_name(name) or is_tensor_name(several.id) or is_hinted
