"""Calls of tensor functions as one shape, however they are written: `x.t()`, `torch.t(x)`, `x.T`, `x @ y`."""

import ast
from collections.abc import Mapping

from msgspec import Struct

from stridewise.repair.reading.imported import Names
from stridewise.source.file import SourceFile

_PROPERTIES = frozenset({"T", "mT"})
_HOMES = ("torch", "torch.Tensor", "torch.nn.functional")


class Applied(Struct, frozen=True):
    """A function of a tensor, with its other arguments."""

    node: ast.expr
    name: str
    """Its short name, such as `transpose`."""
    subject: ast.expr
    """The tensor that it is applied to."""
    args: tuple[ast.expr, ...] = ()
    """The positional arguments behind that."""
    keywords: Mapping[str, ast.expr] = {}
    is_method: bool = False
    """Written behind its subject, with a dot."""

    def argument(self, place: int, name: str) -> ast.expr | None:
        """An argument by its place behind the subject or by its name."""
        return self.args[place] if place < len(self.args) else self.keywords.get(name)

    def has_only(self, args: int, *keywords: str) -> bool:
        """Whether there are no more than so many positional arguments, and only these keywords."""
        return len(self.args) <= args and set(self.keywords) <= set(keywords)


def applied(node: ast.AST | None, names: Names) -> Applied | None:
    """What an expression applies to a tensor, as far as its text tells."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return Applied(node, "matmul", node.left, (node.right,))
    if isinstance(node, ast.Attribute) and node.attr in _PROPERTIES:
        return Applied(node, node.attr, node.value, is_method=True)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    if any(isinstance(arg, ast.Starred) for arg in node.args) or any(word.arg is None for word in node.keywords):
        return None
    args = tuple(node.args)
    keywords = {word.arg: word.value for word in node.keywords if word.arg is not None}
    qualified = names.qualified(node.func)
    if qualified is None:
        if isinstance(node.func, ast.Name):
            return None
        return Applied(node, node.func.attr, node.func.value, args, keywords, is_method=True)
    home, _, name = qualified.rpartition(".")
    subject = args[0] if args else keywords.pop("input", None)
    if home not in _HOMES or subject is None:
        return None
    return Applied(node, name, subject, args[1:], keywords)


def integer(node: ast.expr | None) -> int | None:
    """The value of a whole number that is written out."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = integer(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def in_function_body(file: SourceFile, node: ast.AST) -> bool:
    """Whether a node is run by the code of a function of its own file, so that a trial can put other code there.

    False at a module's or class's level, in lambdas, decorators and defaults, and in f-strings: what positions say
    there differs between versions of Python.
    """
    above: ast.AST | None = node
    while above is not None and not isinstance(above, ast.stmt):
        if isinstance(above, ast.Lambda) or file.in_fstring(above):
            return False
        above = file.parent(above)
    return (
        not isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and file.function(node) is not None
    )


def operand_text(file: SourceFile, node: ast.expr) -> str:
    """The text of an expression, as it can stand in front of a dot or beside any operator."""
    text = file.source(node)
    bare = isinstance(node, ast.Call | ast.Attribute | ast.Name | ast.Subscript)
    return text if bare else f"({text})"


def brief(text: str) -> str:
    """An expression on one line, short enough for a sentence."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
