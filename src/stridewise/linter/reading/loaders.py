"""What a loop takes from a data loader: tensors, or something that holds them, and never modules."""

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stridewise.linter.names import last_name
from stridewise.linter.reading.tensors import is_tensor_name

if TYPE_CHECKING:
    from stridewise.linter.module import Module

_LOADER = re.compile(r"(?:.*_)?(?:data|train|test|val|valid|eval)?_?(?:loaders?|batches|dl)\d*", re.IGNORECASE)
_OF_OTHERS = re.compile(r"model|module|plugin|class|weight|checkpoint|config", re.IGNORECASE)
"""Loaders of something else."""
_AROUND = ("enumerate", "tqdm", "islice", "track", "prepare", "iter")
"""Functions that give what they are given, as a loop sees it."""
_HOLDER = re.compile(r"batch|graph|encod|model|module|net|layer", re.IGNORECASE)
"""What may hold tensors, and move them in place: `BatchEncoding.to` of transformers does."""
_HOLDERS = ("input", "inputs", "feature", "features", "output", "outputs", "target", "targets")
"""More such names, where a loop has but one."""


def is_from_loader(module: "Module", node: ast.expr) -> bool:
    """Whether an expression is surely a tensor that a `for` around it takes from a data loader."""
    name = node.value if isinstance(node, ast.Subscript) else node
    if not isinstance(name, ast.Name):
        return False
    for above in module.above(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(above, (ast.For, ast.AsyncFor)):
            target = _batch(above)
            if target is not None and name.id in {each.id for each in _names(target)}:
                alone = isinstance(target, ast.Name)
                return not _is_bound_before(above, name) and _is_tensor(node, name.id, alone)
    return False


def _is_tensor(node: ast.expr, name: str, alone: bool) -> bool:
    """Whether a part of a batch by that name, or an element of it, is a tensor."""
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return isinstance(key, int) or (isinstance(key, str) and _HOLDER.search(key) is None)
    if alone:
        return is_tensor_name(name) and name not in _HOLDERS
    return _HOLDER.search(name) is None


def _batch(loop: ast.For | ast.AsyncFor) -> ast.expr | None:
    """The target that stands for a batch, if the loop is over a data loader."""
    source, target = loop.iter, loop.target
    while True:
        match source:
            case ast.Call(args=[first, *_]) if last_name(source.func) in _AROUND:
                if last_name(source.func) == "enumerate":
                    if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                        return None
                    target = target.elts[1]
                source = first
            case ast.Call(func=function):
                source = function
            case ast.Subscript(value=value):
                source = value
            case _:
                name = last_name(source)
                return target if _LOADER.fullmatch(name) and not _OF_OTHERS.search(name) else None


def _names(target: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(target) if isinstance(node, ast.Name))


def _is_bound_before(loop: ast.For | ast.AsyncFor, name: ast.Name) -> bool:
    """Whether the loop's body binds the name to something else before it comes to it."""
    return any(
        node.id == name.id
        and isinstance(node.ctx, ast.Store)
        and (node.lineno, node.col_offset) < (name.lineno, name.col_offset)
        for statement in loop.body
        for node in _names(statement)
    )
