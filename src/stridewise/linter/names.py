"""What the names of a module stand for, as its imports say."""

import ast
from collections.abc import Iterable

_ALIASES = {
    "torch.functional": "torch",
    "torch.nn.modules": "torch.nn",
    "torch.distributed.distributed_c10d": "torch.distributed",
    "torch.nn.parameter": "torch.nn",
}
"""Modules that also offer what another is known for."""
_LAYERS = "torch.nn.modules."


class Names:
    """Aliases of a module, wherever in it they are imported."""

    def __init__(self, imports: Iterable[ast.Import], from_imports: Iterable[ast.ImportFrom]) -> None:
        self.targets: dict[str, str] = {}
        """By the name in the module: `np` is `numpy`, `F` is `torch.nn.functional`."""
        for statement in imports:
            for alias in statement.names:
                if alias.asname is None:
                    self._add(alias.name.partition(".")[0], alias.name.partition(".")[0])
                else:
                    self._add(alias.asname, alias.name)
        for origin in from_imports:
            module = "." * origin.level + (origin.module or "")
            for alias in origin.names:
                self._add(alias.asname or alias.name, f"{_known(module)}.{alias.name}")

    def of(self, node: ast.AST) -> str | None:
        """The full dotted name of a name or attribute, if its first part was imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        target = self.targets.get(node.id) if isinstance(node, ast.Name) else None
        if target is None:
            return None
        if not parts:
            return target
        module, _, last = ".".join([target, *reversed(parts)]).rpartition(".")
        return f"{_known(module)}.{last}"

    def _add(self, name: str, target: str) -> None:
        # Of two imports under one name (in a try and its except) torch's is the one that has layouts.
        if name not in self.targets or target.startswith("torch"):
            self.targets[name] = target


def last_name(node: ast.AST | None) -> str:
    """`launch` of `launch` and of `lib.launch`; nothing of what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def own_names(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """The names of a function's parameters and variables, but for those that it imports."""
    every = function.args
    arguments = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    stored: set[str] = set()
    others: set[str] = set()
    waiting: list[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stored.add(node.name)
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stored.add(node.id)
        elif isinstance(node, ast.alias):
            others.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            others.update(node.names)
        if not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return {argument.arg for argument in arguments if argument is not None} | (stored - others)


def _known(module: str) -> str:
    """The module by which what another offers is known."""
    return "torch.nn" if module.startswith(_LAYERS) else _ALIASES.get(module, module)
