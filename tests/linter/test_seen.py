"""What lint takes from a recording."""

import ast
from pathlib import Path
from typing import Any

import pytest

import stridewise
from stridewise.analysis.case import Case
from stridewise.findings import NOT_MEASURED
from stridewise.linter.engine import check_source
from stridewise.linter.facts.value import State
from stridewise.linter.rules import all_rules
from stridewise.linter.seen import Seen, SeenFile, seen_calls
from stridewise.recording.filenames import public_path
from stridewise.source.file import SourceFile

PROGRAM = """\
import torch

def program(x):
    y = x.transpose(0, 1)
    z = y.contiguous()
    for _ in range(2):
        z.contiguous()
    w = x.contiguous() if x.dim() == 2 else None
    return z
"""


@pytest.fixture
def source(tmp_path: Path) -> SourceFile:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return SourceFile(path, public_path(str(path)))


def recorded(source: SourceFile, *inputs: Any, text: str = PROGRAM) -> Seen:
    namespace: dict[str, Any] = {}
    exec(compile(text, str(source.path), "exec"), namespace)
    with stridewise.record() as recording:
        for given in inputs:
            namespace["program"](given)
    return seen_calls(Case(recording.trace))


def of(seen: Seen, source: SourceFile) -> SeenFile:
    found = seen.of(source.path, source.name, source.text.splitlines())
    assert found is not None
    return found


def call(source: SourceFile, text: str) -> ast.expr:
    return next(n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and ast.unparse(n) == text)


def test_how_tensors_lay_in_each_call(source: SourceFile) -> None:
    import torch

    seen = of(recorded(source, torch.ones(3, 4), torch.ones(5, 6)), source)
    assert seen.output(call(source, "x.transpose(0, 1)")) is State.PERMUTED
    assert seen.receiver(call(source, "y.contiguous()")) is State.PERMUTED
    assert seen.output(call(source, "y.contiguous()")) is State.CONTIGUOUS
    assert seen.receiver(call(source, "x.contiguous()")) is State.CONTIGUOUS


def test_nothing_is_told_where_calls_differ(source: SourceFile) -> None:
    import torch

    seen = of(recorded(source, torch.ones(3, 4), torch.ones(3, 4).t()), source)
    assert seen.receiver(call(source, "x.contiguous()")) is None
    assert seen.output(call(source, "x.contiguous()")) is State.CONTIGUOUS


def test_what_copies_cost_there(source: SourceFile) -> None:
    import torch

    seen = of(recorded(source, torch.ones(3, 4)), source)
    copied = seen.cost(call(source, "y.contiguous()"))
    assert (copied.copies, copied.bytes_moved) == (1, 2 * 12 * 4)
    assert seen.cost(call(source, "x.contiguous()")).copies == 0
    assert seen.cost(source.tree.body[0]) == NOT_MEASURED


def test_lines_that_were_edited_since_are_not_believed(source: SourceFile) -> None:
    import torch

    older = PROGRAM.replace("x.transpose(0, 1)", "x.transpose(1, 0)")
    source.path.write_text(older)
    seen = of(recorded(source, torch.ones(3, 4), text=older), source)
    source.path.write_text(PROGRAM)
    assert seen.output(call(source, "x.transpose(0, 1)")) is None
    assert seen.output(call(source, "y.contiguous()")) is State.CONTIGUOUS
    again = recorded(source, torch.ones(3, 4))
    assert again.of(source.path, source.name, ["import torch"]) == SeenFile({}, 4)
    assert again.of(Path("/other.py"), "other.py", source.text.splitlines()) is None


def test_a_file_is_found_from_another_folder() -> None:
    seen = Seen({"package/model.py": (), "model.py": ()}, "step time")
    assert seen.name_of(Path("/home/me/project/src/package/model.py"), "src/package/model.py") == "package/model.py"
    assert seen.name_of(Path("/home/me/project/other_model.py"), "other_model.py") is None
    assert seen.name_of(Path("/home/me/project/model.py"), "project/model.py") == "model.py"


def test_a_finding_carries_its_cost_and_needless_calls_are_found(source: SourceFile) -> None:
    import torch

    rules = [rule for rule in all_rules() if rule.code == "SW315"]
    assert {finding.cost for finding in check_source(source, rules)} <= {NOT_MEASURED}
    seen = of(recorded(source, torch.ones(3, 4)), source)
    found = {finding.site.line: finding for finding in check_source(source, rules, seen)}
    assert 5 not in found
    assert found[8].cost.copies == 0  # `x` was contiguous whenever the recording saw it
    assert all(edit.safety == "display" for edit in found[8].edits)


def test_what_the_text_alone_shows_stays_as_it_is(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "program.py"
    path.write_text("import torch\n\ndef program(x):\n    return torch.zeros(3).contiguous() + x.contiguous()\n")
    source = SourceFile(path, public_path(str(path)))
    rules = [rule for rule in all_rules() if rule.code == "SW315"]
    (alone,) = check_source(source, rules)
    seen = of(recorded(source, torch.ones(3), text=source.text), source)
    first, second = check_source(source, rules, seen)
    assert (first.message, first.severity, first.edits) == (alone.message, alone.severity, alone.edits)
    assert (second.severity, [edit.safety for edit in second.edits]) == ("note", ["display"])


def test_what_follows_from_a_recording_is_no_more_than_that(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "program.py"
    path.write_text(
        "import torch\n\ndef program(x):\n    y = x.contiguous()[0:] + x.relu()\n    return y.contiguous()\n"
    )
    source = SourceFile(path, public_path(str(path)))
    seen = of(recorded(source, torch.ones(3, 4), text=source.text), source)
    found = check_source(source, [rule for rule in all_rules() if rule.code == "SW315"], seen)
    assert {edit.safety for finding in found for edit in finding.edits} == {"display"}
    assert {finding.severity for finding in found} == {"note"}
