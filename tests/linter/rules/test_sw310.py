"""SW310: `contiguous` checks by itself what the guard checks."""

import pytest
import torch
from hypothesis import given

from ..texts import findings, fixed, rule_of, run
from .layouts import Subclass, copies, seen, tensors

GUARDS = {
    "if": """
def program(x):
    if not x.is_contiguous():
        x = x.contiguous()
    return x
""",
    "else": """
def program(x):
    if x.is_contiguous():
        y = x
    else:
        y = x.contiguous()
    return y
""",
    "expression": """
def program(x):
    return x if x.is_contiguous() else x.contiguous()
""",
    "negated": """
def program(x):
    return x.contiguous() if not x.is_contiguous() else x
""",
    "is False": """
def program(x):
    if x.is_contiguous() is False:
        x = x.contiguous()
    return x
""",
    "== False": """
def program(x):
    return x.contiguous() if x.is_contiguous() == False else x
""",
    "annotated": """
def program(x):
    if not x.is_contiguous():
        x: torch.Tensor = x.contiguous()
    return x
""",
}
FORMATTED = {
    name: text.replace("contiguous()", "contiguous(memory_format=torch.channels_last)") for name, text in GUARDS.items()
}
PROGRAMS = [pytest.param("import torch\n" + text, id=name) for name, text in GUARDS.items()]
IN_FORMAT = [pytest.param("import torch\n" + text, id=name) for name, text in FORMATTED.items()]


@pytest.mark.parametrize("text", PROGRAMS)
def test_the_guard_saves_no_copy(text: str) -> None:
    guarded, plain = run(text)["program"], run(fixed(text, "SW310"))["program"]
    assert "is_contiguous" not in fixed(text, "SW310")
    for x, made in ((torch.zeros(2, 3), 0), (torch.zeros(2, 3).t(), 1)):
        assert copies(guarded, x) == copies(plain, x) == made


@pytest.mark.parametrize("text", PROGRAMS)
@given(x=tensors())
def test_its_fix_changes_nothing(text: str, x: torch.Tensor) -> None:
    (edit,) = findings(text, "SW310")[0].edits
    assert edit.safety == "safe"
    assert seen(run(fixed(text, "SW310"))["program"], x) == seen(run(text)["program"], x)


@pytest.mark.parametrize("text", IN_FORMAT)
@given(x=tensors(ranks=(4, 4)))
def test_its_fix_changes_nothing_in_another_format(text: str, x: torch.Tensor) -> None:
    assert seen(run(fixed(text, "SW310"))["program"], x) == seen(run(text)["program"], x)


@pytest.mark.parametrize("text", PROGRAMS)
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_raises_raises_as_before(text: str, layout: str) -> None:
    x = getattr(torch.eye(3), layout)()
    with pytest.raises(RuntimeError) as before:
        run(text)["program"](x)
    with pytest.raises(RuntimeError) as after:
        run(fixed(text, "SW310"))["program"](x)
    assert str(after.value) == str(before.value)


@pytest.mark.parametrize("x", [torch.nn.Parameter(torch.zeros(2, 3)), torch.zeros(2, 3).as_subclass(Subclass)])
def test_a_contiguous_tensor_is_returned_itself(x: torch.Tensor) -> None:
    assert x.contiguous() is x


def test_an_export_keeps_one_way_of_the_guard_only() -> None:
    """Why the branch is worse than the call: the exported program is wrong for the layout that it did not see."""
    program = run("import torch\n" + GUARDS["if"])["program"]

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return program(x)  # type: ignore[no-any-return]

    exported = torch.export.export(Module(), (torch.zeros(2, 3),)).module()
    assert not exported(torch.zeros(3, 2).t()).is_contiguous()


def test_an_attribute_is_assigned_on_request_only() -> None:
    text = "import torch\ndef f(self):\n    if not self.w.is_contiguous():\n        self.w = self.w.contiguous()\n"
    (finding,) = findings(text, "SW310")
    assert [edit.safety for edit in finding.edits] == ["unsafe"]


@pytest.mark.parametrize(
    "text",
    [
        "if x is None:\n    pass\nelif not x.is_contiguous():\n    x = x.contiguous()\n",
        "if not x.is_contiguous():  # for the kernel\n    x = x.contiguous()\n",
        "y = (\n    x  # as it is\n    if x.is_contiguous()\n    else x.contiguous()\n)\n",
    ],
)
def test_no_comment_and_no_branch_is_lost(text: str) -> None:
    (finding,) = findings("import torch\nx = torch.zeros(2, 3)\n" + text, "SW310")
    assert finding.edits == ()


def test_a_call_is_not_made_less_often() -> None:
    assert findings("import torch\ny = f() if f().is_contiguous() else f().contiguous()\n", "SW310") == ()


def test_nor_is_one_in_its_arguments() -> None:
    guard = "if not x.is_contiguous(memory_format=pick()):\n        x = x.contiguous(memory_format=pick())\n"
    text = f"import torch\ndef f(x, pick):\n    {guard}    return x\n"
    picked: list[None] = []
    run(text)["f"](torch.zeros(2, 3, 4, 5), lambda: picked.append(None) or torch.channels_last)
    assert len(picked) == 2
    assert findings(text, "SW310") == ()


def test_a_class_gets_no_attribute_unasked() -> None:
    text = "import torch\nx = torch.zeros(2, 3)\nclass A:\n    if not x.is_contiguous():\n        x = x.contiguous()\n"
    assert "x" not in vars(run(text)["A"])
    assert "x" in vars(run(fixed(text, "SW310"))["A"])
    (finding,) = findings(text, "SW310")
    assert [edit.safety for edit in finding.edits] == ["unsafe"]


def test_it_is_no_error() -> None:
    assert rule_of("SW310").severity == "warning"
