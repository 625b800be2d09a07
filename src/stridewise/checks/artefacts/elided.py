"""At which node an exported program raises, and which call of the source is missing there."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterator
from typing import Any

from stridewise.checks.artefacts.arguments import leaves_of
from stridewise.checks.artefacts.facts import Node
from stridewise.findings import Site
from stridewise.recorder.frames import is_foreign_to_program
from stridewise.recording.filenames import public_place

_FRAME = re.compile(r'File "(.+)", line (\d+), in (\S+)(?:\n[ \t]*(\S.*))?')
_COPIES = frozenset({"clone", "contiguous", "_to_copy", "copy"})


class Trace:
    """Runs an exported graph node by node."""

    def __init__(self, graph: Any) -> None:
        import torch

        class Stepping(torch.fx.Interpreter):
            at: Any = None

            def run_node(self, n: Any) -> Any:
                self.at = n
                return super().run_node(n)

        self._graph = graph
        self._steps = Stepping(graph, garbage_collect_values=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it with a caller's arguments."""
        return self._steps.run(*leaves_of((args, kwargs)))

    def raising(self, run: Callable[[], Any]) -> Node | None:
        """The node at which `run` raises; None if it does not, or not at an operator."""
        import torch

        try:
            with torch.no_grad():
                run()
        except Exception:
            node = self._steps.at
            return _told(node, self._graph) if node is not None and node.op == "call_function" else None
        return None


def _told(node: Any, graph: Any) -> Node:
    frames = _frames(node)
    own = [frame for frame in frames if not is_foreign_to_program(frame[0])] or frames
    inner = frames[-1][3] if frames else ""
    if not own:
        return Node(node.name, str(node.target), Site(expression=f"node `{node.name}`"), inner)
    file, line, function, text = own[-1]
    earlier = _elided(file, line, graph) if own[-1] == frames[-1] else None
    return Node(node.name, str(node.target), _site(file, line, function, text), inner, earlier)


def _site(file: str, line: int, function: str, text: str) -> Site:
    file, shown = public_place(file, line)
    return Site(file=file, line=shown, function=function, expression=text or None, text=text or None)


def _frames(node: Any) -> list[tuple[str, int, str, str]]:
    """File, line, function and source line, outermost first."""
    found = _FRAME.findall(node.meta.get("stack_trace") or "")
    return [(file, int(line), function, text) for file, line, function, text in found]


def _elided(file: str, line: int, graph: Any) -> Site | None:
    """The last `.contiguous()` in front of a line of the same function that no node comes from."""
    copied = {
        frame[:2]
        for node in graph.graph.nodes
        if node.op == "call_function" and _overload(node.target) in _COPIES
        for frame in _frames(node)
    }
    found = [call for call in _contiguous_calls(file, line) if (file, call.lineno) not in copied]
    if not found:
        return None
    call = max(found, key=lambda call: call.lineno)
    return _site(file, call.lineno, "", linecache.getline(file, call.lineno).strip())


def _overload(target: Any) -> str:
    return str(getattr(target, "__name__", target)).partition(".")[0]


def _contiguous_calls(file: str, line: int) -> Iterator[ast.Call]:
    """Those of the innermost function around a line, in front of it; none where there is no source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not around:
        return
    function = max(around, key=lambda function: function.lineno)
    viewed = {
        node.func.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and node.lineno == line
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "view"
        and isinstance(node.func.value, ast.Name)
    }
    for statement in function.body:  # not in a branch, which may not have been taken
        is_of_it = isinstance(statement, ast.Assign) and any(
            isinstance(name, ast.Name) and name.id in viewed
            for target in statement.targets
            for name in ast.walk(target)
        )
        for node in ast.walk(statement) if is_of_it else ():
            if isinstance(node, ast.Call) and node.lineno < line and getattr(node.func, "attr", "") == "contiguous":
                yield node
