"""A program that shows what an artefact does with one layout."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from stridewise.checks.artefacts.facts import Facts, Input
from stridewise.checks.artefacts.judge import Judged
from stridewise.checks.artefacts.opened import Subject
from stridewise.checks.operators import load
from stridewise.checks.operators.case import Outcome
from stridewise.checks.operators.grid import place
from stridewise.checks.operators.group import in_words
from stridewise.checks.operators.sandbox import Executed
from stridewise.checks.operators.snippet import imports_as
from stridewise.errors import UsageError
from stridewise.layout import Layout, span
from stridewise.results.checks import Snippet
from stridewise.source.target import split_target

_UNSEEN = "# Run as it stands it did not show: it may depend on values.\n"
_LOADS = {
    "exported program": "torch.export.load({path!r}).module()",
    "AOTInductor package": "torch._inductor.aoti_load_package({path!r})",
    "TorchScript module": "torch.jit.load({path!r})",
}
_MOST = 6


def snippet(entry: Judged, facts: Facts, subject: Subject, execute: Callable[[str], Executed | None]) -> Snippet:
    """For a finding: of its layouts the first whose program shows it."""
    first: Snippet | None = None
    for outcome in sorted(entry.failed, key=_complexity)[:_MOST]:
        code = _code(entry, outcome, facts, subject)
        made = Snippet(entry.finding.fingerprint, in_words(outcome), code)
        if first is None:
            first = Snippet(made.finding, made.layout, _UNSEEN + code)
        executed = execute(code)
        if executed is not None and _is_as(executed, outcome):
            return made
    assert first is not None
    return first


def _complexity(outcome: Outcome) -> tuple[int, bool]:
    arrangements = outcome.case.arrangements.values()
    return len(arrangements), any(not each.writable or each.offset for each in arrangements)


def _is_as(executed: Executed, outcome: Outcome) -> bool:
    if outcome.status == "raised":
        return executed.how == "raised" and executed.error == (outcome.message or "").partition(":")[0]
    if outcome.status == "crashed":
        return executed.how == "crashed"
    return executed.how == "raised" and executed.error == "AssertionError"


def _code(entry: Judged, outcome: Outcome, facts: Facts, subject: Subject) -> str:
    path = subject.path
    loads = (
        f"program = {_LOADS[facts.kind].format(path=str(path))}"
        if path
        else "# program = …  is the one that was checked"
    )
    against = "model" if entry.finding.code == "SW208" and outcome.status == "ran" else "made"
    start = _imports(subject.model) if against == "model" else ["import torch"]
    lines = [*start, "", loads]
    if against == "model" and len(start) == 1:
        lines.append("# model = …  is the one that was given")
    lines += ["", "torch.manual_seed(0)"]
    made: dict[str, str] = {}
    taken = {one.variable for one in facts.inputs}
    for one in {one.name: one for one in facts.inputs}.values():
        arrangement = outcome.case.arrangements.get(one.name)
        layout = Layout(one.sizes, one.strides, 0) if arrangement is None else place(arrangement, one.sizes).layout
        offset = f", {layout.offset}" if layout.offset else ""
        values = _values(one, layout.offset + max(1, span(layout)))
        lines.append(f"{one.variable} = {values}.as_strided({layout.sizes}, {layout.strides}{offset})")
        if one.name in outcome.case.arrangements and against == "made":
            variable = made[one.variable] = _free(f"made_{one.variable}", taken)
            dtype = "" if one.dtype == "float32" else f", dtype=torch.{one.dtype}"
            empty = f"torch.empty_strided({one.sizes}, {one.strides}{dtype})"
            lines.append(f"{variable} = {empty}.copy_({one.variable})")
    call = facts.call or "…"
    other = f"model({call})" if against == "model" else f"program({_renamed(call, made)})"
    return "\n".join([*lines, f"torch.testing.assert_close(program({call}), {other})"]) + "\n"


def _imports(model: str | None) -> list[str]:
    """The lines that import torch, and the model that a target names, if it does."""
    parts = None if model is None else split_target(model)
    if model is None or parts is None:
        return ["import torch"]
    try:
        first, expression = load.in_source(model)
    except (UsageError, ImportError, AttributeError):  # it is not for this process to import
        return ["import torch"]
    return imports_as("model", parts[0], first, expression)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _renamed(call: str, names: Mapping[str, str]) -> str:
    """The call with other variables."""

    class Other(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.Name(names.get(node.id, node.id))

    try:
        parsed = ast.parse(f"f({call})", mode="eval")
    except SyntaxError:
        return call
    return ast.unparse(Other().visit(parsed)).removeprefix("f(").removesuffix(")")


def _values(one: Input, count: int) -> str:
    dtype = "" if one.dtype == "float32" else f", dtype=torch.{one.dtype}"
    if one.dtype == "bool":
        return f"(torch.rand({count}) < 0.5)"
    if one.dtype.startswith(("float", "bfloat", "complex")):
        return f"torch.randn({count}{dtype})"
    return f"torch.randint(0, {one.largest + 1}, ({count},){dtype})"
