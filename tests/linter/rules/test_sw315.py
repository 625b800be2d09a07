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


IMAGE = "torch.zeros(2, 1, 4, 4).to(memory_format=torch.channels_last)"
COLUMN = "torch.rand(3).as_strided((1, 3, 1, 1), (2, 1, 1, 7))"
NEEDED = {
    # What is contiguous may have the strides of channels_last where a dimension has size 1.
    "cat": f"x = {IMAGE}.contiguous()\nx = torch.cat([x, x, x], 1)",
    "stack": f"x = {IMAGE}\nif x.is_contiguous():\n    x = torch.cat([x, x], dim=1)",
    "pad": f"x = F.pad({IMAGE}.contiguous(), (0, 0, 0, 0, 1, 1))",
    "pixel_unshuffle": f"x = F.pixel_unshuffle({IMAGE}.contiguous(), 2)",
    "multiply": f"x = {COLUMN}.contiguous() * torch.ones(1, 1, 3, 1)",
    "maximum": f"x = torch.maximum({COLUMN}.contiguous(), torch.ones(1, 1, 3, 1))",
    "lerp": f"x = torch.lerp({COLUMN}.contiguous(), torch.ones(1, 1, 3, 1), 0.5)",
    "where": f"x = {COLUMN}.contiguous()\nx = torch.where(x > 0, x, torch.ones(1, 1, 3, 1))",
    "one channel of it": f"x = {IMAGE}.contiguous()[:, :1]\nx = torch.cat([x, x, x], 1)",
    # Functions that lay out their results in other ways for some arguments.
    "unique": "x = torch.unique(torch.eye(3), dim=1)",
    "unique by place": "x = torch.eye(3).unique(True, False, False, 1)",
    "unique_consecutive": "x = torch.unique_consecutive(torch.eye(3), dim=1)",
    "quantile": "x = torch.quantile(torch.rand(3, 4, 5), torch.tensor([0.1, 0.2]), dim=1)",
    "nanquantile": "x = torch.rand(3, 4, 5).nanquantile(torch.tensor([0.1, 0.2]), 1)",
    "loss": "y = torch.rand(3, 4).t()\nx = F.binary_cross_entropy(y, y, reduction='none')",
    # Arguments that are not written here.
    "format in **": "kw = dict(memory_format=torch.channels_last)\nx = torch.empty(2, 3, 4, 5, **kw)",
    "format put into **": "kw = {}\nkw['memory_format'] = torch.channels_last\nx = torch.empty(2, 3, 4, 5, **kw)",
    "format added to **": "kw = {}\nkw.update(memory_format=torch.channels_last)\nx = torch.empty(2, 3, 4, 5, **kw)",
    "to(**)": "kw = dict(memory_format=torch.channels_last)\nx = torch.ones(2, 3, 4, 5).to(**kw)",
    "like(**)": "kw = dict(memory_format=torch.channels_last)\nx = torch.zeros_like(torch.ones(2, 3, 4, 5), **kw)",
    # Tests that change what they told.
    "bound behind the test": "x = torch.zeros(2, 3)\nassert x.is_contiguous() and (x := x.t()) is not None",
    "relaid behind the test": "x = f()\nif x.is_contiguous() and x.t_() is not None:\n    pass",
    "bound in an or": "x = f()\nif not x.is_contiguous() or (x := x.t()) is None:\n    raise ValueError",
    # What runs later.
    "a nested class": "x = torch.zeros(2, 3)\nclass A:\n    def g(self): x.t_()\nA().g()",
    "a generator": "g = (x.t_() for _ in [1])\nx = torch.zeros(2, 3)\nnext(g)",
    "a generator that binds": "g = ((x := torch.zeros(2, 3).t()) for _ in [1])\nx = torch.zeros(2, 3)\nnext(g)",
    "a bound method": "x = torch.zeros(2, 3)\nop = x.t_\nif x.is_contiguous():\n    op()",
    "one of several": "x = torch.zeros(2, 3)\nfor op in (x.t_, x.zero_):\n    op()",
    "setattr": "x = torch.zeros(2, 3)\nsetattr(x, 'data', x.t())",
    "__setattr__": "x = torch.zeros(2, 3)\nx.__setattr__('data', x.t())",
    "getattr": "x = torch.zeros(2, 3)\ngetattr(x, 't_')()",
    "a later setattr": "x = torch.zeros(2, 3)\ndef g(): setattr(x, 'data', x.t())\ng()",
    # Exceptions that a context manager keeps to itself.
    "swallowed": "x = torch.zeros(2, 3).t()\nwith Quiet():\n    raise ValueError\n    x = x.contiguous()",
}


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in NEEDED.items()])
def test_a_call_that_copies_is_left_alone(body: str) -> None:
    lines = "".join(f"    {line}\n" for line in [*body.splitlines(), "return x.contiguous()"])
    text = f"import torch\nimport torch.nn.functional as F\n\ndef program():\n{lines}" + _AROUND
    assert contiguous_calls(run(text)["program"])[-1] is False
    last = text.splitlines().index("    return x.contiguous()") + 1
    assert [finding for finding in findings(text, "SW315") if finding.site.line == last] == []


_AROUND = """
def f():
    return torch.zeros(2, 3)

class Quiet:
    def __enter__(self): pass
    def __exit__(self, *raised): return True
"""


@pytest.mark.parametrize(
    "body",
    [
        "x = x.contiguous().view(6)",
        "x = x.contiguous().reshape(3, 2).relu()[0]",
        "x = x.contiguous() * 2",
        "assert (x := x.clone(memory_format=torch.contiguous_format)) is not None and x.is_contiguous()",
        "with torch.no_grad():\n        x = x.contiguous()",
        "kw = dict(device=None)\n    x = torch.zeros(2, 3, **kw)",
        "x = x.contiguous().data\n    x = torch.stack([x.sum(0), x.sum(0)])",
    ],
)
def test_a_call_that_does_nothing_is_found(body: str) -> None:
    text = f"import torch\ndef program():\n    x = torch.rand(3, 2).t()\n    {body}\n    return x.contiguous()\n"
    assert contiguous_calls(run(text)["program"])[-1] is True
    assert [finding.site.expression for finding in findings(text, "SW315")][-1:] == ["x.contiguous()"]


def test_a_buffer_that_is_contiguous_or_not_is_no_tensor() -> None:
    text = "import torch\ndef f(data):\n    m = memoryview(data)\n    return m.contiguous and m.shape\n"
    assert findings(text) == ()


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
        "x = (  # row by row\n        x.contiguous()\n    )",
        "x = (\n        x.contiguous()\n        # row by row\n    )",
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
