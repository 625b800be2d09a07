"""Where an error is wanted, or caught: what raises there is not in the way of what the program is for."""

import ast
from collections.abc import Iterable

from stridewise.linter.module import Module
from stridewise.linter.names import last_name

_CHECKS = (
    *("raises", "assertRaises", "assertRaisesRegex", "assert_raises", "assert_raises_regex"),
    *("warns", "assertWarns", "assertWarnsRegex"),
)
_EXPECTS = ("xfail", "expectedFailure")
"""Decorators of tests that are to fail."""
_BLOCKS = (ast.With, ast.AsyncWith)
_TRIES = (ast.Try, ast.TryStar)


def is_error_wanted(module: Module, node: ast.AST) -> bool:
    """Whether something stands in a check that it raises or warns: its block, its lambda, or a test that must fail."""
    for above in module.above(node):
        if isinstance(above, _BLOCKS) and calls(above.items, _CHECKS):
            return True
        if isinstance(above, ast.Call) and last_name(above.func) in _CHECKS:
            return True
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
            last_name(each.func if isinstance(each, ast.Call) else each) in _EXPECTS for each in above.decorator_list
        ):
            return True
    return False


def is_error_caught(module: Module, node: ast.AST) -> bool:
    """Whether the function that something stands in catches errors there."""
    below = node
    for above in module.above(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if _suppresses(above) or (isinstance(above, _TRIES) and above.handlers and below in above.body):
            return True
        below = above
    return False


def is_tried(module: Module, statement: ast.stmt) -> bool:
    """Whether it stands where errors are caught, and what follows there only says that there was none."""
    block = module.parent(statement)
    if isinstance(block, _TRIES) and block.handlers and statement in block.body:
        return all(map(_is_verdict, block.body[block.body.index(statement) + 1 :]))
    return any(map(_suppresses, module.above(statement)))


def _suppresses(node: ast.AST) -> bool:
    return isinstance(node, _BLOCKS) and calls(node.items, ("suppress",))


def _is_verdict(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Return(value=None | ast.Constant()) | ast.Assign(value=ast.Constant()):
            return True
    return False


def calls(parts: Iterable[ast.AST], names: tuple[str, ...]) -> bool:
    """Whether a function of one of these last names is called in some nodes."""
    return any(
        isinstance(node, ast.Call) and last_name(node.func) in names for part in parts for node in ast.walk(part)
    )
