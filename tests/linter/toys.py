"""Source rules that are made for tests of what is around rules: each replaces a call of one name by another."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stridewise.findings import Safety, Severity
from stridewise.linter.files.discover import Found
from stridewise.linter.files.settings import Settings
from stridewise.linter.module import Module
from stridewise.linter.rule import Problem, Rule
from stridewise.source import edits as editing

HEAD = "import torch\n"
"""What a file must hold to be looked at."""


def renames(code: str, old: str, new: str, *, safety: Safety = "safe", severity: Severity = "warning") -> Rule:
    """A rule against calls of `old`, whose fix calls `new`."""

    def check(module: Module) -> Iterator[Problem]:
        for call in module.calls(old):
            edit = editing.replace(module.source, call.func, new, safety=safety)
            yield Problem(call, f"`{old}` is called.", edits=(edit,))

    return rule(code, old, check, severity)


def wraps(code: str, old: str, new: str) -> Rule:
    """A rule against calls of `old`, whose fix puts a call of `new` in the place of the whole expression."""

    def check(module: Module) -> Iterator[Problem]:
        for call in module.calls(old):
            text = f"{new}({', '.join(map(module.text, call.args))})"
            yield Problem(
                call, f"`{old}` is called.", edits=(editing.replace(module.source, call, text, safety="safe"),)
            )

    return rule(code, old, check, "warning")


def fails(code: str, word: str, error: Exception) -> Rule:
    """A rule with a defect, on calls of `word`."""

    def check(module: Module) -> Iterator[Problem]:
        for _ in module.calls(word):
            raise error
        yield from ()

    return rule(code, word, check, "error")


def rule(code: str, word: str, check: Any, severity: Severity) -> Rule:
    return Rule(
        *(code, f"no-{word}", "A toy.", "No help."),
        words=frozenset({word}),
        check=check,
        severity=severity,
        default=True,
        fires=(),
        quiet=(),
    )


class Toys(Settings, frozen=True):
    """Settings with rules of the tests' own."""

    given: tuple[Rule, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.given


def toys(*rules: Rule, **settings: Any) -> Toys:
    return Toys(tuple(rule.code for rule in rules), given=rules, **settings)


def found(path: Path, settings: Settings, name: str | None = None) -> Found:
    return Found(path, name or path.name, settings)


def names(text: bytes | str) -> list[str]:
    """The names that a text calls, in order."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    return [call.func.id for call in calls if isinstance(call.func, ast.Name)]
