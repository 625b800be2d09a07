"""What the sizes that a view is given stand for: `n, c, h, w = x.shape` names the dimensions of a tensor."""

import ast
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property

from stridewise.source.file import Function


def view_sizes(call: ast.Call) -> Sequence[ast.expr] | None:
    """The sizes that `x.view(…)` is given; None if they are not all written there, or it is given a dtype."""
    sizes: Sequence[ast.expr] = call.args
    if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
        sizes = sizes[0].elts
    elif len(sizes) == 1 and not is_rest(sizes[0]):
        return None
    if call.keywords or any(isinstance(size, ast.Starred) for size in sizes):
        return None
    return sizes


def is_rest(size: ast.expr) -> bool:
    """Whether a size is -1: what is left."""
    return isinstance(size, ast.UnaryOp) and isinstance(size.op, ast.USub) and _number(size.operand) == 1


def is_product(size: ast.expr) -> bool:
    """Whether a size is a product of two or more, none of them 1."""
    return isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult) and 1 not in map(_number, factors(size))


def factors(size: ast.expr) -> list[ast.expr]:
    """The factors of a product; of what is none, itself."""
    if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult):
        return factors(size.left) + factors(size.right)
    return [size]


def dimension(node: ast.expr, rank: int) -> int | None:
    """Which dimension of a tensor of a rank a number such as -1 is; None for what is not written as one."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    at = _number(node)
    return sign * at % rank if isinstance(at, int) and -rank <= sign * at < rank else None


def spelling(size: ast.expr) -> object:
    """What two spellings of a size have in common: `embed_dim` of `self.embed_dim` and `config.embed_dim`."""
    if isinstance(size, ast.Attribute):
        return size.attr
    return size.id if isinstance(size, ast.Name) else ast.dump(size)


class Sizes:
    """The names that sizes of tensors have in one function."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def dimensions(self, size: ast.expr, rank: int) -> set[int]:
        """Which dimensions of a tensor of a rank a size is a product of, as far as names tell: `c * h` is {1, 2}."""
        return {at for factor in factors(size) if (at := self._dimension(factor, rank)) is not None}

    def _dimension(self, size: ast.expr, rank: int) -> int | None:
        match size:
            case ast.Name(id=name):
                at, of = self._named.get(name, (0, 0))
                return at if of == rank else None
            case (
                ast.Call(func=ast.Attribute(attr="size"), args=[index])
                | ast.Subscript(value=ast.Attribute(attr="shape"), slice=index)
            ):
                return dimension(index, rank)
        return None

    @cached_property
    def _named(self) -> dict[str, tuple[int, int]]:
        """By name: which dimension it is, and of how many. Names that are also bound to anything else are left out."""
        meant: dict[str, set[tuple[int, int]]] = defaultdict(set)
        told: Counter[str] = Counter()
        bound: Counter[str] = Counter()
        for node in ast.walk(self._function):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound[node.id] += 1
            if not isinstance(node, ast.Assign):
                continue
            for names in (_shape_names(target, node.value) for target in node.targets):
                told.update(name for name in names if name != "_")
                for at, name in enumerate(names):
                    meant[name].add((at, len(names)))
        sure = [name for name, where in meant.items() if len(where) == 1 and bound[name] == told[name]]
        return {name: next(iter(meant[name])) for name in sure}


def _shape_names(target: ast.expr, value: ast.expr) -> list[str]:
    """The names that `n, c, h, w = x.shape` gives to the sizes of a tensor."""
    is_shape = (isinstance(value, ast.Attribute) and value.attr == "shape") or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "size"
    )
    if not is_shape or not isinstance(target, (ast.Tuple, ast.List)):
        return []
    names = [each.id for each in target.elts if isinstance(each, ast.Name)]
    return names if len(names) == len(target.elts) else []


def _number(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None
