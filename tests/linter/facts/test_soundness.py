"""Whatever the interpreter is sure of holds when the program is run: random programs, each expression watched."""

import ast
import copy
import random
import warnings
from typing import Any, NamedTuple

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stridewise.linter.facts.value import Value

from .reading import module_of, scope_of

NAMES = ("a", "b", "c", "d")
EXPRESSIONS = (
    *("{x}.transpose(0, 1)", "{x}.transpose(-1, -2)", "{x}.transpose(0, -1)", "{x}.mT", "{x}.permute(1, 0, 2)"),
    *(
        "{x}.movedim(0, -1)",
        "torch.transpose({x}, 0, 1)",
        "torch.transpose(input={x}, dim0=1, dim1=0)",
        "{x}.swapaxes(1, 0)",
    ),
    *("{x}.permute((2, 1, 0))", "{x}.permute(0, 1, 2)", "{x}.transpose(1, 1)", "{x}.transpose(0, 1).transpose(0, 1)"),
    *("{x}.contiguous()", "{x}.clone()", "{x}.clone(memory_format=torch.contiguous_format)", "{x}.relu()", "{x} + 1"),
    *("{x} + {y}", "{x} * {y}", "-{x}", "{x} > 0", "{x}.add({y})", "torch.where({x} > 0, {x}, {y})", "{x}.softmax(-1)"),
    *("{x}.sum(0)", "{x}.mean(-1, keepdim=True)", "{x}.cumsum(0)", "{x}.amax(1)", "{x}.argmax(-1)"),
    *(
        "{x}.reshape(-1, 2)",
        "{x}.view(-1, 2)",
        "{x}.flatten()",
        "{x}.flatten(0, 1)",
        "{x}.unsqueeze(0)",
        "{x}.view_as({x})",
    ),
    *("{x}.squeeze()", "{x}.detach()", "{x}.data", "{x}.unflatten(-1, (2, -1))", "{x}[None]", "{x}[:]", "{x}[...]"),
    *("{x}[0]", "{x}[1:]", "{x}[:, 1:]", "{x}[..., 1:]", "{x}[:, :-1]", "{x}[:, 0]", "{x}[..., 0]", "{x}[:, :9]"),
    *(
        "{x}[::2]",
        "{x}[:, ::2]",
        "{x}[0, 1:]",
        "{x}[0, ..., 1:]",
        "{x}[..., 0, :]",
        "{x}[1:, ..., 0]",
        "{x}[:, [0, 1]]",
    ),
    *("{x}[[1, 0]]", "{x}[{x} > 0]", "{x}[0, :, 1]", "{x}[:n]", "{x}[:, n:]", "{x}[n]", "{x}[:, None]"),
    *("{x}.narrow(0, 0, 2)", "{x}.narrow(1, 1, 1)", "{x}.select(0, 0)", "{x}.select(-1, 0)", "{x}.select(1, 1)"),
    *(
        "{x}.chunk(2)[0]",
        "{x}.chunk(2, -1)[1]",
        "{x}.split(2)[0]",
        "{x}.split(2, 1)[0]",
        "{x}.unbind()[1]",
        "{x}.unbind(-1)[0]",
    ),
    *("{x}.diagonal()", "{x}.expand(2, *{x}.shape)", "{x}.expand_as({x})", "torch.broadcast_to({x}, (3, *{x}.shape))"),
    *(
        "{x}.repeat(2, *[1] * ({x}.ndim - 1))",
        "torch.cat([{x}, {x}])",
        "torch.cat((({x}, {x})), dim=-1)",
        "torch.stack([{x}, {y}])",
    ),
    *(
        "torch.cat(tensors=[{x}, {x}], dim=1)",
        "torch.stack([{x}, {x}], 1)",
        "{x} @ {x}.mT",
        "torch.matmul({x}, {x}.mT)",
    ),
    *(
        "{x}.float()",
        "{x}.double()",
        "{x}.to(torch.float64)",
        "{x}.to({y})",
        "{x}.to(memory_format=torch.contiguous_format)",
    ),
    *(
        "torch.zeros_like({x})",
        "torch.zeros(2, 4)",
        "torch.empty({x}.shape)",
        "{x}.new_zeros(4, 2)",
        "torch.ones(2, 2, 2).mT",
    ),
    *(
        "F.relu({x}, inplace=True)",
        "F.dropout({x}, 0.5, flag())",
        "F.dropout({x})",
        "F.gelu({x})",
        "F.layer_norm({x}, {x}.shape[-1:])",
    ),
    *(
        "F.pad({x}, (1, 1))",
        "{x}.masked_fill({x} > 0, 0)",
        "{x}.tril()",
        "{x}.sort(-1)[0]",
        "{x}.topk(2, -1).values",
        "{x}.max(0)[0]",
    ),
    *(
        "{x}.max(1).indices",
        "{x}.flip(0)",
        "{x}.roll(1, 0)",
        "{x}.add_(1)",
        "{x}.transpose_(0, 1)",
        "{x}.transpose_(0, 1)",
        "{x}.zero_().mT",
    ),
    *(
        "{x}.index_select(0, torch.tensor([1, 0]))",
        "{x}.gather(0, torch.zeros_like({x}, dtype=torch.int64))",
        "{x}.unfold(0, 2, 1)",
    ),
    *(
        "({x} if flag() else {y})",
        "({x} if {x}.is_contiguous() else {y})",
        "({x}.is_contiguous() and {x})",
        "({x} or {y})",
    ),
    *(
        "(e := {x}.mT)",
        "({x} if flag() else (e := {y}.contiguous()))",
        "[{x}.mT for _ in range(2)][0]",
        "[(e := {x}) for _ in range(2)][1]",
    ),
    *(
        "[{x}.transpose_(0, 1) for _ in range(2)][0]",
        "(lambda {x}: {x}.contiguous())({y})",
        "e",
        "(flag() and (e := {x}))",
        "[t.mT for t in {x}][0]",
    ),
    *(
        "torch.add({x}, {y}, out=torch.empty(0))",
        "torch.add({x}, 1, out={y})",
        "torch.relu_({x})",
        "{x}.resize_(2, 4)",
    ),
    *(
        "torch.from_numpy({x}.numpy())",
        "torch.as_tensor({x})",
        "torch.tensor([[1.0, 2.0], [3.0, 4.0]])",
        "torch.einsum('...ij->...ji', {x})",
    ),
    *(
        "{x}.unsqueeze_(0)",
        "F.linear({x}, torch.ones(3, {x}.shape[-1]))",
        "torch.meshgrid({x}[0, 0], {x}[0, 0], indexing='ij')[0]",
    ),
    *(
        "torch.nn.Parameter({x})",
        "{x}.type(torch.float64)",
        "{x}.requires_grad_(False)",
        "torch.atleast_2d({x})",
        "{x}.rot90()",
    ),
)
STATEMENTS = (
    *(
        "{x} = {e}",
        "{x} = {e}",
        "{x} = {e}",
        "{x} = {e}",
        "{x} = {e}",
        "{x} = {y}",
        "{x}, {y} = {y}, {x}",
        "{x}, {y} = {e}, {e}",
    ),
    *(
        "{x}, *_ = {e}",
        "{x}, _ = {y}.chunk(2)",
        "_, {x} = {y}.chunk(2, dim=-1)",
        "{x} += {y}",
        "{x} += 1",
        "{x} *= {e}",
        "{x} @= {y}.mT",
    ),
    *(
        "{x}.transpose_(0, 1)",
        "{e}",
        "{x}[0] = 1",
        "{x}.data = {e}",
        "{x}: torch.Tensor = {e}",
        "assert {x}.is_contiguous()",
        "del {x}",
        "maybe()",
    ),
    *(
        "{x}, {y} = ({e})[:2]",
        "if not {x}.is_contiguous(): raise ValueError",
        "{x} = {y} = {e}",
        "({x}, {y}), n = ({e}, {e}), 1",
        "n = 2",
    ),
)
BLOCKS = (
    "if flag():\n{b}\nelse:\n{b}",
    "if flag():\n{b}",
    "if {x}.is_contiguous():\n{b}\nelse:\n{b}",
    "if not {x}.is_contiguous():\n{b}",
    "if flag() and {x}.is_contiguous():\n{b}",
    "if flag():\n{b}\n    return",
    "for i in range(2):\n{b}",
    "for {x} in {y}:\n{b}",
    "for {x} in {y}.chunk(2, -1):\n{b}\nelse:\n{b}",
    "for i in range(2):\n{b}\n    if flag(): break\n{b}\nelse:\n{b}",
    "for i in range(2):\n{b}\n    if flag(): continue\n{b}",
    "while flag():\n{b}",
    "while (e := {e}).numel() and flag():\n{b}\n    e = {e}\n    if flag(): break",
    "while True:\n{b}\n    if flag(): break\n{b}",
    "try:\n{b}\n    maybe()\n{b}\nexcept KeyError:\n{b}",
    "try:\n{b}\n    maybe()\n{b}\nexcept KeyError as {x}:\n    return\nelse:\n{b}\nfinally:\n{b}",
    "try:\n{b}\n    if flag(): return\n{b}\nfinally:\n{b}",
    "with torch.no_grad():\n{b}",
    "with contextlib.suppress(KeyError):\n{b}\n    maybe()\n{b}",
    "match flag():\n    case True:\n        {x} = {e}\n    case {y} if flag():\n        pass\n    case _:\n"
    "        {x} = {e}",
    "match {y}:\n    case None:\n        pass\n    case {x}:\n        {x} = {e}",
    "def inner():\n    nonlocal {x}\n    {x} = {e}\n{y} = {e}\ninner()\n{e}",
    "def inner({x}):\n    {x}.transpose_(0, 1)\n{y} = {e}\ninner({x})\n{e}",
    "inner = lambda: {x}.transpose_(0, 1)\n{y} = {e}\ninner()\n{e}",
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    names = st.sampled_from(NAMES)

    def expression() -> str:
        template = draw(st.sampled_from(EXPRESSIONS))
        text = template.format(x=draw(names), y=draw(names))
        if draw(st.integers(0, 3)) == 0:  # a chain
            text = draw(st.sampled_from([each for each in EXPRESSIONS if each.startswith("{x}.")])).format(
                x=f"({text})", y=draw(names)
            )
        return text

    def block(depth: int, least: int, most: int) -> list[str]:
        lines: list[str] = []
        for _ in range(draw(st.integers(least, most))):
            is_block = depth < 2 and draw(st.integers(0, 3)) == 0
            lines += fill(draw(st.sampled_from(BLOCKS if is_block else STATEMENTS)), depth).splitlines()
        return lines

    def fill(template: str, depth: int) -> str:
        first, second = draw(names), draw(names)
        text = template.replace("{x}", first).replace("{y}", second)
        while "{e}" in text:
            text = text.replace("{e}", expression(), 1)
        while "{b}" in text:
            text = text.replace("{b}", "\n".join("    " + line for line in block(depth + 1, 1, 3)), 1)
        return text

    start = [f"{name} = {draw(st.sampled_from(_STARTS))}" for name in NAMES]
    lines = [*start, "e, n = a, 1", *block(0, 4, 10)]
    body = "\n".join("    " + line for line in lines)
    return f"import contextlib\nimport torch\nimport torch.nn.functional as F\n\ndef program(p, q):\n{body}\n"


_STARTS = (
    *("torch.ones(4, 4, 4)", "torch.zeros(4, 4, 4).mT", "p", "q", "torch.rand(4, 4)", "p.contiguous()", "q.relu()"),
    *("q[:2]", "torch.rand(2, 4, 4).movedim(0, -1)"),
)
"""Sizes are alike, so that most programs run to their end."""


EXAMPLES = 150


class Tensor(NamedTuple):
    """A tensor as it was when an expression gave it."""

    tensor: torch.Tensor
    is_contiguous: bool
    strided: bool
    storage: int
    flat: bool
    """Whether a dimension has size 1 or 0, or there are fewer than two: then nothing is promised."""


class Watcher:
    """Runs a program, and keeps what each of its expressions gave."""

    def __init__(self, tree: ast.Module, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[ast.expr] = []
        self.given: list[tuple[int, Tensor, dict[int, Tensor], set[int]]] = []
        self.last: dict[int, Tensor] = {}
        self.storages: set[int] = set()
        self.kept: list[Any] = []
        self.steps = 0
        self.tree = _Watched(self.nodes).over(tree)

    def run(self) -> None:
        namespace: dict[str, Any] = {"__watch": self._watch, "flag": self._flag, "maybe": self._maybe}
        exec(compile(ast.fix_missing_locations(self.tree), "program.py", "exec"), namespace)
        p = torch.rand(4, 4, 4)
        q = torch.rand(4, 4, 4).permute(2, 1, 0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                namespace["program"](p, q)
        except Exception:
            return  # what was given until then counts

    def _flag(self) -> bool:
        self.steps += 1
        if self.steps > 60:
            raise TimeoutError
        return self.random.random() < 0.5

    def _maybe(self) -> None:
        if self.random.random() < 0.3:
            raise KeyError

    def _watch(self, number: int, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            flat = value.ndim < 2 or any(size < 2 for size in value.shape)
            storage = value.untyped_storage().data_ptr()
            strided = not value.is_contiguous()
            tensor = Tensor(value, value.is_contiguous(), strided, storage, flat)
            self.given.append((number, tensor, dict(self.last), set(self.storages)))
            self.last[number] = tensor
            if storage:
                self.storages.add(storage)
            self.kept.append((value, value.untyped_storage()))
        return value


class _Watched(ast.NodeTransformer):
    def __init__(self, nodes: list[ast.expr]) -> None:
        self.nodes = nodes

    def over(self, tree: ast.Module) -> ast.Module:
        """A copy of a tree that hands each tensor to the watcher."""
        memo: dict[int, Any] = {}
        copied = copy.deepcopy(tree, memo)
        self.original = {id(memo[id(node)]): node for node in ast.walk(tree) if id(node) in memo}
        visited = self.visit(copied)
        assert isinstance(visited, ast.Module)
        return visited

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.pattern, ast.keyword, ast.alias, ast.arguments)):
            return self.generic_visit(node) if isinstance(node, ast.keyword) else node
        original = self.original.get(id(node))
        if isinstance(node, ast.NamedExpr):
            node.value = self.visit(node.value)
        elif isinstance(node, ast.AnnAssign):
            node.value = self.visit(node.value) if node.value is not None else None
            return node
        else:
            self.generic_visit(node)
        watched = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)
        if not isinstance(node, (*watched, ast.IfExp, ast.NamedExpr)) or original is None:
            return node
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return node
        self.nodes.append(original)  # type: ignore[arg-type]
        return ast.Call(ast.Name("__watch", ast.Load()), [ast.Constant(len(self.nodes) - 1), node], [])


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(programs(), st.integers(0, 3))
def test_whatever_is_sure_is_true(text: str, seed: int) -> None:
    module = module_of(text)
    watcher = Watcher(module.source.tree, seed)
    watcher.run()
    numbers = {node: number for number, node in enumerate(watcher.nodes)}
    for number, tensor, before, storages in watcher.given:
        node = watcher.nodes[number]
        value = module.value(node, scope_of(module))
        _check(node, value, tensor, before, storages, numbers)


def _check(
    node: ast.expr,
    value: Value,
    tensor: Tensor,
    before: dict[int, Tensor],
    storages: set[int],
    numbers: dict[ast.expr, int],
) -> None:
    said = f"{ast.unparse(node)} in line {node.lineno}: {value.kind} {value.state} {value.op} {value.memory}"
    assert value.kind in ("tensor", "unknown"), said
    made_here = value.node is node
    base = before.get(numbers.get(value.of.node, -1)) if value.of is not None and value.of.node is not None else None
    flat = tensor.flat
    below = value.of
    while below is not None and not flat:  # what it was made of had to be large enough as well
        last = before.get(numbers.get(below.node, -1)) if below.node is not None else None
        flat = last is None or last.flat
        below = below.of
    if not flat and value.is_contiguous:
        assert tensor.is_contiguous, said
    if not flat and value.is_strided:
        assert tensor.strided, said
    if made_here and value.memory == "fresh":
        assert tensor.storage not in storages, said
    if made_here and base is not None and tensor.tensor.numel():
        # Where a tensor was given other memory since, it is a view of that.
        if value.memory == "view" and base.tensor.untyped_storage().data_ptr() == base.storage:
            assert tensor.storage == base.storage, said
        if value.memory == "same":
            assert tensor.tensor is base.tensor, said
