"""Helpers: a text as a module whose nodes are all indexed, and what is known of the expressions in it."""

import ast
from pathlib import Path

from stridewise.linter.facts.value import Value
from stridewise.linter.module import Module, Scope
from stridewise.source.file import SourceFile


def module_of(text: str) -> Module:
    return Module(SourceFile(Path("program.py"), "program.py", text.encode()), {""})


def scope_of(module: Module) -> Scope:
    """The first function of a module; the module, if it has none."""
    functions = (node for node in module.source.tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return next(functions, module.source.tree)


def value_of(body: str, expression: str, signature: str = "x: torch.Tensor, y, z, n, flag") -> Value:
    """What is known of the last expression of a text, in the body of a function."""
    lines = "\n".join("    " + line for line in body.splitlines())
    text = f"import numpy as np\nimport torch\nimport torch.nn.functional as F\n\ndef program({signature}):\n{lines}\n"
    module = module_of(text)
    scope = scope_of(module)
    found = [node for node in ast.walk(scope) if isinstance(node, ast.expr) and ast.unparse(node) == expression]
    last = max(found, key=lambda node: (node.lineno, node.col_offset))
    return module.value(last, scope)
