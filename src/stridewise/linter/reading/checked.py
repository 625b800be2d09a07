"""Where an error is wanted, or caught: what raises there is not in the way of what the program is for."""

import ast
from collections.abc import Iterable

from stridewise.linter.module import Module

_CHECKS = (
    *("raises", "assertRaises", "assertRaisesRegex", "assert_raises", "assert_raises_regex"),
    *("warns", "assertWarns", "assertWarnsRegex"),
)
_EXPECTS = ("xfail", "expectedFailure")
"""Decorators of tests that are to fail."""
_BLOCKS = (ast.With, ast.AsyncWith)


def is_error_wanted(module: Module, node: ast.AST) -> bool:
    """Whether something stands in a check that it raises or warns: in its block, its lambda, or a test that must fail."""
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
        if isinstance(above, (ast.Try, ast.TryStar)) and above.handlers and below in above.body:
            return True
        if isinstance(above, _BLOCKS) and calls(above.items, ("suppress",)):
            return True
        below = above
    return False


def calls(parts: Iterable[ast.AST], names: tuple[str, ...]) -> bool:
    """Whether a function of one of these last names is called in some nodes."""
    return any(
        isinstance(node, ast.Call) and last_name(node.func) in names for part in parts for node in ast.walk(part)
    )


def last_name(node: ast.expr) -> str | None:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
