"""Graphs, stack traces and names as the compiler prints them."""

from pathlib import Path

import pytest

from stridewise.compiled import graph_text, names, stacks
from stridewise.compiled.graph_text import Place
from stridewise.compiled.read import read
from stridewise.compiled.trace_log import Entry
from stridewise.findings import Site
from stridewise.results.compiled import Strides

GRAPH = """class <lambda>(torch.nn.Module):
    def forward(
        self,
        arg0_1: "f32[2, 64][64, 1]cpu",  # PlainAOTInput(idx=0)
        arg1_1: "bf16[64, s0][s0, 1]cuda:0",
        arg2_1: "Sym(s0)",
    ):
        # File: /home/me/model.py:12 in forward, code: y = x.t().contiguous()
        permute: "f32[64, 2][1, 64]cpu" = torch.ops.aten.permute.default(arg0_1, [1, 0]);  arg0_1 = None
        clone: "f32[64, 2][2, 1]cpu" = torch.ops.aten.clone.default(permute, memory_format = torch.contiguous_format)

        # No stacktrace found for following nodes
        var_mean = torch.ops.aten.var_mean.correction(clone, [0], correction = 0)
        getitem: "f32[2][1]cpu" = var_mean[0]
        return (getitem,)
"""


def test_nodes_have_strides_and_places() -> None:
    found = graph_text.nodes(GRAPH)
    assert list(found) == ["arg0_1", "arg1_1", "arg2_1", "permute", "clone", "var_mean", "getitem"]
    assert found["arg1_1"].strides == Strides((64, "s0"), ("s0", 1), "bfloat16")
    assert found["arg2_1"].strides is None
    assert found["clone"].arguments == ("permute",)
    assert found["clone"].strides == Strides((64, 2), (2, 1), "float32")
    assert found["clone"].place == Place("/home/me/model.py", 12, "forward", "y = x.t().contiguous()")
    assert found["var_mean"].place is None
    assert found["getitem"].arguments == ("var_mean",)


@pytest.mark.parametrize(
    "text", ["", "garbage", "def forward(self", '    x: "f32[" = torch.ops.aten.add(', "# File: :x"]
)
def test_odd_graphs_are_no_error(text: str) -> None:
    graph_text.nodes(text)


def trace(line: str, start: str, file: str = "model.py") -> str:
    at = line.index(start)
    return f'  File "{file}", line 1, in forward\n    {line}\n    {" " * at}{"^" * (len(line) - at)}\n'


@pytest.mark.parametrize(
    ("line", "start", "expression"),
    [
        ("return torch.relu(self.conv(x))", "self.conv", "self.conv(x)"),
        ("q = q.transpose(1, 2).contiguous(); k = k.t()", "q.transpose", "q.transpose(1, 2).contiguous()"),
        ("if x.is_contiguous():", "x.is", "x.is_contiguous()"),
        ("y = a @ b + c", "a @", "a @ b + c"),
        ("    ), self.fc(x.mean(1)))", "self.fc", "self.fc(x.mean(1))"),
        ("größe = x.view(-1)", "x.view", "x.view(-1)"),
    ],
)
def test_marks_begin_right_and_may_go_on_too_far(line: str, start: str, expression: str) -> None:
    (site,) = stacks.sites_of(trace(line.strip(), start))
    assert site.expression == expression


def test_columns_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.py"
    file.write_text("        größe = x.view(-1)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (site,) = stacks.sites_of(trace("größe = x.view(-1)", "x.view", str(file)))
    assert (site.file, site.line, site.column, site.end_column) == ("model.py", 1, 18, 28)


def test_a_file_that_was_changed_since_gives_no_columns(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("other\n")
    (site,) = stacks.sites_of(trace("y = x.view(-1)", "x.view", str(file)))
    assert (site.column, site.expression) == (None, "x.view(-1)")


def test_results_are_in_order() -> None:
    text = "def forward(self, a):\n    return (sum_1, None, primals_2, 3)\n"
    assert graph_text.results(text) == ("sum_1", "primals_2")
    assert graph_text.results("") == ()


def test_an_expression_is_narrowed_to_a_call() -> None:
    site = Site(file="a.py", line=1, column=4, end_column=30, expression="x.permute(0, 1).reshape(-1)")
    assert stacks.narrowed(site, "permute").expression == "x.permute(0, 1)"
    assert stacks.narrowed(site, "permute").end_column == 19
    assert stacks.narrowed(site, "view") == site


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("L['x']", "input `x`"),
        ("L['self']._modules['enc']._modules['0']._parameters['weight']", "parameter `enc.0.weight`"),
        ("L['self']._modules['bn']._buffers['running_mean']", "buffer `bn.running_mean`"),
        ("L['batch']['image'][0]", "input `batch['image'][0]`"),
        ("L['args'][1]", "input `mask`"),
        ("G['table']", "input `table`"),
        ("whatever", "input `whatever`"),
    ],
)
def test_sources_in_words(source: str, words: str) -> None:
    assert names.described(source, {"L['args'][1]": "mask"}) == words


def test_placeholders_are_found_by_their_sources() -> None:
    sources = ["L['x']", "L['s']._modules['c1']._parameters['weight']"]
    found = names.of_inputs(["L_s_modules_c1_parameters_weight_", "L_x_", "L_y_"], sources, {})
    assert found == {"L_s_modules_c1_parameters_weight_": "parameter `c1.weight`", "L_x_": "input `x`"}


def reasons(text: str) -> Entry:
    return Entry("recompile_reasons", {}, "0/1", 0, text)


@pytest.mark.parametrize(
    ("text", "tensor", "about"),
    [
        ("0/0: tensor 'x' stride mismatch at index 0. expected 8, actual 1", "input `x`", True),
        ("0/0: tensor 'x' size mismatch at index 0. expected 8, actual 4", "input `x`", False),
        (
            "0/1: tensor 'b['k']' size mismatch\n0/0: tensor 'b['k']' stride mismatch at index 0.",
            "input `b['k']`",
            True,
        ),
        ("- 0/0: L['n'] == 3", None, False),
        ("- 0/0: L['n'] == 2  # if n > 3: x = x.contiguous()  # a.py:3 in f", None, False),
        ("- 0/0: L['stride'] == 2", None, False),
        ("- 0/0: L['x'].stride()[0] == 8  # a.py:3 in f", "input `x`", True),
    ],
)
def test_reasons_for_recompiling(text: str, tensor: str | None, about: bool) -> None:
    (found,) = read([reasons(text)]).recompiles
    assert (found.tensor, found.about_strides) == (tensor, about)


def test_a_break_that_has_no_trace_has_its_line() -> None:
    entry = Entry("dynamo_graph_break_reason", {}, "0/0", 0, "Graph break in user code at a.py:7\nReason: odd\n")
    (found,) = read([entry]).breaks
    assert (found.site.file, found.site.line, found.reason, found.layout_call) == ("a.py", 7, "odd", None)
