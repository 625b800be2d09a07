"""SW309 strided-state: a parameter or a buffer is a transposed or expanded view.

What it means
    `register_buffer`, `nn.Buffer`, `nn.Parameter` or `.data =` gets a view such as `w.t()` or `v.expand(n, -1)`, and
    the module keeps that layout for good. `clone()` and `to()` keep a transposed layout too.

Why it happens
    A weight is taken over from a layer that stores it the other way around, or one row is repeated to save memory.

    An expanded parameter has fewer elements in memory than it shows: `optimizer.step()` raises, and with `fused=True`
    updates each element several times; `load_state_dict` raises for parameters and buffers; writing one element changes
    all of its repetitions. A transposed one works in eager code, and costs later: `safetensors` refuses to save it,
    `parameters_to_vector` and `LBFGS` raise, a fused optimizer on the CPU gives wrong values if the gradient has other
    strides, and every matrix product reads it the slow way if it was the other that was meant.

How to fix it
    `.contiguous()` on the view before it is kept. The tensor then no longer shares memory with what it was made of, so
    the fix is not made unasked.

When to ignore it
    Where the sharing is meant (a tied transposed weight), or the layout is what a kernel wants and nothing saves it.
    Not reported are a buffer with `persistent=False`, which nothing loads or saves, and a transposed weight with
    `requires_grad=False`, which was turned around for a kernel.
"""

import ast
from collections.abc import Iterator
from typing import Literal, NamedTuple

from stridewise.linter.facts.value import UNKNOWN, Value
from stridewise.linter.module import Module
from stridewise.linter.reading.expansion import EXPANSIONS, flat, is_one, is_whole, repeats_nothing, sizes_in
from stridewise.linter.rule import Fires, Problem
from stridewise.source import edits

SEVERITY = "warning"
WORDS = ("register_buffer", "Buffer", "Parameter", "data")

FIRES = (
    Fires(
        """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("scale", torch.arange(3.0).expand(n, -1))

def program():
    module = Scale(2)
    module.load_state_dict({"scale": torch.ones(2, 3)})
    return module
""",
        fixed="""
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("scale", torch.arange(3.0).expand(n, -1).contiguous())

def program():
    module = Scale(2)
    module.load_state_dict({"scale": torch.ones(2, 3)})
    return module
""",
    ),
    Fires(
        """
import torch
from torch import nn

def program():
    other = nn.Linear(3, 2)
    weight = other.weight.detach().t().clone()
    parameter = nn.Parameter(weight)
    return nn.utils.parameters_to_vector([parameter])
""",
        fixed="""
import torch
from torch import nn

def program():
    other = nn.Linear(3, 2)
    weight = other.weight.detach().t().clone()
    parameter = nn.Parameter(weight.contiguous())
    return nn.utils.parameters_to_vector([parameter])
""",
    ),
    Fires(
        """
import torch
from torch import nn

def program():
    layer, other = nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
    layer.weight.data = other.weight.data.T
    return nn.utils.parameters_to_vector(layer.parameters())
""",
        fixed="""
import torch
from torch import nn

def program():
    layer, other = nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
    layer.weight.data = other.weight.data.T.contiguous()
    return nn.utils.parameters_to_vector(layer.parameters())
""",
    ),
    Fires(
        """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Buffer(torch.arange(3.0).expand(n, -1))

def program():
    module = Scale(2)
    module.load_state_dict({"scale": torch.ones(2, 3)})
    return module
""",
        fixed="""
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Buffer(torch.arange(3.0).expand(n, -1).contiguous())

def program():
    module = Scale(2)
    module.load_state_dict({"scale": torch.ones(2, 3)})
    return module
""",
    ),
)
QUIET = (
    """
import torch
from torch import nn

class Positions(nn.Module):
    def __init__(self, n, rows):
        super().__init__()
        self.register_buffer("position_ids", torch.arange(n).expand((1, -1)))
        self.register_buffer("mask", torch.ones(n).expand(rows, -1), persistent=False)
        self.other = nn.Buffer(torch.ones(n).expand(rows, -1), persistent=False)
        self.register_buffer("encoding", torch.zeros(n, 4).unsqueeze(0).transpose(0, 1))
        self.register_buffer("causal", torch.ones(n, n).tril().expand(1, 1, n, n))
        self.frozen = nn.Parameter(torch.ones(n, rows).t(), requires_grad=False)
        self.placeholder = nn.Parameter(torch.zeros(()).expand(rows, n), requires_grad=False)
        self.register_buffer("rows", torch.arange(n).expand(rows, -1).clone())
        self.weight = nn.Parameter(torch.randn(n, rows).t().contiguous())

class Images:
    def __init__(self, data):
        self.data = data.transpose((0, 2, 3, 1))

def program():
    layer = nn.Linear(3, 2)
    layer.weight.data = layer.weight.data.T
    layer.weight.data = layer.weight.data.T
    return Positions(3, 2), layer
""",
)

_TRANSPOSING = ("t", "transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "adjoint")
_KEEPING = ("detach", "requires_grad_", "clone", "to", "float", "half", "double", "bfloat16", "cpu", "cuda", "type_as")
"""Methods whose result lies as the tensor does, as far as a transposed one goes."""
_KEEPING_EXPANSION = ("detach", "requires_grad_", "cpu", "cuda")
_WITH_SIZES = ("unsqueeze", "view", "reshape", "zeros", "ones", "empty", "rand", "randn", "full")


class _Strided(NamedTuple):
    how: Literal["transposed", "expanded"]
    node: ast.expr


def check(module: Module) -> Iterator[Problem]:
    """What is kept as parameters and buffers."""
    for kept in (*_buffers(module), *_parameters(module), *_data(module)):
        found = _strided(module, kept.value, module.value(kept.value))
        if found is None or _is_meant(kept, found):
            continue
        role = "parameter" if kept.role == "parameter" else "buffer"
        where = "" if found.node is kept.value else f" (`{module.text(found.node)}`)"
        yield Problem(
            kept.value,
            f"{kept.what} is {'an' if found.how == 'expanded' else 'a'} {found.how} view{where}: "
            + _FAULTS[role, found.how],
            advice="Keep its `.contiguous()`, unless the memory is meant to be shared.",
            severity="error" if found.how == "expanded" and kept.role == "parameter" else None,
            edits=(edits.append(module.source, kept.value, ".contiguous()"),),
            origin=None if found.node is kept.value else found.node,
        )


_FAULTS = {
    ("parameter", "expanded"): "several of its elements are one in memory, so that optimizers and `load_state_dict` "
    "raise, and writing one of them changes others.",
    ("parameter", "transposed"): "safetensors refuses to save it, `parameters_to_vector` and LBFGS raise, and fused "
    "optimizers are wrong for a gradient with other strides.",
    ("buffer", "expanded"): "several of its elements are one in memory, so that `load_state_dict` raises, and writing "
    "one of them changes others.",
    ("buffer", "transposed"): "safetensors refuses to save it, and `.view(-1)` of it raises.",
}


class _Kept(NamedTuple):
    what: str
    value: ast.expr
    role: Literal["buffer", "parameter", "frozen"]
    """`frozen` is a parameter without a gradient."""


def _buffers(module: Module) -> Iterator[_Kept]:
    for call in module.calls("register_buffer", "Buffer"):
        registers = isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer"
        if not registers and module.name(call.func) != "torch.nn.Buffer":
            continue
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        at, name = (1, "tensor") if registers else (0, "data")
        value = call.args[at] if len(call.args) > at else keywords.get(name)
        persistent = call.args[2] if len(call.args) > 2 else keywords.get("persistent")
        if value is not None and (persistent is None or getattr(persistent, "value", None) is True):
            yield _Kept("The buffer", value, "buffer")


def _parameters(module: Module) -> Iterator[_Kept]:
    for call in module.calls("Parameter"):
        if module.name(call.func) == "torch.nn.Parameter":
            keywords = {keyword.arg: keyword.value for keyword in call.keywords}
            value = call.args[0] if call.args else keywords.get("data")
            if value is not None:
                given = keywords.get("requires_grad") or (call.args[1] if len(call.args) > 1 else None)
                frozen = isinstance(given, ast.Constant) and given.value is False
                yield _Kept("The parameter", value, "frozen" if frozen else "parameter")


def _data(module: Module) -> Iterator[_Kept]:
    """Assignments to `.data` of a tensor; two of the same that turn a tensor around and back are none."""
    found: dict[str, list[_Kept]] = {}
    for attribute in module.attributes("data"):
        statement = module.parent(attribute)
        if not isinstance(statement, ast.Assign) or statement.targets != [attribute]:
            continue
        if isinstance(attribute.value, ast.Name) and attribute.value.id in ("self", "cls"):
            continue  # a data set's own
        what = f"`{module.text(attribute)}`"
        function = module.function(statement)
        key = f"{id(function)} {module.text(statement)}"
        found.setdefault(key, []).append(_Kept(what, statement.value, "parameter"))
    for several in found.values():
        if len(several) == 1:
            yield several[0]


def _strided(module: Module, node: ast.expr, value: Value) -> _Strided | None:
    """The transpose or the expand that an expression's layout comes from, if it surely is one."""
    below = value.of or UNKNOWN
    match node:
        case ast.Name():
            made_by = value.node
            return None if made_by is None or made_by is node else _strided(module, made_by, value)
        case ast.Attribute(value=base, attr="data"):
            return _strided(module, base, below)
        case ast.Attribute(value=base, attr="T" | "mT"):
            return _transposed(module, node, base, below)
        case ast.Call(func=ast.Attribute(value=base, attr=name)):
            pass
        case _:
            return None
    called = module.name(node.func)
    if called is not None:
        if not called.startswith("torch.") or not node.args:
            return None
        base, method_arguments = node.args[0], node.args[1:]
    else:
        method_arguments = node.args
    if name in _TRANSPOSING:
        return _transposed(module, node, base, below) if _is_torch_call(name, method_arguments) else None
    if name in EXPANSIONS:
        made_by = value.of.node if isinstance(base, ast.Name) and value.of is not None else None
        sizes = sizes_in(module, made_by or base)
        is_plain = repeats_nothing(module, method_arguments, sizes) or (value.node is node and is_whole(module, value))
        return None if is_plain else _Strided("expanded", node)
    if name not in _KEEPING or called is not None or any(each.arg == "memory_format" for each in node.keywords):
        return None
    found = _strided(module, base, below)
    return None if found is not None and found.how == "expanded" and name not in _KEEPING_EXPANSION else found


def _is_meant(kept: _Kept, found: _Strided) -> bool:
    """Whether a layout is surely wanted: a frozen weight turned for a kernel, a shape that needs no memory."""
    if kept.role == "parameter":
        return False
    return (kept.role == "frozen" and found.how == "transposed") or _is_placeholder(found.node)


def _is_placeholder(node: ast.expr) -> bool:
    """Whether a single number is expanded: something that has a shape and needs no memory."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(args=[ast.Tuple(elts=[]), *_]))):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Attribute(attr="tensor"), args=[ast.Constant(), *_]))):
            return True
    return False


def _transposed(module: Module, node: ast.expr, base: ast.expr, value: Value) -> _Strided | None:
    """A transpose, unless it turns another one back, or moves a dimension of size 1."""
    if value.kind == "array" or _strided(module, base, value) is not None:
        return None
    below: ast.expr | None = value.node if isinstance(base, ast.Name) else base
    match below:
        case ast.Call(args=given) if _name_of(below) in _WITH_SIZES:
            if _name_of(below) == "unsqueeze" or any(is_one(size) for size in flat(given)):
                return None
        case ast.Subscript():
            return None
    return _Strided("transposed", node)


def _is_torch_call(name: str, given: list[ast.expr]) -> bool:
    """Whether a transpose is called as a tensor's: numpy's takes all axes, or none."""
    return name != "transpose" or len(given) == 2


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
