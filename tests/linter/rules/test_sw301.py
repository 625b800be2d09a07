"""SW301: such a statement does nothing, and its fix does what the name says."""

import ast

import numpy as np
import pytest
import torch
from hypothesis import given

from stridewise.linter.reading.checked import calls
from stridewise.linter.reading.tensors import MODULE_METHODS
from stridewise.linter.rules import sw301
from stridewise.linter.rules.sw301 import _MOVES, _PAIRED, FIRES

from ..texts import findings, fixed, rule_of, run
from .layouts import tensors

CALLS = (
    "x.contiguous()",
    "x.unsqueeze(0)",
    "x.transpose(0, -1)",
    "x.reshape(-1)",
    "x.flatten(0)",
    "x.expand(2, *x.shape)",
    "torch.transpose(x, 0, -1)",
    "torch.movedim(x, 0, -1)",
    "torch.reshape(x, (-1,))",
)
TEXTS = [
    pytest.param(f"import torch\ndef program(x: torch.Tensor):\n    {call}\n    return x\n", id=call) for call in CALLS
]


@pytest.mark.parametrize("text", TEXTS)
@given(x=tensors())
def test_the_statement_does_nothing_and_its_fix_what_it_says(text: str, x: torch.Tensor) -> None:
    (finding,) = findings(text, "SW301")
    layout, values, version = (x.shape, x.stride()), x.clone(), x._version
    after = run(text)["program"](x)
    assert after is x
    assert (x.shape, x.stride(), x._version) == (*layout, version)
    assert torch.equal(x, values)
    call = finding.site.expression
    assert call is not None
    wanted, got = eval(call, {"torch": torch, "x": x}), run(fixed(text, "SW301"))["program"](x)
    assert torch.equal(got, wanted)
    assert got.stride() == wanted.stride()


def test_what_the_examples_lose() -> None:
    first, second, third, batch, fourth = (run(example.source)["program"]() for example in FIRES)
    assert not first.is_contiguous()
    assert second.shape == (2, 3)
    assert third.dtype is torch.float32
    assert not third.is_contiguous(memory_format=torch.channels_last)
    assert not fourth.is_contiguous()
    assert [each.dtype for each in batch] == [torch.float32, torch.float32]
    first, second, third, batch = (run(example.fixed)["program"]() for example in FIRES if example.fixed is not None)
    assert first.is_contiguous()
    assert second.shape == (1, 2, 3)
    assert third.dtype is torch.float64
    assert third.is_contiguous(memory_format=torch.channels_last)
    assert [each.dtype for each in batch] == [torch.float64, torch.float16]


def test_a_module_changes_itself() -> None:
    """So a statement says nothing of one; what modules share with tensors is told from torch."""
    for name in MODULE_METHODS:
        assert hasattr(torch.nn.Module, name)
        assert hasattr(torch.Tensor, name)
    for name in ("clone", "transpose", "contiguous"):
        assert not hasattr(torch.nn.Module, name)
    for name in _MOVES:
        assert not hasattr(np.ndarray, name)
    assert _MOVES <= MODULE_METHODS
    model = torch.nn.Linear(2, 2)
    model.to(torch.float64)
    assert model.weight.dtype is torch.float64


@pytest.mark.parametrize(
    "body",
    [
        "with pytest.raises(RuntimeError):\n        x.view(7)",
        "with self.assertRaises(RuntimeError):\n        x.unsqueeze(9)",
        "try:\n        x.view(7)\n    except RuntimeError:\n        pass",
        "try:\n        x.view(-1)\n        return True\n    except RuntimeError:\n        return False",
        "try:\n        x.view(-1)\n        ok = True\n    except RuntimeError:\n        ok = False",
        "self.assertRaises(RuntimeError, lambda: x.view(7))",
        "sequence.transpose(3)",
        "x.transpose(3)",
        "frame.squeeze()",
        "start = time.perf_counter()\n    x.contiguous()\n    print(time.perf_counter() - start)",
        "for _ in range(3):\n        x.contiguous()",
        "x = x.contiguous()",
        "return x.contiguous()",
        "yield x.t()",
        "model(x).contiguous()",
        "x.add_(1).contiguous()",
        "self.transpose(1, 2)",
        "sequence.transpose('C')",
        "sequence.expand()",
        "frame.squeeze(1, inplace=True)",
    ],
)
def test_it_is_quiet(body: str) -> None:
    text = f"import time, pytest, torch\ndef program(self, x, model, sequence, frame):\n    print(x)\n    {body}\n"
    assert findings(text, "SW301") == ()


@pytest.mark.parametrize(
    ("made", "fires"),
    [
        ("self.model", False),
        ("self.model.to('cpu')", False),
        ("build().half().cuda()", False),
        ("x.transpose(0, 1)", True),
        ("x.transpose(0, 1).half()", True),
        ("x.clone()", True),
        ("x.clone().detach()", True),
        ("graph.clone()", False),
        ("graph.detach()", False),
        ("graph.detach().clone()", False),
        ("graph.unsqueeze(0).clone()", True),
        ("torch.zeros(2, 3)", True),
    ],
)
def test_to_is_discarded_where_it_is_a_tensors(made: str, fires: bool) -> None:
    text = f"import torch\ndef program(self, x, graph):\n    y = {made}\n    y.to(torch.float64)\n    return y\n"
    assert bool(findings(text, "SW301")) == fires


@pytest.mark.parametrize("call", ["cuda()", "cpu()", "half()", "float()", "double()", "bfloat16()", "to('cpu')"])
def test_a_conversion_of_a_tensor_is_discarded(call: str) -> None:
    for known in ("x: torch.Tensor", "x"):
        text = f"import torch\ndef program({known}):\n    print(x)\n    x.{call}\n    return x\n"
        assert len(findings(text, "SW301")) == (known != "x")
    if call != "cuda()":  # not every machine has a GPU
        for x in (torch.ones(2), torch.ones(2, dtype=torch.float64)):
            before = x.dtype
            assert run(text)["program"](x) is x
            assert x.dtype is before


@pytest.mark.parametrize(
    ("loop", "body", "fires"),
    [
        ("for images, masks in loader", "masks.to(device)", True),
        ("for images, masks in self.train_loader", "images.cuda()", True),
        ("for i, (x, y) in enumerate(loader)", "y.to(device)", True),
        ("for i, (x, y) in enumerate(tqdm(loader, total=9), 1)", "x.half()", True),
        ("for data, target in loaders['train']", "data.to(device)", True),
        ("for x, y in torch.utils.data.DataLoader(rows)", "x.to(device)", True),
        ("for x, y in self.val_dataloader()", "x.view(2, 3)", True),
        ("for images in loader", "images.to(device)", True),
        ("for batch in batches", "batch['image'].to(device)", True),
        ("for batch in loader", "batch[0].cuda()", True),
        ("for batch in loader", "batch.to(device)", False),
        ("for inputs in loader", "inputs.to(device)", False),
        ("for graph, y in loader", "graph.to(device)", False),
        ("for i, batch in enumerate(loader)", "batch.to(device)", False),
        ("for i, batch in enumerate(loader)", "i.to(device)", False),
        ("for x, y in loader", "x = Model(x); x.to(device)", False),
        ("for x, y in loader", "model.to(device)", False),
        ("for x, y in loader", "x = x.to(device)", False),
        ("for m in models", "m.to(device)", False),
        ("for name, m in model_loader", "m.to(device)", False),
        ("for name, module in model.named_modules()", "module.half()", False),
        ("for a, b in pairs", "a.to(device)", False),
    ],
)
def test_what_a_loader_gives_is_a_tensor(loop: str, body: str, fires: bool) -> None:
    arguments = "self, loader, loaders, batches, rows, pairs, models, model, model_loader, device"
    text = f"import torch\ndef program({arguments}):\n    {loop}:\n        {body}\n        print()\n"
    assert bool(findings(text, "SW301")) == fires


@pytest.mark.parametrize(
    ("body", "fires"),
    [
        ("ax.view(1)", False),
        ("fig.expand(2)", False),
        ("tree.permute()", False),
        ("tree.permute(2)", False),
        ("self.chart.view(1, 2)", False),
        ("frame.squeeze(1)", False),
        ("mask.view(2, 3)", True),
        ("self.attention_mask.expand(2)", True),
        ("encoder_attention_mask.unsqueeze(1)", True),
        ("chart.view(-1, 2)", True),
        ("chart.permute(0, 2, 1)", True),
        ("chart.permute((0, 2, 1))", True),
        ("chart.transpose(1, 2)", True),
        ("print(chart.dtype)\n    chart.view(2)", True),
    ],
)
def test_names_that_others_have_too_need_a_sign_of_a_tensor(body: str, fires: bool) -> None:
    arguments = "self, ax, fig, tree, frame, mask, encoder_attention_mask, chart"
    text = f"import torch\ndef program({arguments}):\n    print(self)\n    {body}\n"
    assert bool(findings(text, "SW301")) == fires


def test_what_forward_is_given_is_a_tensor() -> None:
    text = (
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, it):\n        it.view(3)\n        return it\n"
    )
    assert len(findings(text, "SW301")) == 1
    assert findings(text.replace("forward", "show"), "SW301") == ()


def test_no_fix_binds_what_belongs_elsewhere() -> None:
    text = "import torch\nx = torch.zeros(2, 3).t()\ndef program():\n    x.contiguous()\n    return x\n"
    (finding,) = findings(text, "SW301")
    assert finding.edits == ()


def test_what_it_says() -> None:
    (finding,) = findings(FIRES[0].source, "SW301")
    assert finding.message == (
        "`x.contiguous()` leaves `x` as it is, and what it gives is thrown away: the statement does nothing."
    )
    assert finding.severity == "error"
    assert rule_of("SW301").default


def test_a_tensor_is_transposed_by_two_numbers() -> None:
    for name in _PAIRED:
        with pytest.raises(TypeError):
            getattr(torch.zeros(2, 3), name)(1)


def test_a_squeeze_is_thrown_away() -> None:
    text = "import torch\ndef program(x: torch.Tensor):\n    print(x)\n    x.squeeze()\n    return x\n"
    assert len(findings(text, "SW301")) == 1
    assert run(text)["program"](torch.zeros(1, 2)).shape == (1, 2)
    assert run(fixed(text, "SW301"))["program"](torch.zeros(1, 2)).shape == (2,)


@pytest.mark.parametrize(
    "body",
    [
        "try:\n        x.contiguous()\n        x.sum()\n    except RuntimeError:\n        pass",
        "try:\n        if x.sum():\n            x.contiguous()\n        f()\n    except RuntimeError:\n        pass",
        "try:\n        with torch.no_grad():\n            x.contiguous()\n    except RuntimeError:\n        pass",
        "try:\n        x.sum()\n    except RuntimeError:\n        x.contiguous()",
    ],
)
def test_it_is_not_tried_where_something_else_follows(body: str) -> None:
    text = f"import torch\ndef program(x):\n    {body}\n    return x\n"
    assert len(findings(text, "SW301")) == 1


def test_a_scope_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[object] = []

    def noted(parts: list[ast.AST], names: tuple[str, ...]) -> bool:
        walked.extend(parts)
        return calls(parts, names)

    monkeypatch.setattr(sw301, "calls", noted)
    text = "import torch\ndef program(x: torch.Tensor):\n" + "    x.t()\n" * 50 + "    return x\n"
    assert len(findings(text, "SW301")) == 50
    assert len(walked) == 1
