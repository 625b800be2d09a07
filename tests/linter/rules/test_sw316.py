"""What tracing and exporting make of a branch on layout, and what SW316 finds of it."""

import pytest
import torch

from stridewise.linter.rules import sw316

from ..texts import findings, run

EXAMPLES = [pytest.param(example.source, id=str(at)) for at, example in enumerate(sw316.FIRES[:2])]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_artefact_gives_wrong_values(text: str) -> None:
    model, artefact, strided = run(text)["program"]()
    assert not torch.allclose(artefact(strided), model(strided))
    assert torch.equal(torch.compile(model, backend="eager")(strided), model(strided))


@pytest.mark.parametrize(
    "check", ["if not x.is_contiguous():\n            raise ValueError()", "assert x.is_contiguous()"]
)
@pytest.mark.parametrize("record", ["torch.jit.trace(model, dense)", "torch.export.export(model, (dense,)).module()"])
def test_a_check_is_missing_in_the_artefact(check: str, record: str) -> None:
    text = f"""
import torch

class Dense(torch.nn.Module):
    def forward(self, x):
        {check}
        return x.as_strided((6,), (1,)) * 2

def program():
    model = Dense()
    dense = torch.arange(6.0).view(2, 3)
    return model, {record}
"""
    (found,) = findings(text, "SW316")
    assert found.severity == "warning"
    assert "has no such check" in found.message
    model, artefact = run(text)["program"]()
    strided = torch.arange(6.0).view(3, 2).t()
    with pytest.raises((ValueError, AssertionError)):
        model(strided)
    assert not torch.equal(artefact(strided), strided.flatten() * 2)


def test_one_way_for_every_layout_is_right() -> None:
    branched = sw316.FIRES[0].source
    lines = branched.splitlines(keepends=True)
    text = "".join(line for line in lines if "is_contiguous" not in line and "as_strided" not in line)
    model, artefact, strided = run(text)["program"]()
    assert torch.equal(artefact(strided), model(strided))
    assert torch.equal(model(strided), run(branched)["program"]()[0](strided))
    assert findings(text, "SW316") == ()


@pytest.mark.parametrize("text", [text for text in sw316.QUIET if "jit.script" not in text])
def test_quiet_examples_run(text: str) -> None:
    run(text)["program"]()


class Scores(torch.nn.Module):
    """The example of a scripted module: scripting needs the source in a file."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_contiguous():
            return x.flatten()
        return x.t().flatten()


def test_a_scripted_branch_stays() -> None:
    scripted, strided = torch.jit.script(Scores()), torch.arange(6.0).view(3, 2).t()
    assert torch.equal(scripted(strided), torch.arange(6.0))
    assert torch.equal(scripted(strided.contiguous()), strided.flatten())


MODEL = """
import torch
import torch.onnx
from torch import nn
from torch.export import export

class Base(nn.Module):
    def forward(self, x):
        return self.helper(x)

    def helper(self, x):
        {0}

class Model(Base):
    pass

class Other(nn.Module):
    def forward(self, x):
        return x if x.is_contiguous() else -x

def build():
    return Model()

{1}
"""
BRANCH = "return x if x.is_contiguous() else -x"


@pytest.mark.parametrize(
    "exported",
    [
        "torch.jit.trace(Model(), torch.ones(2))",
        "model = Model().eval()\nmodel.cuda()\ntorch.jit.trace(model, torch.ones(2))",
        "def main():\n    model = build()\n    export(model, (torch.ones(2),))",
        "torch.onnx.export(model=nn.Sequential(Model()), args=(torch.ones(2),), f='x.onnx')",
        "import torch.export\ntorch.export.export(mod=Model(), args=())",
    ],
)
def test_it_knows_what_is_exported(exported: str) -> None:
    (found,) = findings(MODEL.format(BRANCH, exported), "SW316")
    assert found.site.function == "Base.helper"
    assert "is baked in" in found.message


@pytest.mark.parametrize("exported", ["", "torch.jit.script(Model())", "torch.compile(Model())", "model.export('x')"])
def test_it_is_quiet_without_an_export(exported: str) -> None:
    assert findings(MODEL.format(BRANCH, exported), "SW316") == ()


@pytest.mark.parametrize(
    ("body", "fires"),
    [
        ("return x * 2 if x.stride(0) > 1 else x", True),
        ("strides = x.stride(); return x * 2 if strides[0] > 1 else x", True),
        ("return x * 2 if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) else x", True),
        ("while not x.is_contiguous(): x = x + x.t()", True),
        ("if x.is_contiguous(): return x\n        return -x", True),
        ("return x.as_strided((2,), (x.stride(0),))", False),
        ("print(x.is_contiguous()); return x", False),
        ("if not x.is_contiguous(): print('a copy')\n        return x.flatten()", False),
        ("if not x.is_contiguous(): x = x.contiguous()\n        return x", False),
        ("return x if self.weight.is_contiguous() else -x", False),
    ],
)
def test_what_decides_a_branch(body: str, fires: bool) -> None:
    assert bool(findings(MODEL.format(body, "torch.jit.trace(Model(), torch.ones(2))"), "SW316")) == fires


@pytest.mark.parametrize(
    ("body", "severity"),
    [
        ("if not x.is_contiguous(): raise ValueError()\n        return x", "warning"),
        ("if x.is_contiguous(): return x\n        raise ValueError()", "warning"),
        ("if x.is_contiguous(): y = x\n        else: raise ValueError()\n        return y", "warning"),
        ("strided = x.stride(0) == 1\n        if strided: raise ValueError()\n        return x", "warning"),
        ("assert x.stride(-1) == 1, 'strided'\n        return x", "warning"),
        ("if x.is_contiguous(): return x\n        return -x", "error"),
        ("dense = x.is_contiguous()\n        assert dense or x.dim() == 2\n        return x if dense else -x", "error"),
    ],
)
def test_a_check_is_a_warning_and_a_branch_an_error(body: str, severity: str) -> None:
    (found,) = findings(MODEL.format(body, "torch.jit.trace(Model(), torch.ones(2))"), "SW316")
    assert found.severity == severity
