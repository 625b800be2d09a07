"""The kinds that rewrite expressions: the edited program does the same, and what must stay is left alone."""

import itertools
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stridewise.repair.candidate import Candidate, Kind
from stridewise.repair.context import Context
from stridewise.repair.kinds import cast_order, drop_copy, reshape_first, sdpa
from stridewise.repair.reading.merging import group, permutation_of, swap

from .running import context_of, edited, load, proposals

DROP, RESHAPE, CAST, SDPA = (Kind.from_module(module) for module in (drop_copy, reshape_first, cast_order, sdpa))
KINDS = (DROP, RESHAPE, CAST, SDPA)


IMPORTS = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def program(body: str, *, setup: str = "x = torch.randn(8, 64, 32)", head: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return f"{IMPORTS}{head}\n{setup}\ndef program():\n{lines}\n"


def results(folder: Path, source: str, name: str) -> list[torch.Tensor]:
    module: Any = load(folder, source, name)
    result = module.program()
    return [result] if isinstance(result, torch.Tensor) else list(result)


def tried(kind: Kind, source: str, folder: Path) -> list[tuple[Candidate, str]]:
    """What a kind proposes, each with the edited text, which gives equal results."""
    context: Context = context_of(load(folder, source))
    before = results(folder, source, "before")
    found = []
    for number, candidate in enumerate(proposals(kind, context)):
        text = edited(context, candidate)
        after = results(folder, text, f"after{number}")
        assert len(before) == len(after)
        for old, new in zip(before, after, strict=True):
            assert (old.shape, old.dtype) == (new.shape, new.dtype)
            torch.testing.assert_close(old, new)
        found.append((candidate, text))
    return found


def lines(text: str) -> list[str]:
    """The body of `program()`."""
    return [line.strip() for line in text.partition("def program():\n")[2].splitlines()]


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        pytest.param(kind, before, id=f"{kind.name}-{number}")
        for kind in KINDS
        for number, (before, _) in enumerate(kind.examples)
    ],
)
def test_results_of_the_examples_stay_equal(kind: Kind, source: str, tmp_path: Path) -> None:
    assert tried(kind, source, tmp_path)


# -- drop-copy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return -x.mT.contiguous() ** 2", ["return -x.mT ** 2"]),
        ("return (x + 1).mT.contiguous().abs()", ["return (x + 1).mT.abs()"]),
        ("return torch.Tensor.contiguous(x.mT) + 1", ["return x.mT + 1"]),
        ("return x[None].contiguous(memory_format=torch.channels_last) + 1", ["return x[None] + 1"]),
        ("return x[None].to(memory_format=torch.channels_last) + 1", ["return x[None] + 1"]),
        ("y = x.mT.contiguous()  # why\nz = y.view(8, 32, 8, 8)\nreturn z + 1",
         ["y = x.mT  # why", "z = y.reshape(8, 32, 8, 8)", "return z + 1"]),
        ("y = x.mT\nif y is not None:\n    y = y.contiguous()\nreturn y + 1",
         ["y = x.mT", "return y + 1"]),
        ("y = x.mT\ny = y.contiguous(); z = y + 1\nreturn z", ["y = x.mT", "pass; z = y + 1", "return z"]),
        ("y = (\n    x.mT\n    .contiguous()  # copied\n    .view(8, 32, 2, 32)\n)\nreturn y + 1",
         ["y = (", "x.mT  # copied", ".reshape(8, 32, 2, 32)", ")", "return y + 1"]),
        ("y = (\n    x.mT  # swapped\n    .contiguous()\n    .abs()\n)\nreturn y",
         ["y = (", "x.mT  # swapped", "", ".abs()", ")", "return y"]),
        ("for _ in range(2):\n    y = x.mT.contiguous() + 1\nreturn y",
         ["for _ in range(2):", "y = x.mT + 1", "return y"]),
    ],
)  # fmt: skip
def test_a_copy_is_left_out(body: str, expected: list[str], tmp_path: Path) -> None:
    ((candidate, text),) = tried(DROP, program(body), tmp_path)
    assert lines(text) == expected
    assert candidate.needless
    assert candidate.findings


def test_each_place_is_a_candidate_of_its_own(tmp_path: Path) -> None:
    found = tried(DROP, program("y = x.mT.contiguous() + 1\nz = x.mT.contiguous() * 2\nreturn y, z"), tmp_path)
    assert sorted(lines(text)[:2] for _, text in found) == [
        ["y = x.mT + 1", "z = x.mT.contiguous() * 2"],
        ["y = x.mT.contiguous() + 1", "z = x.mT * 2"],
    ]


@pytest.mark.parametrize(
    "body",
    [
        "y = x.mT.contiguous()\ny.add_(1)\nreturn y",
        "y = x.mT.contiguous()\ny += 1\nreturn y",
        "y = x.mT.contiguous()\ny.view(-1)[0] = 0\nreturn y",
        "z = x + 0\ny = z.mT.contiguous()\nz.zero_()\nreturn y + 1",
        "return (lambda: x.mT.contiguous() + 1)()",
        "return [torch.ones(1), f'{x.mT.contiguous()}'][0]",
        "@(lambda f, y=x.mT.contiguous(): f)\ndef inner():\n    return x\nreturn inner()",
        "return x.mT.contiguous().flatten(1)",
        "return x.mT.clone(memory_format=torch.contiguous_format) + 1",
        "return list(map(torch.Tensor.contiguous, [x.mT]))[0]",
        "return nn.Linear(64, 8, bias=False).to(memory_format=torch.channels_last)(x.mT)",
    ],
)
def test_a_copy_that_is_needed_or_out_of_reach_stays(body: str, tmp_path: Path) -> None:
    assert proposals(DROP, context_of(load(tmp_path, program(body)))) == []


# -- reshape-first ----------------------------------------------------------------------------------------------------


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Sizes, a permutation of them, and other sizes for what it gives: neighbours taken together, and split again."""
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=5)))
    permutation = tuple(draw(st.permutations(range(len(sizes)))))
    own, shape, at = [sizes[dim] for dim in permutation], [], 0
    while at < len(own):
        length = draw(st.integers(1, len(own) - at))
        count = prod(own[at : at + length])
        while draw(st.booleans()) and count > 1:
            first = draw(st.sampled_from([each for each in range(1, count + 1) if count % each == 0]))
            shape.append(first)
            count //= first
        shape.append(count)
        at += length
    return sizes, permutation, tuple(shape)


@given(reshapes())
@settings(max_examples=300, deadline=None)
def test_reshaping_first_is_the_same(drawn: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> None:
    sizes, permutation, shape = drawn
    x = torch.arange(prod(sizes)).reshape(sizes)
    groups = group([sizes[dim] for dim in permutation], shape)
    swapped = None if groups is None else swap(permutation, groups)
    if swapped is None:
        return
    first = x.view([shape[at] for at in swapped.order]).permute(swapped.permutation)
    assert torch.equal(first, x.permute(permutation).reshape(shape))


@given(reshapes())
@settings(max_examples=300, deadline=None)
def test_every_reshape_that_is_a_view_can_come_first(
    drawn: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    sizes, permutation, shape = drawn
    if 1 in sizes or 1 in shape:
        return
    groups = group([sizes[dim] for dim in permutation], shape)
    assert groups is not None
    permuted = torch.arange(prod(sizes)).reshape(sizes).permute(permutation)
    is_view = permuted.reshape(shape).data_ptr() == permuted.data_ptr()
    assert (swap(permutation, groups) is not None) == is_view


@pytest.mark.parametrize("ndim", [2, 3, 4])
def test_permutations_are_those_of_torch(ndim: int) -> None:
    x = torch.empty([3 + at for at in range(ndim)])
    pairs: Sequence[tuple[Any, ...]] = list(itertools.product(range(-ndim, ndim), repeat=2))
    calls = [(name, dims) for name in ("transpose", "swapaxes", "swapdims", "movedim", "moveaxis") for dims in pairs]
    calls += [("permute", dims) for dims in itertools.permutations(range(ndim))]
    calls += [("permute", (tuple(range(-ndim, 0)),)), ("movedim", ((0, 1), (1, 0)))]
    for name, dims in calls:
        made = permutation_of(name, dims, ndim)
        assert made is not None
        assert x.permute(made).shape == getattr(x, name)(*dims).shape
    assert permutation_of("mT", (), ndim) == permutation_of("transpose", (-2, -1), ndim)
    assert permutation_of("permute", (0,) * ndim, ndim) is None
    assert permutation_of("transpose", (0,), ndim) is None
    assert permutation_of("transpose", (0, ndim), ndim) is None


@given(drawn=reshapes())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_its_text_gives_the_same_values(
    drawn: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], tmp_path: Path
) -> None:
    sizes, permutation, shape = drawn
    groups = group([sizes[dim] for dim in permutation], shape)
    swapped = None if groups is None else swap(permutation, groups)
    written = [str(size) for size in shape]
    for own, new in groups or ():
        if len(own) == len(new) == 1:
            written[new[0]] = f"x.size({permutation[own[0]]})"
    body = f"return x.permute({permutation}).contiguous().view({', '.join(written)})"
    gapped = f"x = torch.randn({tuple(size + 1 for size in sizes)})[{', '.join(f':{size}' for size in sizes)}]"
    found = tried(RESHAPE, program(body, setup=gapped), tmp_path)
    assert len(found) <= (swapped is not None)
    certain = sum(len(own) + len(new) > 2 for own, new in groups or ()) < 2
    merges = any(len(own) > 1 for own, _ in groups or ())
    if swapped is not None and certain and merges and swapped.permutation != tuple(range(len(shape))):
        assert found


def test_what_leaving_the_copy_out_gives_too_is_not_tried_again(tmp_path: Path) -> None:
    body = "return x.transpose(1, 2).contiguous().view(x.size(0), x.size(2), 8, 8)"
    context = context_of(load(tmp_path, program(body)))
    assert proposals(RESHAPE, context) == []
    (candidate,) = proposals(DROP, context)
    assert candidate.removes_copies


OTHER_SHAPES = """
import torch
def swap(x, n):
    {body}
x = torch.randn(8, 4, 17, 32)[:, :, 1:]
def program():
    return swap(x, 64)
"""


@pytest.mark.parametrize(
    "body",
    [
        "b, h, w, d = x.shape; return x.permute(0, 3, 1, 2).contiguous().view(b, d, h * w)",
        "b, d = x.size(0), x.size(-1); return x.permute(0, 3, 1, 2).contiguous().view((b, d, -1))",
        "return x.movedim(-1, 1).contiguous().reshape(x.shape[0], x.shape[3], n)",
        "return torch.permute(x, (3, 0, 1, 2)).contiguous().view(-1, x.size(0), n)",
        "return x.swapaxes(0, 3).contiguous().view(x.shape[3], n, x.shape[0])",
        "y = x.permute(0, 3, 1, 2)\n    y = y.contiguous().view(x.size(0), x.size(3), n)\n    return y",
    ],
)
def test_it_holds_for_other_shapes(body: str, tmp_path: Path) -> None:
    source = OTHER_SHAPES.format(body=body)
    ((_, text),) = tried(RESHAPE, source, tmp_path)
    before: Any = load(tmp_path, source, "before")
    after: Any = load(tmp_path, text, "after")
    for b, h, w, d in itertools.product((1, 3), (1, 2, 6), (1, 5), (1, 2, 7)):
        x = torch.randn(b, h, w + 1, d)[:, :, 1:]
        assert torch.equal(before.swap(x, h * w), after.swap(x, h * w))


@pytest.mark.parametrize(
    "body",
    [
        "return x.transpose(1, 2).contiguous().view(8, -1)",
        "return x.transpose(1, 2).contiguous().view(8, 32, 8, 8)",
        "y = x.transpose(1, 2).contiguous()\nz = y.view(x.size(0), 32, 8, 8)\nreturn z, y",
        "y = x.transpose(1, 2).contiguous()\ny = y.view(y.size(0), 32, 8, 8)\nreturn y",
        "return x.transpose(1, 2).contiguous().view(x.size(0), 32, 8, 8).add_(1)",
        "shape = (8, 32, 8, 8)\nreturn x.transpose(1, 2).contiguous().view(*shape)",
        "return (lambda: x.transpose(1, 2).contiguous().view(x.size(0), 32, 8, 8))()",
        "return x.transpose(1, 2).reshape(x.size(0), 32, 8, 8)",
    ],
)
def test_what_may_not_be_the_same_is_not_reshaped_first(body: str, tmp_path: Path) -> None:
    assert proposals(RESHAPE, context_of(load(tmp_path, program(body)))) == []


def test_a_size_of_another_tensor_of_that_name_is_not_certain(tmp_path: Path) -> None:
    setup = "x = torch.randn(8, 4, 17, 32)"
    end = "y = y[:, :, 1:]\n{}return y.permute(0, 3, 1, 2).contiguous().view(b, -1, 64)"
    body = "y = x[:1]\nb = y.size(0)\n" + end.format("")
    assert proposals(RESHAPE, context_of(load(tmp_path, program(body, setup=setup)))) == []
    certain = "y = x[:1]\n" + end.format("b = y.size(0)\n")
    ((_, text),) = tried(RESHAPE, program(certain, setup=setup), tmp_path)
    assert lines(text)[-1] == "return y.reshape(b, 64, -1).permute(0, 2, 1)"


def test_a_copy_of_rows_instead_of_a_reorder_is_timed(tmp_path: Path) -> None:
    body = "return y.permute(2, 0, 1).flatten(1)"
    ((candidate, text),) = tried(RESHAPE, program(body, setup="y = torch.randn(8, 9, 32)[:, 1:]"), tmp_path)
    assert lines(text) == ["return y.flatten(0, 1).permute(1, 0)"]
    assert not candidate.removes_copies


# -- cast-order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x.mT.half().contiguous()",
         ["return x.mT.to(torch.float16, memory_format=torch.contiguous_format)"]),
        ("return x.mT.contiguous().double() + 1",
         ["return x.mT.to(torch.float64, memory_format=torch.contiguous_format) + 1"]),
        ("return (x + 1).mT.contiguous().type(torch.bfloat16)",
         ["return (x + 1).mT.to(torch.bfloat16, memory_format=torch.contiguous_format)",
          "return (x + 1).mT.type(torch.bfloat16).contiguous()"]),
        ("return x[None].to(dtype=torch.half).contiguous(memory_format=torch.channels_last)",
         ["return x[None].to(torch.half, memory_format=torch.channels_last)"]),
        ("d = torch.half\nreturn x.mT.contiguous().to(d)", ["return x.mT.to(d).contiguous()"]),
    ],
)  # fmt: skip
def test_casts_and_copies(body: str, expected: list[str], tmp_path: Path) -> None:
    assert [lines(text)[-1] for _, text in tried(CAST, program(body), tmp_path)] == expected


@pytest.mark.parametrize(
    "body",
    [
        "return x.mT.float().contiguous()",
        "return [y.mT.half().contiguous() for y in (x, x.half())][0]",
        "return x.mT.to('cpu').contiguous()",
        "y = x.mT.contiguous()\nreturn y.half()",
    ],
)
def test_casts_that_may_do_nothing_stay(body: str, tmp_path: Path) -> None:
    assert proposals(CAST, context_of(load(tmp_path, program(body)))) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_one_pass_makes_what_two_make(dtype: torch.dtype) -> None:
    x = torch.randn(64, 32).t()
    with torch.profiler.profile() as profile:
        once = x.to(dtype, memory_format=torch.contiguous_format)
    assert sum(event.name == "aten::copy_" for event in profile.events()) == 1
    twice = x.contiguous().to(dtype)
    assert torch.equal(once, twice)
    assert once.stride() == twice.stride()


def test_the_trap_that_keeps_one_pass_from_dtypes_that_are_not_written_out() -> None:
    x = torch.randn(64, 32).t()
    assert not x.to(x.dtype, memory_format=torch.contiguous_format).is_contiguous()


# -- sdpa -------------------------------------------------------------------------------------------------------------

HEADS = """
q, k, v = torch.randn(2, 4, 12, 8), torch.randn(2, 4, 16, 8), torch.randn(2, 4, 16, 6)
bias = torch.randn(12, 16)
keep = torch.ones(12, 16).tril().bool()
drop = nn.Dropout(0.0)
"""
MODULE = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 8 ** -0.5
        self.attn_drop = nn.Dropout(0.1)
        self.qkv = nn.Linear(8, 24)
    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        q = q * self.scale
        attn = q @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        x = attn @ v
        return x.transpose(1, 2).reshape(B, N, C)
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))\nreturn F.softmax(s, -1) @ v", "q, k, v"),
        ("d = q.size(-1)\ns = q @ k.mT * d ** -0.5\nreturn s.softmax(-1) @ v", "q, k, v"),
        ("s = q @ k.mT / q.shape[-1] ** 0.5\nreturn s.softmax(-1) @ v", "q, k, v"),
        ("s = torch.matmul(q, k.transpose(2, 3)) / 3\nreturn torch.matmul(torch.softmax(s, dim=3), v)",
         "q, k, v, scale=1.0 / 3"),
        ("return ((q * 0.3) @ k.mT).softmax(-1) @ v", "q, k, v, scale=0.3"),
        ("p = q @ k.mT\np *= 0.3\np += bias\np = p.softmax(-1)\nreturn p @ v", "q, k, v, attn_mask=bias, scale=0.3"),
        ("return torch.softmax(bias + 0.3 * (q @ k.mT), -1) @ v", "q, k, v, attn_mask=bias, scale=0.3"),
        ("s = (q @ k.mT).masked_fill(~keep, -math.inf)\nreturn s.softmax(-1) @ v",
         "q, k, v, attn_mask=keep, scale=1.0"),
        ("s = (q @ k.mT).masked_fill(keep.logical_not(), -float('inf'))\nreturn s.softmax(-1) @ v",
         "q, k, v, attn_mask=~keep.logical_not(), scale=1.0"),
        ("s = torch.where(keep, q @ k.mT, float('-inf'))\nreturn s.softmax(-1) @ v",
         "q, k, v, attn_mask=keep, scale=1.0"),
        ("s = q @ k.mT\nif drop:\n    s = s.masked_fill(keep == 0, float('-inf'))\nreturn s.softmax(-1) @ v",
         "q, k, v, attn_mask=keep != 0 if drop else None, scale=1.0"),
        ("p = (q @ k.mT).softmax(-1)\np = F.dropout(p, p=0.2, training=False)\nreturn p @ v", "q, k, v, scale=1.0"),
        ("p = (q @ k.mT).softmax(-1)\nreturn drop(p) @ v",
         "q, k, v, dropout_p=drop.p if drop.training else 0.0, scale=1.0"),
        ("p = F.softmax((q @ k.mT).float(), dim=-1, dtype=torch.float32).to(q.dtype)\nreturn p @ v",
         "q, k, v, scale=1.0"),
        ("kt = k.mT\nreturn (q @ kt).softmax(-1) @ v", "q, kt.transpose(-2, -1), v, scale=1.0"),
        ("p = torch.bmm(q[0], k[0].mT).softmax(-1)\nreturn torch.bmm(p, v[0])", "q[0], k[0], v[0], scale=1.0"),
    ],
)  # fmt: skip
def test_attention_becomes_one_call(body: str, expected: str, tmp_path: Path) -> None:
    ((candidate, text),) = tried(SDPA, program(body, setup=HEADS), tmp_path)
    assert f"return F.scaled_dot_product_attention({expected})" in text
    assert not candidate.removes_copies
    assert candidate.keeps_values == ("drop(" not in body and "dropout" not in body)


def test_a_module_in_evaluation(tmp_path: Path) -> None:
    source = program("return model(x)", head=MODULE, setup="x = torch.randn(2, 16, 8)\nmodel = Attention().eval()")
    ((candidate, text),) = tried(SDPA, source, tmp_path)
    wanted = """
        q = q * self.scale
        x = nn.functional.scaled_dot_product_attention(
            q, k, v, dropout_p=self.attn_drop.p if self.attn_drop.training else 0.0, scale=1.0
        )
        return"""
    assert wanted.replace("nn.functional", "F") in text
    assert not candidate.keeps_values


@pytest.mark.parametrize(
    "changed",
    [
        "model.attn_drop.register_forward_hook(lambda *given: None)",
        "model.attn_drop.register_forward_hook(lambda *given, **more: None, with_kwargs=True)",
        "model.attn_drop.register_forward_pre_hook(lambda *given: None)",
        "model.attn_drop.register_full_backward_hook(lambda *given: None)",
        "model.attn_drop.register_full_backward_pre_hook(lambda *given: None)",
        "model.attn_drop.forward = lambda given: F.dropout(given, 0.1, model.training)",
        "class Dropout(nn.Dropout):\n    pass\nmodel.attn_drop = Dropout(0.1)",
        "class Mine(nn.Dropout):\n    pass\nmodel.attn_drop = Mine(0.1)",
        # Another layer's, that did not run.
        "model.other = Attention(); model.other.attn_drop.register_forward_hook(lambda *given: None)",
    ],
)
def test_a_module_that_does_more_is_still_called(changed: str, tmp_path: Path) -> None:
    setup = f"x = torch.randn(2, 16, 8)\nmodel = Attention()\n{changed}\nmodel.eval()"
    source = program("return model(x)", head=MODULE, setup=setup)
    assert proposals(SDPA, context_of(load(tmp_path, source))) == []


@pytest.mark.parametrize(("changed", "proposed"), [("pass", 1), ("drop.register_forward_hook(lambda *given: None)", 0)])
def test_a_module_outside_of_the_model(changed: str, proposed: int, tmp_path: Path) -> None:
    source = program("return drop((q @ k.mT).softmax(-1)) @ v", setup=f"{HEADS}{changed}\n")
    assert len(proposals(SDPA, context_of(load(tmp_path, source)))) == proposed


def test_hooks_of_all_modules_are_hooks(tmp_path: Path) -> None:
    source = program("return model(x)", head=MODULE, setup="x = torch.randn(2, 16, 8)\nmodel = Attention().eval()")
    context = context_of(load(tmp_path, source))
    assert proposals(SDPA, context)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *given: None)
    try:
        assert proposals(SDPA, context) == []
    finally:
        handle.remove()


def test_a_class_with_another_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = program("return model(x)", head=MODULE, setup="x = torch.randn(2, 16, 8)\nmodel = Attention().eval()")
    context = context_of(load(tmp_path, source))
    monkeypatch.setattr(torch.nn.Dropout, "forward", lambda module, given: given)
    assert proposals(SDPA, context) == []


@pytest.mark.parametrize(
    "body",
    [
        "p = (q @ k.mT).softmax(-1)\nreturn p @ v, p",
        "s = q @ k.mT\np = s.softmax(-1)\nreturn p @ v, s.amax()",
        "p = (q @ k.mT).softmax(-1)\nout = p @ v\nprint(p.shape)\nreturn out",
        "p = (q @ k.mT).softmax(-1)\nw = p @ v\nreturn w if w is not None else p",
        "return ((q @ k.mT + bias) * 0.3).softmax(-1) @ v",
        "return (q @ k.mT).softmax(-2) @ v",
        "return (q @ k.mT).masked_fill(~keep, -1e9).softmax(-1) @ v",
        "return (q @ k.mT + keep).softmax(-1) @ v",
        "return (q @ k.mT * torch.tensor(0.3)).softmax(-1) @ v",
        "return (q.double() @ k.mT.double()).softmax(-1).float() @ v",
        "w = k\ns = q @ w.mT\nw = w + 1\nreturn s.softmax(-1) @ v, w",
        "r = q + 0\ns = r @ k.mT\nr.relu_()\nreturn s.softmax(-1) @ v",
        "p = q @ k.mT\nfor _ in range(2):\n    o = p.softmax(-1) @ v\n    p = p + 1\nreturn o",
        "return (lambda: (q @ k.mT).softmax(-1) @ v)()",
        "return (q[0, 0] @ k[0, 0].mT).softmax(-1) @ v[0, 0]",
        "p = (q @ k.mT).softmax(-1)\ndef later():\n    return p\nreturn p @ v + 0 * later().sum()",
        "return (q @ k.mT).relu().softmax(-1) @ v",
        "p = (q @ k.mT).softmax(-1)\nif p is not None:\n    return p @ v",
    ],
)
def test_what_is_more_than_attention_stays(body: str, tmp_path: Path) -> None:
    assert proposals(SDPA, context_of(load(tmp_path, program(body, setup=HEADS)))) == []


def test_an_unfitting_name_of_the_function_is_not_used(tmp_path: Path) -> None:
    attend = "def program():\n    return (q @ k.mT).softmax(-1) @ v\n"
    source = f"import torch as th\nq, k, v = th.randn(3, 2, 4, 16, 8)\n{attend}"
    ((_, text),) = tried(SDPA, source, tmp_path)
    assert "return th.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)" in text
    bare = f"from torch import randn\nq, k, v = randn(3, 2, 4, 16, 8)\n{attend}"
    assert proposals(SDPA, context_of(load(tmp_path, bare, "bare"))) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_line_endings_stay(kind: Kind, tmp_path: Path) -> None:
    context = context_of(load(tmp_path, kind.examples[0][0].replace("\n", "\r\n")))
    candidate, *_ = proposals(kind, context)
    text = edited(context, candidate)
    assert text.count("\r\n") == text.count("\n")
