"""What the sizes in a `reshape` are: dimensions of some tensor, as far as the text of a function tells."""

import ast

from stridewise.repair.reading.applied import integer
from stridewise.source.file import SourceFile


def dimension(file: SourceFile, size: ast.expr, tensor: ast.expr, ndim: int) -> int | None:
    """Which dimension of a tensor, given by its name, an expression certainly is; None if that can't be told.

    It knows `x.shape[0]`, `x.size(0)`, and names that only `b, n, c = x.shape` or `n = x.size(1)` gives a value, where
    `x` still is the same tensor.
    """
    if not isinstance(tensor, ast.Name):
        return None
    direct = _of(size, tensor.id, ndim)
    if direct is not None or not isinstance(size, ast.Name):
        return direct
    function = file.function(size)
    if function is None:
        return None
    stores = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    bound = [node for node in stores if node.id == size.id]
    if len(bound) != 1 or any(arg.arg == size.id for arg in ast.walk(function) if isinstance(arg, ast.arg)):
        return None
    statement = file.statement(bound[0])
    between = [node for node in stores if node.id == tensor.id and statement.lineno <= node.lineno <= size.lineno]
    same_turn = file.loops(statement) == file.loops(size)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not same_turn:
        return None
    if any(file.statement(node) is not file.statement(size) for node in between):
        return None
    target, value = statement.targets[0], statement.value
    if target is bound[0]:
        return _of(value, tensor.id, ndim)
    if not isinstance(target, ast.Tuple) or any(isinstance(each, ast.Starred) for each in target.elts):
        return None
    place = next((at for at, each in enumerate(target.elts) if each is bound[0]), None)
    if place is None:
        return None
    if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        return _of(value.elts[place], tensor.id, ndim)
    return place if _is_shape(value, tensor.id) and len(target.elts) == ndim else None


def _of(size: ast.expr, tensor: str, ndim: int) -> int | None:
    """The dimension that `x.shape[i]` or `x.size(i)` names."""
    at: int | None = None
    if isinstance(size, ast.Subscript) and _is_shape(size.value, tensor):
        at = integer(size.slice)
    elif isinstance(size, ast.Call) and len(size.args) == 1 and not size.keywords and _is_size(size.func, tensor):
        at = integer(size.args[0])
    return None if at is None or not -ndim <= at < ndim else at % ndim


def _is_shape(node: ast.expr, tensor: str) -> bool:
    """`x.shape` or `x.size()`."""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        return _is_size(node.func, tensor)
    return isinstance(node, ast.Attribute) and node.attr == "shape" and _is_name(node.value, tensor)


def _is_size(node: ast.expr, tensor: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "size" and _is_name(node.value, tensor)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
