"""Kinds that move a copy to where a stream starts, out of a loop, or away: what their examples do not say."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from stridewise.repair.context import Context
from stridewise.repair.kinds import Kind
from stridewise.repair.kinds.swap_operands import COMMUTATIVE
from stridewise.repair.reading.places import SPLITS

from .running import context_of, edited, load, proposals

COPY, CHANNELS_LAST, HOIST, SWAP = (
    Kind.from_module(importlib.import_module(f"stridewise.repair.kinds.{name}"))
    for name in ("copy_at_origin", "channels_last_at_origin", "hoist", "swap_operands")
)
KINDS = (COPY, CHANNELS_LAST, HOIST, SWAP)

HEAD = """
import torch
norm = torch.nn.LayerNorm(64)
other = torch.nn.LayerNorm(64)
x = torch.randn(8, 64, 32)
strided = torch.randn(64, 32).t()
dense = torch.randn(32, 64)
"""


def texts(kind: Kind, folder: Path, source: str) -> list[str]:
    """What the candidates' edits make of a source; each compiles, runs, and gives the same values."""
    module = load(folder, source)
    context = context_of(module)
    found = [edited(context, candidate) for candidate in proposals(kind, context)]
    wanted = results(load(folder, source, "unchanged"))
    for number, text in enumerate(found):
        for one, two in zip(wanted, results(load(folder, text, f"edited{number}")), strict=True):
            torch.testing.assert_close(one, two)
    return found


def results(module: ModuleType) -> list[torch.Tensor]:
    """The tensors that a program gives."""
    leaves, _ = torch.utils._pytree.tree_flatten(module.program())
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def after(kind: Kind, folder: Path, body: str) -> list[str]:
    return [text.removeprefix(HEAD) for text in texts(kind, folder, HEAD + body)]


# -- what torch does --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMUTATIVE)
def test_swapped_operands_give_equal_bits_in_the_order_of_the_first(name: str) -> None:
    function = getattr(torch, name)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 1e-45, 3e38])
    left, right = (part.contiguous() for part in torch.broadcast_tensors(special[:, None], special))
    for dtype in (torch.float32, torch.bfloat16):
        one, two = left.to(dtype), right.to(dtype)
        bits = torch.int32 if dtype == torch.float32 else torch.int16
        assert torch.equal(function(one, two).view(bits), function(two, one).view(bits))
    a, b = torch.randn(4, 6), torch.randn(6, 4).t()
    assert function(a, b).stride() == a.stride()
    assert function(b, a).stride() == b.stride()
    assert torch.equal(function(a, b), function(b, a))
    assert getattr(a, name)(b).stride() == a.stride()


def test_what_splits_gives_a_sequence() -> None:
    a = torch.randn(2, 2, 2)
    arguments: dict[str, tuple[Any, ...]] = dict.fromkeys(SPLITS, (a, 1))
    arguments |= {"split_with_sizes": (a, [1, 1]), "broadcast_tensors": (a,)}
    assert len(torch.meshgrid(a[0, 0], indexing="ij")) == 1
    del arguments["meshgrid"]
    for name, given in arguments.items():
        function = getattr(torch, name, None) or getattr(torch.Tensor, name)
        assert isinstance(function(*given), tuple | list), name


# -- what the edits are for -------------------------------------------------------------------------------------------


def examples() -> list[Any]:
    return [
        pytest.param(before, after, id=f"{kind.name}-{number}")
        for kind in KINDS
        for number, (before, after) in enumerate(kind.examples)
    ]


@pytest.mark.parametrize(("before", "after"), examples())
def test_what_is_proposed_leaves_fewer_copies_and_the_same_values(before: str, after: str, tmp_path: Path) -> None:
    old, new = load(tmp_path, before, "before"), load(tmp_path, after, "after")
    assert len(context_of(new).case.taxed) < len(context_of(old).case.taxed)
    for one, two in zip(results(old), results(new), strict=True):
        torch.testing.assert_close(one, two)


# -- copy-at-origin ---------------------------------------------------------------------------------------------------


def test_equal_expressions_of_a_function_are_edited_together(tmp_path: Path) -> None:
    body = """def program():
    y = x.permute(0, 2, 1)
    a = norm(y), other(y)
    y = x.permute(0, 2, 1)
    return a, norm(y), other(y)
"""
    assert after(COPY, tmp_path, body) == [body.replace("x.permute(0, 2, 1)", "x.permute(0, 2, 1).contiguous()")]


def test_the_last_expression_that_all_payers_share_is_another_place(tmp_path: Path) -> None:
    body = """def program():
    y = x.permute(0, 2, 1)
    y = y[:6] * 2
    return norm(y), other(y)
"""
    assert after(COPY, tmp_path, body) == [
        body.replace("permute(0, 2, 1)", "permute(0, 2, 1).contiguous()"),
        body.replace("y[:6] * 2", "(y[:6] * 2).contiguous()"),
    ]


def test_a_chain_of_views_that_nothing_else_takes_is_one_place(tmp_path: Path) -> None:
    body = """def program():
    y = x.transpose(1, 2).unsqueeze(1).squeeze(1)
    return norm(y), other(y)
"""
    (text,) = after(COPY, tmp_path, body)
    assert "x.transpose(1, 2).contiguous().unsqueeze" in text


def test_calls_of_the_expression_that_nobody_pays_for_count(tmp_path: Path) -> None:
    body = """def turned(y):
    return y.transpose(1, 2)
def program():
    y = turned(x)
    return norm(y), other(y), [turned(x) for _ in range({times})]
"""
    assert len(after(COPY, tmp_path, body.format(times=0))) == 1
    assert after(COPY, tmp_path, body.format(times=3)) == []


def test_a_copy_in_a_comprehension_or_a_lambda_stays_there(tmp_path: Path) -> None:
    body = """def program():
    turned = lambda y: y.transpose(1, 2)
    return [(norm(y), other(y)) for y in [turned(x)]]
"""
    assert after(COPY, tmp_path, body) == [body.replace("y.transpose(1, 2)", "y.transpose(1, 2).contiguous()")]


def test_an_in_place_origin_gets_a_statement_of_its_own(tmp_path: Path) -> None:
    body = """def program():
    y = x * 1
    y.transpose_(1, 2)
    return norm(y), other(y)
"""
    expected = body.replace("    return", "    y = y.contiguous()\n    return")
    assert expected in after(COPY, tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        """def program():  # up to Python 3.11 nobody knows where the parts of an f-string are
    return f"{[(norm(y), other(y)) for y in [x.transpose(1, 2)]]}"
""",
        """def program():  # what is paid for has no name
    parts = x.transpose(1, 2).tensor_split(2)
    return norm(parts[0]), other(parts[0])
""",
        """def program():  # a nested function has the name
    q, k = x.mT.chunk(2, 1)
    return (lambda: norm(k))(), other(k), q
""",
        """def program():  # it is no function's name
    global q
    q, k = x.mT.chunk(2, 1)
    return norm(q), other(q), k
""",
    ],
    ids=["f-string", "parts", "captured", "global"],
)
def test_there_is_no_clean_way(body: str, tmp_path: Path) -> None:
    assert after(COPY, tmp_path, body) == []


def test_what_a_module_of_torch_gives_is_copied_behind_its_call(tmp_path: Path) -> None:
    body = """turn = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Unflatten(1, (8, 8)))
images = torch.randn(8, 64, 4, 4).permute(0, 1, 3, 2)
def program():
    y = turn(images)
    return torch.softmax(y, 0), torch.softmax(y, 1)
"""
    assert after(COPY, tmp_path, body) == [body.replace("turn(images)", "turn(images).contiguous()")]


def test_what_starts_inside_a_module_of_torch_is_not_what_the_module_gives(tmp_path: Path) -> None:
    body = """layers = [torch.nn.Conv3d(4, 4, 3), torch.nn.InstanceNorm3d(4), torch.nn.Conv3d(4, 4, 3), torch.nn.ReLU()]
net = torch.nn.Sequential(*layers).to(memory_format=torch.channels_last_3d)
images = torch.randn(2, 4, 8, 8, 8).to(memory_format=torch.channels_last_3d)
def program():
    net(images).square().mean().backward()
"""
    context = context_of(load(tmp_path, HEAD + body))
    streams = filter(None, context.case.streams)
    assert any(stream.origin.kind == "call" and stream.goal.channels_last for stream in streams)
    assert proposals(CHANNELS_LAST, context) == []


MODEL = """import torch
class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
    def forward(self, hidden, *, scale=1):
        return self.norm(hidden) + scale * self.norm(hidden * 2)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, {parameter}):
        return self.inner({argument})
model = Model()
x = torch.randn(8, 64, 32).mT
def program():
    return model({given})
"""


@pytest.mark.parametrize(
    ("parameter", "argument", "given", "line"),
    [
        ("x", "x", "x", "        x = x.contiguous()\n        return self.inner"),
        ("x, y=None", "y", "None, y=x", "        y = y.contiguous()\n        return self.inner"),
        ("*x", "x[0]", "x", "        hidden = hidden.contiguous()\n        return self.norm"),
        ("x", 'x["x"]', '{"x": x}', "        hidden = hidden.contiguous()\n        return self.norm"),
    ],
)
def test_what_the_model_is_given_is_copied_where_it_first_has_a_name(
    parameter: str, argument: str, given: str, line: str, tmp_path: Path
) -> None:
    (text,) = texts(COPY, tmp_path, MODEL.format(parameter=parameter, argument=argument, given=given))
    assert line in text


# -- hoist ------------------------------------------------------------------------------------------------------------


def hoisted(folder: Path, body: str) -> list[str]:
    """`step(table)`, which is called with a strided tensor."""
    return after(HOIST, folder, f"def step(table):\n{body}def program():\n    return step(strided)\n")


def test_it_leaves_every_loop_that_binds_nothing(tmp_path: Path) -> None:
    body = """    total = 0
    for _ in range(2):
        for _ in range(2):
            if total is not None:
                total = total + norm(table)
    return total
"""
    (text,) = hoisted(tmp_path, body)
    assert "    total = 0\n    table = table.contiguous()\n    for _ in" in text


def test_it_stays_in_the_loop_that_binds_the_name(tmp_path: Path) -> None:
    body = """def step(tables):
    total = 0
    for table in tables:
        for _ in range(2):
            total = total + norm(table)
    return total
def program():
    return step([strided, torch.ones(64, 32).t()])
"""
    expected = body.replace("        for _", "        table = table.contiguous()\n        for _")
    assert expected in after(HOIST, tmp_path, body)


@pytest.mark.parametrize(
    "body",
    {
        "rebound": "    a = norm(table)\n    table = table * 1\n    return a, norm(table)\n",
        "deleted": "    for _ in 1, 2:\n        norm(table)\n        a = table\n        del table\n        table = a\n",
        "written": "    a = norm(table), other(table)\n    table.mul_(2)\n    return a\n",
        "in a module": "    a = norm(table), other(table)\n    torch.nn.ReLU(inplace=True)(table)\n    return a\n",
        "stored": "    a = norm(table), other(table)\n    table[0] = 1\n    return a\n",
        "out": "    a = norm(table), other(table)\n    torch.add(table, 1, out=table)\n    return a\n",
        "augmented": "    a = norm(table), other(table)\n    table += 1\n    return a\n",
        "captured": "    a = norm(table), other(table)\n    return a, (lambda: table)()\n",
        "asked": "    for _ in range(2):\n        if table is not None:\n            norm(table)\n",
        "kept": "    a = [table.mT.mT.clone(memory_format=torch.contiguous_format) for _ in range(2)]\n    return a\n",
        "kept and written": "    for _ in range(2):\n        a = table.contiguous()\n        a.mul_(2)\n    return a\n",
        "once": "    return norm(table)\n",
        "comprehension": "    return [norm(table) for _ in range(2)]\n",
    }.items(),
    ids=lambda item: item[0],
)
def test_it_does_not_hoist(body: tuple[str, str], tmp_path: Path) -> None:
    assert hoisted(tmp_path, body[1]) == []


def test_a_name_of_the_module_is_not_bound_in_a_function(tmp_path: Path) -> None:
    body = """def program():
    return norm(strided), other(strided)
"""
    expected = """def program():
    strided_copy = strided.contiguous()
    return norm(strided_copy), other(strided_copy)
"""
    assert after(HOIST, tmp_path, body) == [expected]


def test_a_name_may_be_bound_anew_when_its_last_copy_is_made(tmp_path: Path) -> None:
    body = """    a = norm(table)
    table = other(table)
    del a
    return table
"""
    (text,) = hoisted(tmp_path, body)
    assert "    table = table.contiguous()\n    a = norm(table)\n" in text


def test_a_copy_that_a_loop_asks_for_is_made_before_it(tmp_path: Path) -> None:
    body = """    total = 0
    for _ in range(2):
        total = total + table.to(torch.float64, memory_format=torch.contiguous_format)
    return total
"""
    (text,) = hoisted(tmp_path, body)
    line = "table_copy = table.to(torch.float64, memory_format=torch.contiguous_format)"
    assert f"    {line}\n    for _ in range(2):\n        total = total + table_copy\n" in text


def test_an_argument_by_name_is_found(tmp_path: Path) -> None:
    body = """    for _ in range(2):
        torch.nn.functional.layer_norm(normalized_shape=(64,), input=table.mT.mT)
"""
    (text,) = hoisted(tmp_path, body)
    assert "input=table_copy)" in text
    assert "    table_copy = table.mT.mT.contiguous()\n    for" in text


@pytest.mark.parametrize("call", ["torch.dropout(table, 0.5, True).t()", "made(table)"])
def test_what_runs_more_than_views_is_evaluated_each_time(call: str, tmp_path: Path) -> None:
    body = f"""    made = lambda y: y.t().t()
    for _ in range(2):
        norm({call} if False else made(table))
"""
    assert hoisted(tmp_path, body) == []


@pytest.mark.parametrize(
    ("made", "proposes"),
    [
        ("self.register_buffer('table', torch.randn(64, 32).t())", True),
        ("self.register_parameter('table', torch.nn.Parameter(torch.randn(64, 32).t()))", True),
        ("self.table = torch.nn.Parameter(data=torch.randn(64, 32).t())", False),
        ("self.table = made()", False),
        ("self.table = made(); self.table = torch.nn.Parameter(torch.randn(64, 32).t())", True),
        ("for _ in range(2): self.table, self.other = made(), made()", False),
    ],
)
def test_a_stored_tensor_is_made_in_order_where_it_is_kept(made: str, proposes: bool, tmp_path: Path) -> None:
    source = f"""import torch
def made():
    return torch.nn.Parameter(torch.randn(64, 32).t())
class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {made}
    def forward(self, x):
        return torch.nn.functional.layer_norm(self.table, (64,)) + x
model = torch.nn.Sequential(Part(), Part())
x = torch.randn(32, 64)
def program():
    return model(x)
"""
    found = proposals(HOIST, context_of(load(tmp_path, source)))
    assert bool(found) == proposes
    for candidate in found:
        assert [conversion.path for conversion in candidate.conversions] == ["0.table", "1.table"]
        assert {conversion.what for conversion in candidate.conversions} == {
            "buffer" if "register_buffer" in made else "parameter"
        }


# -- swap-operands ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("strided + dense", "dense + strided"),
        ("strided * 2 + dense", "dense + strided * 2"),
        ("strided + dense * 2", "dense * 2 + strided"),
        ("(strided + 1) + dense", "dense + (strided + 1)"),
        ("strided + 1 + dense", "dense + (strided + 1)"),
        ("(strided) * (dense + 1)", "(dense + 1) * (strided)"),
        ("(\n        strided\n        + dense\n    )", "(\n        dense\n        + strided\n    )"),
        ("strided.add(dense - 1)", "(dense - 1).add(strided)"),
        ("strided.add((dense - 1))", "(dense - 1).add((strided))"),
        ("torch.mul(strided, dense)", "torch.mul(dense, strided)"),
        ("strided[:] + dense[:]", "dense[:] + strided[:]"),
    ],
)
def test_operands_are_swapped(before: str, expected: str, tmp_path: Path) -> None:
    body = "def program():\n    return norm({})\n"
    assert after(SWAP, tmp_path, body.format(before)) == [body.format(expected)]


@pytest.mark.parametrize(
    "expression",
    [
        "strided + (  # why\n        dense)",
        "made(strided) + made(dense)",
        "strided + made(dense)",  # `made` might bind the module's `strided`
        "(a := strided) + dense",
        "strided + dense[:1]",
        "dense + strided.contiguous()",
        "torch.add(strided, other=dense)",
        "torch.maximum(strided, dense)",
        "[*map(torch.add, [strided], [dense])][0]",
    ],
)
def test_operands_are_not_swapped(expression: str, tmp_path: Path) -> None:
    body = f"def made(y):\n    return y * 1\ndef program():\n    return norm({expression})\n"
    assert after(SWAP, tmp_path, body) == []


# -- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_nothing_is_proposed_for_source_that_is_gone(kind: Kind, tmp_path: Path) -> None:
    context = context_of(load(tmp_path, kind.examples[0][0]))
    blind = Context(context.report, context.case, context.live, lambda name: None)
    assert proposals(kind, blind) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_nothing_is_proposed_where_other_source_stands_by_now(kind: Kind, tmp_path: Path) -> None:
    before, _ = kind.examples[0]
    context = context_of(load(tmp_path, before))
    path = tmp_path / "example.py"
    path.write_text(path.read_text().replace("x", "z").replace("y", "w").replace("table", "chair"))
    assert [candidate for candidate in proposals(kind, context) if "forward" not in candidate.what] == []
