"""SW315: a contiguous tensor is returned as it is."""

import ast

import pytest
import torch

from stridewise.linter.facts.value import State, Value
from stridewise.linter.module import Module
from stridewise.linter.rule import Fires

from ..texts import findings, fixed, rule_of, run
from .layouts import contiguous_calls

EXAMPLES = rule_of("SW315").fires


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_call_returns_its_tensor(example: Fires) -> None:
    program = run(example.source)["program"]
    assert contiguous_calls(program)[-1] is True


@pytest.mark.parametrize("example", [example for example in EXAMPLES if example.fixed])
def test_its_fix_changes_nothing(example: Fires) -> None:
    assert example.fixed is not None
    before, after = run(example.source)["program"], run(example.fixed)["program"]
    assert len(contiguous_calls(after)) == len(contiguous_calls(before)) - 1
    assert torch.equal(after(), before())
    assert after().stride() == before().stride()
    (finding,) = findings(example.source, "SW315")
    asserted = "assert" in example.source
    assert {edit.safety for edit in finding.edits} == {"unsafe" if asserted else "safe"}


def test_what_an_assert_tells_is_fixed_on_request() -> None:
    text = "import torch\ndef f(x):\n    assert x.is_contiguous()\n    return x.contiguous().view(-1)\n"
    (finding,) = findings(text, "SW315")
    assert [edit.safety for edit in finding.edits] == ["unsafe"]
    assert fixed(text, "SW315") == text.replace(".contiguous().view", ".view")


def test_what_a_branch_tells_is_sure() -> None:
    text = "import torch\ndef f(x):\n    if x.is_contiguous():\n        return x.contiguous().view(-1)\n"
    (finding,) = findings(text, "SW315")
    assert [edit.safety for edit in finding.edits] == ["safe"]


def test_what_a_recording_tells_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Value("tensor", State.CONTIGUOUS, sure=True, seen=True)
    monkeypatch.setattr(Module, "value", lambda self, node, scope=None: value)
    (finding,) = findings("import torch\ndef f(x):\n    return x.contiguous().view(-1)\n", "SW315")
    assert [edit.safety for edit in finding.edits] == ["display"]
    assert "in every call that the recording holds" in finding.message


@pytest.mark.parametrize(
    "body",
    [
        "if flag: x = x.contiguous()",
        "x = x.contiguous(); print(x)",
        "for _ in y:\n        x = x.contiguous()",
        "y = (x  # row by row\n         .contiguous())",
    ],
)
def test_a_statement_is_deleted_with_its_line_or_not_at_all(body: str) -> None:
    text = f"import torch\ndef f(flag, y):\n    x = torch.zeros(2, 3)\n    {body}\n    return x\n"
    assert [finding.edits for finding in findings(text, "SW315")] in ([()], [])


def test_a_method_on_its_own_line_leaves_none_behind() -> None:
    text = "import torch\ny = f(\n    torch.zeros(2, 3)\n    .t().clone()\n    .contiguous()\n    .contiguous()\n)\n"
    assert fixed(text, "SW315") == text.replace("\n    .contiguous()\n)", "\n)")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_line_goes_with_what_ends_it(ending: str) -> None:
    text = "import torch\nx = torch.zeros(2, 3)\nx = x.contiguous()\ny = x\n".replace("\n", ending)
    assert fixed(text, "SW315") == text.replace(f"x = x.contiguous(){ending}", "")


def test_the_last_line_may_have_no_end() -> None:
    text = "import torch\nx = torch.zeros(2, 3)\nx = x.contiguous()"
    assert ast.dump(ast.parse(fixed(text, "SW315"))) == ast.dump(ast.parse("import torch\nx = torch.zeros(2, 3)"))


def test_a_discarded_result_is_left_to_another_rule() -> None:
    assert findings("import torch\nx = torch.zeros(2, 3)\nx.contiguous()\n", "SW315") == ()
