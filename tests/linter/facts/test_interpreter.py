"""What the interpreter knows behind each kind of statement, and what it does not claim to know."""

import ast
import sys

import pytest

from stridewise.linter.facts import values
from stridewise.linter.facts.value import State

from .reading import module_of, scope_of, value_of

C, P, U, G = State.CONTIGUOUS, State.PERMUTED, State.UNKNOWN, State.GAPPED
CONTIGUOUS = "x = x.contiguous()\n"


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ("x = x.contiguous()", C),
        ("y = x = x.contiguous()\nx = y", C),
        ("x, y = x.contiguous(), y.mT", C),
        ("(x, _), y = (x.contiguous(), 1), y", C),
        ("x: torch.Tensor = x.contiguous()", C),
        ("x = torch.zeros(2, 3).mT", P),
        ("x = x.contiguous()\nx += y", C),
        ("x = x.contiguous()\nx @= y", C),
        ("x = 0\nx += y", U),
        ("x = x.contiguous()\nx = f(x)", U),
        ("x = x.contiguous()\ndel x", U),
        ("x = x.contiguous()\nimport x", U),
        ("x = x.contiguous()\nglobal x", U),
        ("global x\nx = x.contiguous()", U),
        # Aliases
        ("x = x.contiguous()\ny = x\ny.t_()", U),
        ("x = x.contiguous()\ny.data = z", U),
        ("x = x.contiguous()\ny, z.data = z, y", U),
        ("x = x.contiguous()\ny.resize_(3)", U),
        ("x = x.contiguous()\ntorch.add(y, y, out=z)", U),
        ("x = x.contiguous()\ny.add_(1)", C),
        ("x = x.contiguous()\n(y.t_(), x)", U),
        # Branches
        ("if flag:\n    x = x.contiguous()", U),
        ("if flag:\n    x = x.contiguous()\nelse:\n    x = x.clone().contiguous()", C),
        ("if not x.is_contiguous():\n    x = x.contiguous()", C),
        ("if not x.is_contiguous():\n    raise ValueError", C),
        ("if x.is_contiguous():\n    pass", U),
        ("if flag or not x.is_contiguous():\n    return", C),
        ("if flag and not x.is_contiguous():\n    return", U),
        ("assert x.is_contiguous()", C),
        ("assert x.is_contiguous(memory_format=torch.channels_last)", State.CHANNELS_LAST),
        ("x = x.contiguous()\nif flag:\n    x = x.mT\n    return", C),
        ("x = x.contiguous()\nif flag:\n    x.t_()", U),
        ("x = x.contiguous()\nif flag:\n    x.t_()\n    return", C),
        ("match flag:\n    case 1:\n        x = x.contiguous()", U),
        ("x = x.contiguous()\nmatch flag:\n    case x:\n        pass", U),
        ("x = x.contiguous()\nmatch flag:\n    case 1 if (x := y):\n        pass", U),
        ("x = x.contiguous()\nmatch flag:\n    case {'a': 1, **x}:\n        pass", U),
        # Loops
        ("x = x.contiguous()\nfor i in range(3):\n    x = x.mT", U),
        ("x = x.contiguous()\nfor i in range(3):\n    y = x.mT", C),
        ("x = x.contiguous()\nfor x in y:\n    pass", U),
        ("x = x.contiguous()\nfor i in range(3):\n    y.t_()", U),
        ("x = y.contiguous()\nwhile (x := x.mT) is not None:\n    x = y.contiguous()\n    break", U),
        ("x = x.contiguous()\nwhile flag:\n    x = y", U),
        ("for i in y:\n    break\nelse:\n    x = x.contiguous()", U),
        ("for i in y:\n    pass\nelse:\n    x = x.contiguous()", C),
        # Exceptions and contexts
        ("try:\n    x = x.mT\n    f()\nexcept ValueError:\n    x = y.contiguous()\nelse:\n    return", C),
        ("x = x.contiguous()\ntry:\n    x = x.mT\nexcept ValueError:\n    pass", U),
        ("x = x.contiguous()\ntry:\n    x.t_()\nexcept ValueError:\n    pass", U),
        ("x = x.contiguous()\ntry:\n    pass\nexcept ValueError as x:\n    pass", U),
        ("try:\n    f()\nfinally:\n    x = x.contiguous()", C),
        ("with torch.no_grad():\n    x = x.contiguous()", C),
        ("with contextlib.suppress(ValueError):\n    x = x.contiguous()", U),
        ("x = x.contiguous()\nwith open(y) as x:\n    pass", U),
        # Scopes
        ("x = x.contiguous()\ndef g():\n    nonlocal x\n    x = x.mT", U),
        ("x = x.contiguous()\ndef g():\n    x = y.mT", C),
        ("x = x.contiguous()\ndef g():\n    y.t_()", U),
        ("def g():\n    y.t_()\nx = x.contiguous()", U),
        ("g = lambda: y.t_()\nx = x.contiguous()", U),
        ("x = x.contiguous()\n[x for x in y]", C),
        ("x = x.contiguous()\n[(x := i) for i in y]", U),
        ("x = x.contiguous()\nflag and (x := y)", U),
        ("x = x.contiguous()\ny = (x := y) if flag else y", U),
        ("x = x.contiguous()\n1 < y < (x := z)", U),
        ("x = x.contiguous()\n[y.t_() for i in z]", U),
        ("class x:\n    pass", U),
    ],
)  # fmt: skip
def test_statements(body: str, state: State) -> None:
    value = value_of(f"{body}\nlast(x)", "x")
    assert value.state is state
    assert value.sure is (state is not U)


@pytest.mark.parametrize(
    ("expression", "state", "sure"),
    [
        ("x.transpose(0, 1)", P, True),
        ("x.transpose(1, -1)", P, False),
        ("x.transpose(n, 1)", P, False),
        ("x.permute(0, 1, 2)", P, False),
        ("x.permute((0, 2, 1))", P, True),
        ("torch.transpose(x, 0, 1)", P, True),
        ("torch.transpose(dim0=0, dim1=1, input=x)", P, True),
        ("x.mT.mT", P, False),
        ("x.mT.unsqueeze(0)", P, True),
        ("x.mT.relu()", P, True),
        ("x.mT.to(n)", P, True),
        ("x.mT.to(n, memory_format=torch.contiguous_format)", U, False),
        ("x.mT.clone(memory_format=torch.contiguous_format)", C, True),
        ("x.mT.clone(memory_format=torch.preserve_format)", P, True),
        ("x.mT.reshape(3, 4)", U, False),
        ("x.reshape(3, 4)", C, True),
        ("x + 1", C, True),
        ("x + y", U, False),
        ("x + x", C, True),
        ("y @ z", C, True),
        ("x > 0", C, True),
        ("y.sum(n)", C, True),
        ("x.softmax(n)", C, True),
        ("torch.cat([x, x], n)", U, False),
        ("torch.cat([x, x], dim=1)", U, False),
        ("torch.cat([x.sum(0), x.sum(1)], dim=1)", C, True),
        ("torch.cat([x.sum(0), y], dim=1)", U, False),
        ("torch.cat(tensors=(x.sum(0), x.sum(0)))", C, True),
        ("x + x.clone()", U, False),
        ("x.reshape(3, 4) + 1", C, True),
        ("F.pad(x, (1, 1))", U, False),
        ("F.pad(x.sum(0), (1, 1))", C, True),
        ("torch.zeros(2, 3, **n)", U, False),
        ("torch.zeros_like(x, **n)", U, False),
        ("torch.zeros(2, 3, **dict(device=n))", C, True),
        ("torch.zeros(2, 3, **{'dtype': n, 'device': y})", C, True),
        ("torch.zeros(2, 3, **{'dtype': n, **y})", U, False),
        ("torch.zeros(2, 3, **{'memory_format': n})", U, False),
        ("torch.where(condition=x)[0]", U, False),
        ("y.unique(dim=0)", C, True),
        ("y.unique(dim=1)", U, False),
        ("y.quantile(0.5, dim=1)", C, True),
        ("y.quantile(z, dim=1)", U, False),
        ("y.quantile(z)", C, True),
        ("torch.cat(z)", U, False),
        ("torch.stack([x, *z])", U, False),
        ("torch.where(x > 0, x, y)", U, False),
        ("torch.where(x > 0)[0]", U, False),
        ("torch.tensor([1, 2])", C, True),
        ("torch.zeros(n, n)", C, True),
        ("torch.zeros(n, out=y)", U, False),
        ("torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)", State.CHANNELS_LAST, True),
        ("F.conv2d(x, y)", U, False),
        ("F.scaled_dot_product_attention(x, x, x)", U, False),
        ("torch.topk(y, 2).values", C, True),
        ("y.max(1)[0]", C, True),
        ("y.max(z)", U, False),
        ("torch.min(y, dim=n)[1]", U, False),
        ("torch.min(y, dim=0)[1]", C, True),
        ("x.expand(3, -1)", State.EXPANDED, False),
        ("x.chunk(2, dim=-1)[0]", G, True),
        ("x.chunk(n, dim=-1)[0]", G, False),
        ("x.chunk(2)[0]", C, True),
        ("x.split(2, -1)[0]", G, False),
        ("x.unbind(1)[0]", G, True),
        ("x.select(1, n)", G, True),
        ("x.narrow(0, n, 1)", C, True),
        ("x.select(n, 1)", U, False),
        ("x[0]", C, True),
        ("x[1:]", C, True),
        ("x[:, 1:]", G, True),
        ("x[:, :n]", G, False),
        ("x[:, :-1]", G, True),
        ("x[..., 0]", G, True),
        ("x[..., 0, :]", G, False),
        ("x[0, ...]", C, True),
        ("x[n]", U, False),
        ("x[:, None]", C, True),
        ("x[[0, 1]]", U, False),
        ("x[y > 0]", U, False),
        ("y[:, ::2]", G, True),
        ("x.data", C, True),
        ("x if flag else x.clone()", C, True),
        ("x.numpy()", C, True),
        ("torch.from_numpy(x.numpy())", C, True),
        ("torch.from_numpy(np.zeros((2, 3)).T)", P, True),
        ("np.zeros((2, 3))[::-1]", State.NEGATIVE, True),
        ("np.flip(np.zeros((2, 3)))", State.NEGATIVE, True),
        ("np.flip(np.zeros((2, 3))).copy()", C, True),
        ("np.ascontiguousarray(y)", C, True),
        ("np.zeros((2, 3), order='F')", U, False),
    ],
)
def test_expressions(expression: str, state: State, sure: bool) -> None:
    value = value_of(
        f"x = x.contiguous()\nlast({expression})", expression.replace(", memory_format", ", memory_format")
    )
    assert (value.state, value.sure) == (state, sure)


@pytest.mark.parametrize(
    ("expression", "memory"),
    [
        ("x.mT", "view"),
        ("x[0]", "view"),
        ("x[[0]]", "fresh"),
        ("x[n]", "unknown"),
        ("y[0]", "unknown"),
        ("x.relu()", "fresh"),
        ("x.reshape(2)", "maybe"),
        ("x.contiguous()", "maybe"),
        ("x.to(n)", "maybe"),
        ("x.to(n, copy=True)", "fresh"),
        ("x.add_(1)", "same"),
        ("torch.relu_(x)", "same"),
        ("F.relu(x)", "fresh"),
        ("F.relu(x, inplace=True)", "same"),
        ("F.relu(x, inplace=flag)", "maybe"),
        ("F.dropout(x)", "maybe"),
        ("torch.add(x, x, out=z)", "same"),
        ("x.unknown()", "unknown"),
    ],
)
def test_memory(expression: str, memory: str) -> None:
    assert value_of(f"last({expression})", expression).memory == memory


@pytest.mark.parametrize(
    ("signature", "kind"),
    [
        ("x: torch.Tensor", "tensor"),
        ("x: Optional[torch.Tensor] = None", "tensor"),
        ("x: torch.FloatTensor | None", "tensor"),
        ("x: 'torch.LongTensor'", "tensor"),
        ("x: 'torch.Tensor | None'", "tensor"),
        ("x: Union[torch.Tensor, None]", "tensor"),
        ("x: Union[torch.Tensor, np.ndarray]", "unknown"),
        ("x: torch.Tensor | list[torch.Tensor]", "unknown"),
        ("x: Float[torch.Tensor, 'b c']", "tensor"),
        ("x: np.ndarray", "array"),
        ("x: list[torch.Tensor]", "other"),
        ("x: Tuple[torch.Tensor, torch.Tensor]", "other"),
        ("x: int", "other"),
        ("x: 'no ]['", "unknown"),
        ("x", "unknown"),
        ("*x", "other"),
    ],
)
def test_annotations(signature: str, kind: str) -> None:
    assert value_of("last(x)", "x", signature).kind == kind


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ("from torch import Tensor", "tensor"),
        ("from shapes import *", "tensor"),
        ("class Tensor:\n    pass", "unknown"),
        ("from paddle import Tensor", "unknown"),
    ],
)
def test_whose_class_an_annotation_is(before: str, kind: str) -> None:
    module = module_of(f"{before}\ndef f(x: Tensor):\n    return x\n")
    scope = scope_of(module)
    name = next(node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == "x")
    assert module.value(name, scope).kind == kind


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("y.permute(0, 1)", "tensor"),
        ("y.transpose(0, 1)", "tensor"),
        ("y.split('.')", "unknown"),
        ("y.split(2, dim=1)", "tensor"),
        ("y.to(n)", "unknown"),
        ("y + 1", "unknown"),
        ("x + y", "tensor"),
        ("y is None", "other"),
        ("y == x", "tensor"),
        ("len(y)", "other"),
        ("memoryview(y)", "other"),
        ("x.shape", "other"),
        ("x.size(0) + 1", "other"),
        ("self.split(x)", "unknown"),
        ("np.array(y)", "array"),
        ("np.array([y])", "array"),
        ("torch.from_numpy(y)", "tensor"),
        ("x.add_(1)", "tensor"),
        ("y.requires_grad_(False)", "unknown"),
        ("torch.float32", "other"),
        ("f'{x}'", "other"),
    ],
)
def test_kinds(expression: str, kind: str) -> None:
    assert value_of(f"last({expression})", expression).kind == kind


def test_a_name_that_is_bound_is_not_what_was_imported() -> None:
    assert value_of("torch = y\nlast(torch.zeros(2))", "torch.zeros(2)").state is U
    assert value_of("import torch\nlast(torch.zeros(2))", "torch.zeros(2)").state is C


def test_what_a_value_was_made_of() -> None:
    value = value_of("a = x.mT\nb = torch.reshape(input=a, shape=(2,))\nlast(b.view(n).add_(1))", "b.view(n).add_(1)")
    assert [value.op, value.of and value.of.op] == ["add_", "view"]
    assert value.root.op == "reshape"
    assert value.root.of is not None
    assert value.root.of.root.op == "parameter"
    unknown = value_of("last(x.mystery(1))", "x.mystery(1)")
    assert (unknown.op, unknown.of and unknown.of.op) == ("mystery", "parameter")
    joined = value_of("last(torch.cat([z, x]))", "torch.cat([z, x])")
    assert joined.of is not None
    assert joined.of.op == "parameter"


def test_the_finally_of_what_may_have_been_left_early() -> None:
    body = "x = x.contiguous()\ntry:\n    x = x.mT\n    return x\nfinally:\n    last(x)"
    assert value_of(body, "x").state is U


def test_expressions_of_thousands_of_parts() -> None:
    text = "import torch\ndef program(x):\n    y = x.contiguous()\n    return " + " + ".join(["y"] * 800)
    module = module_of(text)
    assert isinstance(values(module, scope_of(module)), dict)


@pytest.mark.parametrize(
    "line",
    [
        "    x{i} = a.contiguous()\n",
        "    if a:\n        x{i} = a.contiguous()\n    else:\n        x{i} = a.clone()\n",
        "    a = a + 1\n",
        "    for _ in a:\n        x{i} = a.mT\n",
        "    x{i} = a.contiguous()\n    a.t_()\n",
        "    try:\n        x{i} = a.contiguous()\n    finally:\n        f(x{i})\n",
    ],
)
def test_work_grows_as_the_function_does(line: str) -> None:
    """Ten times the statements are about ten times the calls: far from the hundred times that a square would be."""
    few, many = (_calls("".join(line.format(i=i) for i in range(count))) for count in (200, 2_000))
    assert many < 12 * few


def _calls(body: str) -> int:
    """How many calls, of builtins too, it takes to interpret a function."""
    module = module_of(f"import torch\ndef program(a):\n{body}")
    scope = scope_of(module)
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        values(module, scope)
    finally:
        sys.setprofile(None)
    return calls


class Recorded:
    """What a recording saw, by the text of expressions."""

    def __init__(self, outputs: dict[str, State], receivers: dict[str, State]) -> None:
        self.outputs = outputs
        self.receivers = receivers

    def output(self, node: ast.expr) -> State | None:
        return self.outputs.get(ast.unparse(node))

    def receiver(self, node: ast.expr) -> State | None:
        return self.receivers.get(ast.unparse(node))


def test_what_a_recording_saw_is_sure() -> None:
    text = """
import torch

def program(x, w):
    y = model(x)
    z = y.relu()
    x.contiguous()
    self.norm(x)
    return z + 1, w[0]
"""
    module = module_of(text)
    outputs = {"model(x)": C, "w[0]": P}
    receivers = {"x.contiguous()": State.CHANNELS_LAST, "self.norm(x)": C}
    module.seen = Recorded(outputs, receivers)  # type: ignore[assignment]
    found = {ast.unparse(node): value for node, value in values(module, scope_of(module)).items()}
    assert (found["model(x)"].state, found["model(x)"].sure, found["model(x)"].seen) == (C, True, True)
    assert (found["z + 1"].state, found["z + 1"].sure, found["z + 1"].seen) == (C, True, True)
    assert (found["w[0]"].state, found["w[0]"].sure, found["w[0]"].seen) == (P, True, True)
    receiver = next(v for n, v in values(module, scope_of(module)).items() if ast.unparse(n) == "x" and v.seen)
    assert (receiver.kind, receiver.state, receiver.sure) == ("tensor", State.CHANNELS_LAST, True)
    assert found["self"].state is U  # what is recorded there is the argument of a module
