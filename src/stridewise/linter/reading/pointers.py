"""Where addresses and tensors of a function go: to kernels that see no strides, or nowhere that matters."""

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from stridewise.linter.module import Module, Scope
from stridewise.linter.names import last_name
from stridewise.source.file import Function

_ONLY_LOOK = frozenset(
    (
        "print",
        "hash",
        "id",
        "str",
        "repr",
        "hex",
        "format",
        "isinstance",
        "len",
        "min",
        "max",
        "sorted",
        "set",
        "frozenset",
        "bool",
        "type",
        "get",
        "setdefault",
        "pop",
        "add",
        "discard",
        "remove",
        "index",
        "count",
        "equal",
        "debug",
        "info",
        "warning",
        "error",
        "exception",
        "log",
    )
)
"""Calls that take an address as a number: to show or compare it, or as the name of a tensor."""
_ONE_ITEM = frozenset(("add", "discard", "remove", "count"))
"""Those of them that take one thing where they are a set's or a list's: with more it is `lib.add(a, b, n)`."""
CONVERSIONS = frozenset(
    (
        "int",
        "cast",
        "c_void_p",
        "c_size_t",
        "c_uint64",
        "c_int64",
        "c_ulonglong",
        "c_longlong",
        "c_ulong",
        "c_long",
        "uint64",
        "int64",
        "uintp",
        "intp",
    )
)
_COLLECT = frozenset(("append", "extend", "insert"))
_KEEPS_LOOKS = frozenset(
    (
        "shape",
        "dtype",
        "device",
        "ndim",
        "size",
        "numel",
        "nelement",
        "dim",
        "element_size",
        "itemsize",
        "nbytes",
        "data_ptr",
        "requires_grad",
        "is_cuda",
        "get_device",
        "is_floating_point",
        "new_empty",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_tensor",
        "item",
    )
)
"""Attributes of a tensor by which nothing is learned of its strides."""
_LOOKS = frozenset(("stride", "strides", "is_contiguous", "contiguous"))
_PLAIN_CALLS = frozenset(("isinstance", "len", "type", "print", "id", "save_for_backward", "mark_dirty"))
_PLAIN_DECORATORS = frozenset(
    (
        "staticmethod",
        "classmethod",
        "property",
        "override",
        "no_grad",
        "inference_mode",
        "enable_grad",
        "once_differentiable",
        "custom_fwd",
        "custom_bwd",
        "amp_custom_fwd",
        "amp_custom_bwd",
        "custom_op",
        "triton_op",
        "register_fake",
        "register_kernel",
    )
)
"""Decorators that hand arguments on as they are."""
_JIT = frozenset(("jit", "autotune", "heuristics"))


class Body:
    """All nodes of a function, also those on lines that a module has no index of."""

    def __init__(self, node: Scope) -> None:
        self.node = node
        self._parents = {child: above for above in ast.walk(node) for child in ast.iter_child_nodes(above)}

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What a node of it stands in."""
        return self._parents.get(node)

    def names(self, name: str) -> Iterator[ast.Name | ast.Subscript]:
        """Where a name is read or bound, or an item of one such as `grads[0]`."""
        return (node for node in self._parents if isinstance(node, (ast.Name, ast.Subscript)) and named(node) == name)

    def calls(self) -> Iterator[ast.Call]:
        """All calls in it."""
        return (node for node in self._parents if isinstance(node, ast.Call))

    def taker(self, node: ast.expr, followed: Collection[str] = ()) -> ast.Call | ast.stmt | None:
        """The call that uses an address, or the statement that keeps it beyond this function.

        None if it is only compared, shown, or used as a name. Local names are followed to what they are handed to.
        """
        parent = self._parents.get(node)
        match parent:
            case ast.Call() if node is not parent.func:
                return self._taking_call(parent, followed)
            case ast.keyword() | ast.Starred() | ast.Tuple() | ast.List() | ast.ListComp() | ast.GeneratorExp():
                return self.taker(parent, followed)  # type: ignore[arg-type]
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return self.taker(parent, followed)
            case ast.IfExp() if node is not parent.test:
                return self.taker(parent, followed)
            case ast.Return():
                return parent
            case ast.NamedExpr(target=target):
                return self.taker(parent, followed) or self._kept([target], parent, followed)
            case ast.Assign(targets=targets):
                return self._kept(targets, parent, followed)
            case ast.AnnAssign(target=target):
                return self._kept([target], parent, followed)
        return None

    def _taking_call(self, call: ast.Call, followed: Collection[str]) -> ast.Call | ast.stmt | None:
        name = last_name(call.func)
        if name.startswith("assert") or (name in _ONLY_LOOK and not (name in _ONE_ITEM and len(arguments(call)) > 1)):
            return None
        if name not in CONVERSIONS:
            return call
        if isinstance(self._parents.get(call), (ast.Attribute, ast.Subscript)):
            return call  # `cast(address, POINTER(c_float))[0]` reads there
        return self.taker(call, followed)

    def _kept(
        self, targets: list[ast.expr], statement: ast.expr | ast.stmt, followed: Collection[str]
    ) -> ast.Call | ast.stmt | None:
        for target in targets:
            names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            for name in names:
                if not isinstance(name, ast.Name):
                    return statement if isinstance(statement, ast.stmt) else None
                if name.id in followed:
                    continue
                for use in self.names(name.id):
                    taker = self.taker(use, (*followed, name.id)) if isinstance(use.ctx, ast.Load) else None
                    if taker is not None:
                        return taker
        return None


def named(node: ast.AST) -> str:
    """The name that a node is, or the item of one by a number: `grads[0]`; nothing of any other."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(at))):
            return f"{name}[{at}]"
    return ""


def _may_be_kernel(call: ast.Call) -> bool:
    """Whether a call may use an address at once: a list and an object, by its class's name, only keep it."""
    name = last_name(call.func)
    return name not in _COLLECT and not name[:1].isupper()


def is_launch(module: Module, call: ast.Call) -> bool:
    """Whether a call is that of a Triton kernel: `kernel[grid](…)`."""
    function = call.func
    if not isinstance(function, ast.Subscript) or b"triton" not in module.source.content:
        return False
    kernel = last_name(function.value)
    grid = function.slice
    if "kernel" in kernel and (isinstance(grid, (ast.Tuple, ast.Lambda)) or "grid" in last_name(grid)):
        return True
    return f"def {kernel}(".encode() in module.source.content and kernel in _kernels(module.source.tree)


def launches(module: Module) -> Iterator[ast.Call]:
    """All launches of Triton kernels, also those on lines that the module has no index of."""
    if b"triton" in module.source.content:
        every = (node for node in ast.walk(module.source.tree) if isinstance(node, ast.Call))
        yield from (call for call in every if is_launch(module, call))


@lru_cache(maxsize=1)
def _kernels(tree: ast.Module) -> frozenset[str]:
    """The names of the kernels that a file defines."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(each.name for each in functions if any(map(_is_jit, each.decorator_list)))


def _is_jit(decorator: ast.expr) -> bool:
    return _decorator_name(decorator) in _JIT


def _decorator_name(decorator: ast.expr) -> str:
    return last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)


def arguments(call: ast.Call) -> list[ast.expr]:
    """What is handed to a call, by place or name."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def listed(names: Sequence[str]) -> str:
    """Names for a message: `x`, `y` and `z`."""
    *first, last = [f"`{name}`" for name in names]
    return f"{', '.join(first)} and {last}" if first else last


def parameters(function: Function) -> list[str]:
    """The names of a function's parameters, but `self`, `cls` and those that take any number."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [each.arg for each in every if each.arg not in ("self", "cls")]


def looks_at_strides(module: Module, body: Body, name: str, but: Collection[ast.expr] = ()) -> bool:
    """Whether a function may learn how an argument lies, or binds its name anew; uses in `but` are not looked at.

    Any use does but for those that surely tell nothing: its shape, its address, a kernel's launch, torch's functions.
    """
    return any(use not in but and not _tells_nothing(module, body, use) for use in body.names(name))


def items(body: Body) -> dict[str, list[ast.expr]]:
    """What a function calls single ones of its `*args`, `x` of `x, y = args` or `args[0]`, and where it binds them.

    Empty if it uses them in any other way: it may look at all of them there.
    """
    several = body.node.args.vararg if isinstance(body.node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    if several is None:
        return {}
    found: dict[str, list[ast.expr]] = {}
    for use in body.names(several.arg):
        above = body.parent(use)
        match above:
            case ast.Assign(targets=[ast.Tuple(elts=bound) | ast.List(elts=bound)]) if all(map(named, bound)):
                pass
            case ast.Subscript() if named(above):
                statement = body.parent(above)
                if isinstance(statement, ast.Attribute) and statement.attr not in _KEEPS_LOOKS:
                    return {}
                is_bound = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
                bound = statement.targets if is_bound else []  # type: ignore[union-attr]
                found.setdefault(named(above), [])
            case ast.Call(func=ast.Name(id="len")):
                continue
            case _:
                return {}
        for target in bound:
            found.setdefault(named(target), []).append(target)
    return found


def _tells_nothing(module: Module, body: Body, use: ast.Name | ast.Subscript) -> bool:
    if not isinstance(use.ctx, ast.Load):
        return False
    parent = body.parent(use)
    if isinstance(parent, ast.keyword):
        parent = body.parent(parent)
    match parent:
        case ast.Attribute(attr=attribute):
            return attribute in _KEEPS_LOOKS
        case ast.Call():
            called = module.name(parent.func) or ""
            last = last_name(parent.func)
            if called.startswith("torch.") and not called.startswith("torch.ops."):
                return "assert" not in last and "check" not in last
            return last in _PLAIN_CALLS or is_launch(module, parent)
        case ast.Compare() | ast.BinOp() | ast.Return() | ast.If() | ast.BoolOp() | ast.UnaryOp():
            return True
        case ast.Tuple():
            return isinstance(body.parent(parent), ast.Return)
    return False


def is_wrapped(function: Function) -> bool:
    """Whether a decorator may change or check a function's arguments."""
    return any(_decorator_name(decorator) not in _PLAIN_DECORATORS for decorator in function.decorator_list)


def is_guarded_elsewhere(module: Module, function: Function) -> bool:
    """Whether something that calls a function in its module, or calls what calls it, may look at strides before."""
    waiting, seen = [function], {function}
    every = [node for node in ast.walk(module.source.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    while waiting:
        called = waiting.pop()
        for other in every:
            if other in seen or not any(_means(module, node, called) for node in ast.walk(other)):
                continue
            if is_wrapped(other) or mentions_strides(other):
                return True
            seen.add(other)
            waiting.append(other)
    return False


def mentions_strides(function: Function) -> bool:
    """Whether a function asks any tensor how it lies, or makes one contiguous."""
    return any(isinstance(node, ast.Attribute) and node.attr in _LOOKS for node in ast.walk(function))


def _means(module: Module, node: ast.AST, function: Function) -> bool:
    """Whether a node names a function; the parts of an autograd function by the name of its class."""
    owner = module.class_of(function)
    if owner is not None and function.name not in ("forward", "backward"):
        return last_name(node) == function.name
    # Of a function that is no method the bare name: `lib.square` in a wrapper `square` is what it wraps.
    return isinstance(node, ast.Name) and node.id == (owner.name if owner is not None else function.name)


def is_autograd_function(module: Module, owner: ast.ClassDef | None) -> bool:
    """Whether a class is a `torch.autograd.Function`."""
    return owner is not None and any(
        (module.name(base) or "").startswith("torch.autograd.") and last_name(base).endswith("Function")
        for base in owner.bases
    )


def blind_kernels(module: Module, body: Body, names: Collection[str]) -> dict[ast.Call, list[str]]:
    """Calls that get the address of one of some names, or launch a kernel on it, and which of them each gets."""
    found: dict[ast.Call, list[str]] = {}
    for call in body.calls():
        taken: list[tuple[ast.Call, str]] = []
        match call.func:
            case ast.Attribute(attr="data_ptr", value=tensor) if named(tensor) in names:
                taker = body.taker(call)
                if isinstance(taker, ast.Call) and _may_be_kernel(taker):
                    taken.append((taker, named(tensor)))
            case ast.Subscript() if is_launch(module, call):
                handed = [named(each) for each in arguments(call)]
                taken += [(call, name) for name in handed if name in names and _is_tensor(body, name)]
        for kernel, name in taken:
            if name not in found.setdefault(kernel, []):
                found[kernel].append(name)
    return found


def _is_tensor(body: Body, name: str) -> bool:
    """Whether a function treats a parameter as a tensor, or says that it is one."""
    if isinstance(body.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        every = [*body.node.args.posonlyargs, *body.node.args.args, *body.node.args.kwonlyargs]
        for each in every:
            if each.arg == name and each.annotation is not None:
                return "Tensor" in ast.unparse(each.annotation)
    for use in body.names(name):
        parent = body.parent(use)
        if isinstance(parent, ast.Attribute) and parent.attr in _KEEPS_LOOKS:
            return True
        if isinstance(parent, ast.Call) and last_name(parent.func).endswith("_like"):
            return True
    return False
