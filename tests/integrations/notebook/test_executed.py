"""Notebooks that a kernel executes, as they are for a reader."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython", reason='IPython is in the extra "notebook"')

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[3] / "examples" / "notebook.ipynb"

CELLS = {
    "load": "%load_ext stridewise",
    "model": """\
import torch
from torch import nn
import stridewise

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
    def forward(self, x):
        return self.norm(x.transpose(1, 2))

model, x = Encoder(), torch.randn(8, 64, 256)
image = torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last)
""",
    "recorded": """\
%%stridewise --name report --min-share 0%
print('before')
for _ in range(3):
    y = model(x)
y.shape
""",
    "kept": "print([finding.site.where for finding in report.findings])",
    "fails": "%%stridewise --min-share 0%\ny = model(x)\nmodel(x[:, :3])",
    "interrupted": """\
%%stridewise --min-share 0%
import os, signal
y = model(x)
os.kill(os.getpid(), signal.SIGINT)
for _ in range(10_000):
    y = y + 1
""",
    "over budget": "%%stridewise --budget copies=0\ny = model(x)",
    "awaits": "%%stridewise\nimport asyncio\nawait asyncio.sleep(0)\nmodel(x).shape",
    "nested": "with stridewise.record():\n    %stridewise\n    model(x)",
    "explain": "%stridewise_explain x[..., ::2]",
    "by hand": "with stridewise.record() as recording:\n    model(x)\nstridewise.analyze(recording, min_share=0)",
    "below capture": """\
%%capture c

class Below(nn.Module):
    def forward(self, x):
        return x.mT.contiguous()
""",
    "recorded below": "%%stridewise --name below\n%%capture c\n\ny = 1\nBelow()(x); z = x.mT.contiguous()",
    "kept below": "print([copy.site.where for copy in below.copies])",
    "timed": "%%time\n%stridewise --name timed --min-share 0%\n\nz = x.mT.contiguous()\nz.shape",
    "kept timed": "print([(finding.site.where, finding.site.expression) for finding in timed.findings])",
    "hooks": "import sys; 'showtraceback' in vars(get_ipython()), sys.displayhook is get_ipython().displayhook",
    "show": "stridewise.show_layout()",
    "badge": "image",
    "two": "display(image, torch.nn.Parameter(image))",
    "hide": "stridewise.hide_layout()",
    "hidden": "image",
    "block": "with stridewise.show_layout():\n    display(image[..., ::2])",
    "after": "image",
    "diagnose": "stridewise.diagnose(model, x)",
    "preflight": "stridewise.preflight(model)",
    "diff": "stridewise.diff(recording, recording)",
    "check": "stridewise.check_op(torch.relu, image)",
    "fix": "stridewise.fix(model, x, time_limit=2)",
}


@pytest.fixture(scope="module")
def cells(execute: Callable[[Any], Any]) -> dict[str, Any]:
    return dict(zip(CELLS, execute(list(CELLS.values())).cells, strict=True))


def texts(cell: Any) -> list[str]:
    """What a cell shows: streams, values and errors, in order."""
    shown = []
    for output in cell.outputs:
        if output.output_type == "stream":
            shown.append(output.text)
        elif output.output_type == "error":
            shown.append("\n".join(output.traceback))
        else:
            shown.append(output.data["text/plain"])
    return [re.sub(r"\x1b\[[0-9;]*m", "", text) for text in shown]


def test_a_recorded_cell(cells: dict[str, Any]) -> None:
    assert texts(cells["load"]) == texts(cells["model"]) == []
    printed, value, report = texts(cells["recorded"])
    assert (printed, value) == ("before\n", "torch.Size([8, 256, 64])")
    assert "In [2]:10:16, in Encoder.forward" in report
    assert re.search(r"10 │ return self\.norm\(x\.transpose\(1, 2\)\)\n +│ +\^+\n", report)
    assert texts(cells["kept"]) == ["['In [2]:10']\n"]


def test_an_exception_is_the_cells_own(cells: dict[str, Any]) -> None:
    error, report = texts(cells["fails"])
    assert error.splitlines()[1].startswith("RuntimeError")
    assert re.search(r"Cell In\[5\], line 3\n", error)
    assert "stridewise/" not in error
    assert "In [2]:10" in report


def test_an_interrupt_leaves_what_was_recorded(cells: dict[str, Any]) -> None:
    error, report = texts(cells["interrupted"])
    assert error.splitlines()[1].startswith("KeyboardInterrupt")
    assert re.search(r"Cell In\[6\], line [456]\n", error)
    assert "stridewise/" not in error
    assert "In [2]:10" in report


def test_a_budget_fails_the_cell(cells: dict[str, Any]) -> None:
    report, error = texts(cells["over budget"])
    assert error == "BudgetExceeded: copies: 1 a step, the budget allows 0"
    assert report.startswith("Layout ")
    assert cells["over budget"].outputs[1].output_type == "error"
    assert cells["over budget"].outputs[1].ename == "BudgetExceeded"


def test_await(cells: dict[str, Any]) -> None:
    value, report = texts(cells["awaits"])
    assert value == "torch.Size([8, 256, 64])"
    assert report.startswith("Layout ")


def test_a_mistake_is_one_line(cells: dict[str, Any]) -> None:
    said = "UsageError: A recording is running already. End it before another starts; they can't be nested.\n"
    assert texts(cells["nested"]) == [said]


def test_explain_and_record_by_hand(cells: dict[str, Any]) -> None:
    assert texts(cells["explain"])[0].startswith("gapped: ")
    assert "In [2]:10" in texts(cells["by hand"])[0]
    assert texts(cells["hooks"]) == ["(False, True)"]


def test_a_place_below_another_cell_magic(cells: dict[str, Any]) -> None:
    numbers = {name: cells[name].execution_count for name in ("below capture", "recorded below", "timed")}
    places = [f"In [{numbers['below capture']}]:5", f"In [{numbers['recorded below']}]:5"]
    assert texts(cells["kept below"]) == [f"{places}\n"]
    assert texts(cells["kept timed"]) == [f"[('In [{numbers['timed']}]:4', 'x.mT.contiguous()')]\n"]


def test_no_place_is_in_a_temporary_folder(cells: dict[str, Any]) -> None:
    shown = [str(output) for cell in cells.values() for output in cell.outputs]
    assert not [text for text in shown if "ipykernel_" in text]


def test_tensors_show_their_layout(cells: dict[str, Any]) -> None:
    assert texts(cells["show"]) == ["Tensors show their layout. stridewise.hide_layout() ends it."]
    (shown,) = (output.data for output in cells["badge"].outputs)
    badge, _, values = shown["text/plain"].partition("\n")
    facts = "sizes (1, 2, 2, 2) · strides (8, 1, 4, 2) · float32 on cpu · all 32 B of its storage"
    assert badge == f"channels_last · {facts}"
    assert values.startswith("tensor([[[[1., 1.],")
    assert "<strong>channels_last</strong>" in shown["text/html"]
    assert values in shown["text/html"]
    two = [output.data["text/html"] for output in cells["two"].outputs]
    assert ["<strong>channels_last</strong>" in html for html in two] == [True, True]


def test_and_no_longer(cells: dict[str, Any]) -> None:
    assert cells["hide"].outputs == []
    assert [list(output.data) for output in cells["hidden"].outputs] == [["text/plain"]]
    assert "<strong>gapped</strong>" in cells["block"].outputs[0].data["text/html"]
    assert [list(output.data) for output in cells["after"].outputs] == [["text/plain"]]


@pytest.mark.parametrize("name", ["by hand", "diagnose", "preflight", "diff", "check", "fix"])
def test_results_show_themselves(cells: dict[str, Any], name: str) -> None:
    (output,) = cells[name].outputs
    assert output.data["text/plain"]
    html = output.data["text/html"]
    assert "<script" not in html
    assert "<html" not in html
    assert len(html) < 200_000


def test_the_example_runs(execute: Callable[[Any], Any]) -> None:
    import nbformat

    notebook = nbformat.read(EXAMPLE, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.id for cell in notebook.cells)
    assert all(not cell.outputs and cell.execution_count is None for cell in code)

    shown = {cell.id: texts(cell) for cell in execute(notebook).cells if cell.cell_type == "code"}
    assert "In [2]:15" in shown["recorded"][1]
    assert shown["kept"] == ["(6, ['In [2]:15'])"]
    assert shown["show"][0].startswith("channels_last · ")
    assert shown["show"][1].startswith("gapped · ")
    assert "In [2]:15" in shown["repair"][0]  # proposed, tried, or a finding that stays: by how the trials end
    assert shown["applied"][0].isdigit()
