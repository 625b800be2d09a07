"""What rules about one method after another share: `x.clone().contiguous()`."""

import ast

from stridewise.findings import Edit
from stridewise.linter.facts.conditions import contiguity
from stridewise.linter.facts.value import State
from stridewise.linter.module import Module
from stridewise.source.edits import torch_name


def receiver(module: Module, call: ast.expr, *names: str) -> ast.expr | None:
    """What a method with one of some names is called on; None for any other call, functions of modules included.

    `torch.clone(x)` is no method, and what numpy or plain Python made has methods of its own under these names.
    """
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in names:
        return None
    if module.name(call.func) is not None or module.value(call.func.value).kind in ("array", "other"):
        return None
    return call.func.value


def contiguous(module: Module, call: ast.expr) -> ast.expr | None:
    """What `.contiguous()` is called on; None for other calls, and for other memory formats than row-major."""
    base = receiver(module, call, "contiguous")
    is_row_major = isinstance(call, ast.Call) and contiguity(call) is State.CONTIGUOUS
    return base if is_row_major else None


def before(module: Module, call: ast.Call) -> str:
    """The text in front of the dot of a method call, with parentheses and line breaks as they stand."""
    start, _ = module.source.span(call)
    _, end = module.source.span(call.func)
    return module.source.decode((start, module.source.content.rindex(b".", start, end)))


def renamed(module: Module, call: ast.Call, name: str) -> Edit:
    """A method call under another name. What it is called on stays as it is written, in its parentheses."""
    start, end = module.source.span(call.func)
    old = call.func.attr  # type: ignore[attr-defined]
    return Edit(module.source.name, (start, end), module.source.decode((start, end)).removesuffix(old) + name, "unsafe")


def torch_at(module: Module, node: ast.AST) -> str | None:
    """The name by which torch can be written at a node; None if the module has none, or a function hides it there."""
    name = torch_name(module.source)
    return None if name is None or module.is_rebound(name, node) else name


def has_comment(module: Module, behind: ast.expr, upto: ast.expr | ast.stmt) -> bool:
    """Whether a comment may stand between the end of one node and that of another: replacing it would lose it."""
    _, start = module.source.span(behind)
    _, end = module.source.span(upto)
    return b"#" in module.source.content[start:end]
