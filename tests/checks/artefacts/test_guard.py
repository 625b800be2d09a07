"""Guards stand by themselves, and give a program the layouts that it was made for."""

import collections
import dataclasses
import subprocess
import sys
import warnings

import pytest
import torch
from torch.export import Dim
from torch.utils import _pytree

import stridewise
from stridewise.checks.artefacts.arguments import paths
from stridewise.checks.artefacts.check import check_export
from stridewise.checks.artefacts.guarded import guarded, strides_for
from stridewise.errors import UsageError

from . import models
from .models import IS_OLD, exported

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Batch:
    image: torch.Tensor
    mask: torch.Tensor


class Fields(collections.UserDict):
    """Registered without keys."""


class EveryOther(torch.nn.Module):
    """Takes every other column, by strides that are constants once it is exported."""

    def forward(self, x):
        return x.as_strided((x.shape[0], 3), (x.stride(0), 2 * x.stride(1))) * 2


class Doubled(torch.nn.Module):
    def forward(self, x):
        return 2 * x


class FlatAndOther(torch.nn.Module):
    def forward(self, x, y):
        return 2 * x.contiguous().view(-1) + y.t().contiguous().t().reshape(-1)


@pytest.fixture(scope="module", autouse=True)
def _registered():
    torch.export.register_dataclass(Batch)
    _pytree.register_pytree_node(
        Fields,
        lambda fields: (list(fields.values()), list(fields)),
        lambda values, keys: Fields(zip(keys, values, strict=True)),
    )
    yield
    for kind in (Batch, Fields):
        _pytree.SUPPORTED_NODES.pop(kind, None)


def flat():
    return exported(models.Flat(), torch.randn(4, 6))


def test_the_text_needs_nothing_of_ours(tmp_path):
    program = flat()
    result = check_export(program)
    torch.export.save(program, tmp_path / "flat.pt2")
    (tmp_path / "guard.py").write_text(result.guard)
    script = (
        "import sys, torch, guard\n"
        "program = guard.guard(torch.export.load('flat.pt2').module())\n"
        "x = torch.randn(6, 4).t()\n"
        "assert torch.equal(program(x), 2 * x.reshape(-1))\n"
        "assert not any(name.startswith('stridewise') for name in sys.modules)\n"
        "try:\n    guard.guard(program, 'raise')(x)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert ran.stderr == ""
    assert ran.stdout == ("input 0 (x): sizes (4, 6) with strides (1, 4); the program was made for strides (6, 1)\n")


def test_a_guard_hands_on_what_is_as_it_was_made_for():
    seen = []
    x, y = torch.randn(4, 6), torch.randn(6, 4).t()
    made_for = {"0": ((4, 6), (6, 1)), "y": ((4, 6), (1, 4))}
    call = guarded(lambda *args, **kwargs: seen.append((args, kwargs)), made_for)
    call(x, 3, y=y)
    assert seen[0][0][0] is x
    assert seen[0] == ((x, 3), {"y": y})


def test_containers_stay_what_they_are():
    rows, columns = ((2, 3), (3, 1)), ((2, 3), (1, 2))
    made_for = {"0.a": rows, "0.b": columns, "1.0": rows, "pair.first": columns, "pair.second": rows}
    call = guarded(lambda *args, **kwargs: (args, kwargs), made_for)
    turned = torch.arange(6.0).reshape(3, 2).t()
    (first, second), kwargs = call({"a": turned, "b": turned}, [turned], pair=Pair(turned, turned))
    assert first["a"].stride() == second[0].stride() == kwargs["pair"].second.stride() == (3, 1)
    assert first["b"] is turned
    assert kwargs["pair"].first is turned
    assert torch.equal(first["a"], turned)


@pytest.mark.parametrize(
    ("sizes", "made", "strides"),
    [
        ((4, 6), ((4, 6), (1, 4)), (1, 4)),
        ((5, 3), ((4, 6), (1, 4)), (1, 5)),
        ((2, 3, 5, 4), ((1, 3, 8, 8), (192, 1, 24, 3)), (60, 1, 12, 3)),
        ((9, 6), ((4, 6), (8, 1)), (8, 1)),
        ((9, 4, 6), ((9, 3, 6), (24, 8, 1)), (32, 8, 1)),
        ((5, 6), ((1, 6), (1, 1)), (6, 1)),
        ((5,), ((4,), (2,)), (2,)),
    ],
)
def test_other_sizes_get_the_same_order_of_dimensions(sizes, made, strides):
    given = torch.randn(sizes)
    laid = guarded(lambda x: x, {"0": made})(given)
    assert laid.stride() == strides
    assert torch.equal(laid, given)


def test_what_shares_elements_is_not_made():
    call = guarded(lambda x: x, {"0": ((4, 6), (1, 0))})
    with pytest.raises(ValueError, match="made for strides"):
        call(torch.randn(4, 6))


def test_modes_are_two():
    result = check_export(flat())
    with pytest.raises(UsageError, match="A mode of 'silent'"):
        stridewise.guard_artefact(flat(), result, mode="silent")
    with pytest.raises(ValueError, match="a mode is"):
        guarded(None, {}, "silent")


def test_where_every_layout_is_right_there_is_no_guard():
    result = check_export(exported(models.Rows(), torch.randn(4, 6)))
    program = models.Rows()
    assert result.guard is None
    assert stridewise.guard_artefact(program, result) is program


# ------------------------------------------------------------------------------------------------- other sizes


def with_gaps(rows):
    return torch.randn(rows, 8)[:, :6]


def test_strides_that_are_constants_stay_for_other_sizes():
    program = torch.export.export(EveryOther(), (with_gaps(4),), dynamic_shapes=({0: Dim("B", min=2, max=64)},))
    result = check_export(program)
    call, strict = (stridewise.guard_artefact(program, result, mode=mode) for mode in ("convert", "raise"))
    x = with_gaps(9)
    for given in (x, x.contiguous(), x.t().contiguous().t()):
        torch.testing.assert_close(call(given), 2 * x[:, ::2])
    torch.testing.assert_close(strict(x), 2 * x[:, ::2])
    with pytest.raises(ValueError, match=r"the program was made for strides \(8, 1\)"):
        strict(x.contiguous())


@pytest.mark.parametrize(
    ("example", "dims"),
    [
        (torch.randn(4, 8)[:, :6], (0,)),
        (torch.randn(6, 4).t(), (0,)),
        (torch.randn(6, 4).t(), (1,)),
        (torch.randn(4, 3, 6), (1,)),
        (torch.randn(4, 5, 8)[:, :, :6], (1,)),
        (torch.randn(4, 5, 8)[:, :3, :6], (0,)),
        (torch.randn(4, 3, 8, 10).to(memory_format=torch.channels_last), (2, 3)),
        (torch.randn(8)[::2], (0,)),
    ],
)
@pytest.mark.skipif(IS_OLD, reason="the symbols of torch 2.6 can't be evaluated in this way")
def test_strides_for_other_sizes_are_those_of_the_exported_program(example, dims):
    shapes = {dim: Dim(f"size_{dim}", min=2, max=64) for dim in dims}
    program = torch.export.export(Doubled(), (example,), dynamic_shapes=(shapes,))
    (made,) = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    sizes = tuple(17 + dim if dim in dims else size for dim, size in enumerate(example.shape))
    replaced = {made.shape[dim].node.expr: sizes[dim] for dim in dims}
    strides = tuple(int(s.node.expr.subs(replaced)) if isinstance(s, torch.SymInt) else s for s in made.stride())
    assert strides_for(sizes, tuple(example.shape), example.stride()) == strides


def test_a_package_of_rows_with_gaps_is_right_for_another_batch(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        program = torch.export.export(models.Rows(), (with_gaps(4),), dynamic_shapes=({0: Dim("B", min=2, max=64)},))
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "gaps.pt2"))
    result = check_export(path, with_gaps(4))
    call = stridewise.guard_artefact(torch._inductor.aoti_load_package(path), result)
    x = with_gaps(9)
    for given in (x, x.contiguous()):
        torch.testing.assert_close(call(given), models.Rows()(x))


# -------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("mode", ["convert", "raise"])
@pytest.mark.parametrize("named", [True, False], ids=["sample by name", "sample by position"])
def test_an_argument_is_known_by_position_and_by_name(named, mode):
    x, turned = torch.randn(4, 6), torch.randn(6, 4).t()
    program = torch.jit.trace(EveryOther(), (x,))
    result = check_export(program, kwargs={"x": x}) if named else check_export(program, x)
    call = stridewise.guard_artefact(program, result, mode=mode)
    for args, kwargs in (((turned,), {}), ((), {"x": turned})):
        if mode == "raise":
            with pytest.raises(ValueError, match="the program was made for strides"):
                call(*args, **kwargs)
        else:
            torch.testing.assert_close(call(*args, **kwargs), 2 * turned[:, ::2])


def test_an_argument_that_is_not_known_is_refused():
    call = guarded(lambda *args, **kwargs: None, {"0": ((4, 6), (6, 1))}, parameters=("x",))
    call(torch.randn(4, 6), torch.tensor(3.0), 2, scale=None)
    with pytest.raises(ValueError, match=r"input y: the guard does not know it; it knows 0$"):
        call(torch.randn(4, 6), y=torch.randn(3))
    with pytest.raises(ValueError, match="input 1: the guard does not know it"):
        call(torch.randn(4, 6), torch.randn(3))


@pytest.mark.parametrize("mode", ["convert", "raise"])
def test_another_number_of_dimensions_is_named(mode):
    call = guarded(lambda x: x, {"0": ((4, 6), (6, 1))}, mode, parameters=("x",))
    expected = r"^input 0 \(x\): 3 dimensions, of sizes \(4, 6, 1\); the program was made for 2, of sizes \(4, 6\)$"
    with pytest.raises(ValueError, match=expected):
        call(torch.randn(4, 6, 1))


@pytest.mark.parametrize("mode", ["convert", "raise"])
@pytest.mark.parametrize(
    ("given", "made"),
    [
        (torch.randn(4, 1, 6).as_strided((4, 1, 6), (6, 1, 1)), ((4, 1, 6), (6, 6, 1))),
        (torch.randn(1, 6).as_strided((1, 6), (40, 1)), ((4, 6), (6, 1))),
        (torch.empty(6, 0).t(), ((4, 6), (6, 1))),
    ],
)
def test_strides_that_reach_no_element_do_not_matter(mode, given, made):
    laid = guarded(lambda x: x, {"0": made}, mode)(given)
    assert laid.stride() == made[1]  # a package that checks compares these too
    assert laid.data_ptr() == given.data_ptr()
    assert torch.equal(laid, given)


def test_a_layout_whose_dimensions_overlap_is_not_made():
    call = guarded(lambda x: x, {"0": ((4, 6), (2, 1))})
    window = torch.randn(12).as_strided((4, 6), (2, 1))
    assert call(window) is window
    with pytest.raises(ValueError, match="made for strides"):
        call(torch.randn(4, 6))


def filled(kind, a, b):
    return kind([("image", a), ("mask", b)])


@pytest.mark.parametrize(
    ("make", "get"),
    [
        (Batch, lambda value: (value.image, value.mask)),
        (Pair, tuple),
        (lambda a, b: filled(dict, a, b), lambda value: tuple(value.values())),
        (lambda a, b: filled(Fields, a, b), lambda value: tuple(value.values())),
        (lambda a, b: filled(collections.OrderedDict, a, b), lambda value: tuple(value.values())),
        (lambda a, b: collections.defaultdict(list, image=a, mask=b), lambda value: tuple(value.values())),
        (lambda a, b: [a, (b,)], lambda value: (value[0], value[1][0])),
    ],
    ids=["dataclass", "namedtuple", "dict", "registered without keys", "OrderedDict", "defaultdict", "list"],
)
def test_any_container_that_torch_knows_is_rebuilt(make, get):
    rows, columns = torch.randn(4, 6), torch.randn(6, 4).t()
    made_for = {path: (tuple(t.shape), t.stride()) for path, t in paths(((make(rows, columns),), {}))}
    assert len(made_for) == 2
    call = guarded(lambda value: value, made_for)
    kept = make(rows, columns)
    assert call(kept) is kept
    found = call(make(columns, rows))
    assert type(found) is type(kept)
    assert [entry.stride() for entry in get(found)] == [(6, 1), (1, 4)]
    assert torch.equal(get(found)[0], columns)
    assert torch.equal(get(found)[1], rows)


def test_what_is_beyond_the_operands_that_are_tried_is_known(monkeypatch):
    monkeypatch.setattr("stridewise.checks.operators.operands.MOST_OPERANDS", 1)
    x, y = torch.randn(4, 6), torch.randn(6, 4).t()
    program = exported(FlatAndOther(), x, y)
    call = stridewise.guard_artefact(program, check_export(program))
    assert torch.equal(call(y, x), 2 * y.reshape(-1) + x.reshape(-1))


def test_a_view_that_is_returned_is_of_the_copy():
    def add(x):
        x.add_(1)
        return x.view(-1)

    x = torch.zeros(3, 2).t()
    view = guarded(add, {"0": ((2, 3), (3, 1))}, written=("0",))(x)
    assert torch.equal(x, torch.ones(2, 3))
    assert view.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


# --------------------------------------------------------------------------------- programs that show a finding


def test_variables_of_a_program_do_not_collide():
    class Many(torch.nn.Module):
        def forward(self, a, a_0, x, made_x):
            return 2 * x.contiguous().view(-1), 2 * a[0] - a_0 + made_x

    x = torch.randn(4, 6)
    program = exported(Many(), [torch.randn(4, 6)], torch.randn(4, 6), x, torch.randn(4, 6))
    (made,) = check_export(program).snippets
    assert not made.code.startswith("# Run as it stands")
    names = [line.partition(" = ")[0] for line in made.code.splitlines() if " = " in line and line[0] != "#"]
    assert len(names) == len(set(names)) == 5
    with pytest.raises(RuntimeError, match="view"):
        exec(made.code, {"program": program.module()})
