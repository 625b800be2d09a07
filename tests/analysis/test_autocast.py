"""What the report says autocast did, held against what torch itself shows while it runs."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import profile

import stridewise
from stridewise.analysis.autocast import autocast_use, rows
from stridewise.analysis.autocast.casting import Castings
from stridewise.analysis.case import Case
from stridewise.checks.operators.case import Arrangement
from stridewise.checks.operators.grid import CONTIGUOUS, grid, place
from stridewise.recording.handle import Recording
from stridewise.results import AutocastOperator, AutocastUse

from . import hand_made


def used(program: Callable[[], Any], steps: int = 1) -> AutocastUse:
    """What autocast did in some steps of a program."""
    found = analyzed(program, steps)
    assert found is not None
    return found


def analyzed(program: Callable[[], Any], steps: int = 1) -> AutocastUse | None:
    with stridewise.record() as recording:
        for _ in range(steps):
            program()
            stridewise.step()
    return stridewise.analyze(recording).autocast


def told(operator: AutocastOperator) -> tuple[str, str, str, float, float]:
    given = ", ".join(dict.fromkeys(operator.given))
    return operator.op.removeprefix("aten::"), given, operator.ran, operator.casts, operator.cache_hits


# -- contiguity does not gate autocast -------------------------------------------------------------------------------

SHAPES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "linear": (F.linear, ((2, 3, 4), (5, 4), (5,))),
    "matmul": (torch.matmul, ((2, 3, 4), (2, 4, 5))),
    "mm": (torch.mm, ((3, 4), (4, 5))),
    "mv": (torch.mv, ((3, 4), (4,))),
    "dot": (torch.dot, ((4,), (4,))),
    "bmm": (torch.bmm, ((2, 3, 4), (2, 4, 5))),
    "addmm": (torch.addmm, ((3, 5), (3, 4), (4, 5))),
    "addbmm": (torch.addbmm, ((3, 5), (2, 3, 4), (2, 4, 5))),
    "baddbmm": (torch.baddbmm, ((2, 3, 5), (2, 3, 4), (2, 4, 5))),
    "addmv": (torch.addmv, ((3,), (3, 4), (4,))),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), ((2, 3, 4), (2, 4, 5))),
    "chain_matmul": (lambda a, b, c: torch.linalg.multi_dot((a, b, c)), ((3, 4), (4, 5), (5, 2))),
    "inner": (torch.inner, ((3, 4), (5, 4))),
    "bilinear": (F.bilinear, ((3, 4), (3, 2), (5, 4, 2))),
    "conv1d": (F.conv1d, ((2, 3, 6), (4, 3, 3), (4,))),
    "conv2d": (F.conv2d, ((2, 3, 6, 5), (4, 3, 3, 2), (4,))),
    "conv3d": (F.conv3d, ((2, 2, 4, 3, 5), (4, 2, 2, 2, 3), (4,))),
    "conv_transpose1d": (F.conv_transpose1d, ((2, 3, 6), (3, 4, 3), (4,))),
    "conv_transpose2d": (F.conv_transpose2d, ((2, 3, 6, 5), (3, 4, 3, 2), (4,))),
    "conv_transpose3d": (F.conv_transpose3d, ((2, 2, 4, 3, 5), (2, 4, 2, 2, 3), (4,))),
    "attention": (F.scaled_dot_product_attention, ((2, 2, 4, 8), (2, 2, 5, 8), (2, 2, 5, 8))),
}
"""Operators that multiply; which of them autocast casts for is what torch shows below."""


def laid_out(sizes: tuple[int, ...], arrangement: Arrangement) -> Tensor:
    where = place(arrangement, sizes)
    return torch.randn(where.extent).as_strided(sizes, where.layout.strides, where.layout.offset)


def patterns(shapes: tuple[tuple[int, ...], ...]) -> Iterator[tuple[Arrangement, ...]]:
    """All operands contiguous; then each of them in every layout of the grid, while the others are contiguous."""
    plain = (CONTIGUOUS,) * len(shapes)
    yield plain
    for at, sizes in enumerate(shapes):
        for arrangement in grid(sizes, read_only=True):
            yield (*plain[:at], arrangement, *plain[at + 1 :])


def casts_of(operator: Callable[..., Tensor], operands: list[list[Tensor]]) -> list[tuple[Any, ...]]:
    """Of each execution: the result's dtype, and what its castings read and ran in."""
    results = []
    with stridewise.record() as recording, torch.autocast("cpu", dtype=torch.bfloat16):
        for tensors in operands:
            results.append(operator(*tensors).dtype)
            torch.ones(())  # a call that tells one execution from the next
    case = Case(recording.trace)
    found: list[list[Any]] = [[]]
    log = case.log
    castings = {}
    for casting in Castings(case).found:
        castings.setdefault(casting.call, []).append(casting)
    for call, row in enumerate(log.calls):
        if log.functions[row.function] == "torch.ones":
            found.append([])
        else:
            found[-1] += [(each.given, each.ran, len(each.casts), len(each.hits)) for each in castings.get(call, ())]
    return [(dtype, *each) for dtype, each in zip(results, found, strict=False)]


@pytest.mark.parametrize("name", list(SHAPES))
def test_strided_operands_are_cast_as_contiguous_ones_are(name):
    operator, shapes = SHAPES[name]
    layouts = list(patterns(shapes))
    assert len(layouts) > 2 * len(shapes)
    operands = [[laid_out(sizes, each) for sizes, each in zip(shapes, layout, strict=True)] for layout in layouts]
    plain, *strided = casts_of(operator, operands)
    for layout, seen in zip(layouts[1:], strided, strict=True):
        assert seen == plain, [each.name for each in layout]


def test_autocast_casts_for_most_of_them():
    seen = {}
    for name, (operator, shapes) in SHAPES.items():
        dtype, *castings = casts_of(operator, [[torch.randn(sizes) for sizes in shapes]])[0]
        seen[name] = any("bfloat16" in ran for _, ran, _, _ in castings)
        assert seen[name] or dtype == torch.float32, name
    assert sum(seen.values()) > len(seen) * 0.7
    assert all(seen[name] for name in ("linear", "matmul", "conv2d", "attention"))


@pytest.mark.parametrize("arrangement", [CONTIGUOUS, *grid((4, 6), read_only=True)], ids=lambda each: each.name)
def test_a_strided_parameter_is_cast_once_as_a_contiguous_one_is(arrangement):
    weight = nn.Parameter(laid_out((4, 6), arrangement))
    x = torch.randn(3, 6)

    def program():
        with torch.autocast("cpu"):
            F.linear(x, weight)
            F.linear(x, weight)

    first, second = (told(row)[3:] for row in used(program).regions[0].operators)
    assert (first, second) == ((2, 0), (1, 1))


# -- regions ---------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 8)
        self.outer = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.relu(self.inner(x)))


def test_regions_fold_over_steps_and_loops():
    net, x = Net(), torch.randn(3, 4)

    def program():
        for _ in range(3):
            with torch.autocast("cpu"):
                net(x)

    use = used(program, steps=2)
    (region,) = use.regions
    assert (region.device, region.dtype, region.enabled, region.cache) == ("cpu", "bfloat16", True, True)
    assert region.entered == 3
    assert region.site is not None
    assert region.site.expression == 'torch.autocast("cpu")'
    assert [told(row) for row in region.operators] == [
        ("linear", "float32", "bfloat16", 9, 0),
        ("linear", "bfloat16, float32", "bfloat16", 6, 0),
    ]
    assert [row.count for row in region.operators] == [3, 3]
    assert (use.cost.count, region.weights, use.cache_hits) == (15, 12, 0)
    moved = sum(tensor.numel() * (4 + 2) for tensor in (x, *net.parameters()))
    assert use.cost.bytes_moved == 3 * moved


def test_a_nested_region_that_is_off_stands_apart():
    net, x = Net(), torch.randn(3, 4)

    def program():
        with torch.autocast("cpu"):
            net(x)
            with torch.autocast("cpu", enabled=False):
                net(x)
            net(x)

    use = used(program, steps=2)
    on, off = use.regions
    assert (off.within, off.enabled) == (0, False)
    assert [told(row) for row in off.operators] == [("linear", "float32", "float32", 0, 0)] * 2
    assert not any(row.cast for row in off.operators)
    assert off.casts.count == 0
    # The cache outlives the region inside: the second run of the network casts its input alone.
    assert [told(row)[3:] for row in on.operators] == [(4, 2), (2, 2)]
    assert (on.casts.count, on.cache_hits) == (6, 4)


def test_float16():
    x = torch.randn(3, 4)

    def program():
        with torch.autocast("cpu", dtype=torch.float16):
            F.linear(x, torch.ones(2, 4))

    use = used(program)
    assert use.regions[0].dtype == "float16"
    assert [told(row) for row in use.regions[0].operators] == [("linear", "float32", "float16", 2, 0)]
    assert {row.dtype for row in use.casts} == {"float16"}


@pytest.mark.needs_torch("2.7", "the profiler does not record Python's threads")
def test_threads_fold_into_one_region():
    net, x = Net(), torch.randn(3, 4)

    def work():
        with torch.autocast("cpu"):
            net(x)

    def program():
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        net(x)

    (region,) = used(program).regions
    assert region.entered == 2
    assert sum(row.count for row in region.operators) == 4


def test_without_autocast_there_is_nothing():
    assert analyzed(lambda: Net()(torch.randn(3, 4))) is None


def test_a_cast_that_the_program_makes_is_none_of_autocast():
    def program():
        x = torch.randn(3, 4)
        (x.bfloat16() @ torch.ones(4, 4).to(torch.bfloat16)).float().softmax(-1, dtype=torch.float64)
        torch.randn(3, 4).bfloat16().sum(dtype=torch.float32)
        torch.randn(3, 4).bfloat16().norm(dtype=torch.float32)

    assert analyzed(program) is None

    def inside():
        with torch.autocast("cpu"):
            torch.randn(3, 4).bfloat16().float()

    use = used(inside)
    assert use.cost.count == 0
    assert use.casts == ()


def test_what_is_turned_on_by_hand_is_found_by_what_it_cast():
    net, x = Net(), torch.randn(3, 4)

    def program():
        torch.set_autocast_enabled("cpu", True)
        net(x)
        torch.set_autocast_enabled("cpu", False)
        torch.clear_autocast_cache()

    use = used(program)
    (region,) = use.regions
    assert use.recorded
    assert (region.device, region.enabled, region.site, region.entered) == (None, None, None, None)
    assert region.casts.count == 5


def test_operands_that_autocast_leaves_alone_are_told_as_given():
    def program():
        with torch.autocast("cpu"):
            torch.randn(3, 4, dtype=torch.float64) @ torch.randn(4, 2, dtype=torch.float64)
            torch.randn(3, 4, dtype=torch.bfloat16) @ torch.randn(4, 2, dtype=torch.bfloat16)

    rows = used(program).regions[0].operators
    assert [(row.given, row.ran, row.cast) for row in rows] == [
        (("float64", "float64"), "float64", False),
        (("bfloat16", "bfloat16"), "bfloat16", False),
    ]


def test_operators_that_autocast_casts_back_are_told():
    def program():
        with torch.autocast("cpu"):
            y = F.linear(torch.randn(3, 4), torch.randn(3, 4))
            F.mse_loss(y, y)
            torch.cat([y, torch.randn(3, 3)])

    rows = [told(row) for row in used(program).regions[0].operators]
    assert ("mse_loss", "bfloat16", "float32", 2, 0) in rows
    assert ("cat", "bfloat16", "float32", 1, 0) in rows


def test_gradients_that_are_cast_back_belong_to_the_region_of_the_cast():
    net, x = Net(), torch.randn(3, 4)

    def program():
        with torch.autocast("cpu"):
            loss = net(x).sum()
        loss.backward()

    use = used(program, steps=2)
    assert use.backward.count == use.regions[0].backward.count == 4
    assert use.backward.bytes_moved == sum(tensor.numel() * (4 + 2) for tensor in net.parameters())
    assert all(tensor.grad is not None and tensor.grad.dtype == torch.float32 for tensor in net.parameters())


# -- which tensors ---------------------------------------------------------------------------------------------------


def test_casts_name_what_they_read():
    net, x = Net(), torch.randn(3, 4)

    def program():
        with torch.autocast("cpu"):
            net(x)
            torch.mm(x.sin(), net.inner.weight.t())

    use = used(program)
    assert {(row.tensor, row.parameter) for row in use.casts} == {
        ("the parameter `inner.weight`", True),
        ("the parameter `inner.bias`", True),
        ("the parameter `outer.weight`", True),
        ("the parameter `outer.bias`", True),
        ("the input `0`", False),
        ("what `torch.Tensor.sin` returns", False),
        ("a view of the parameter `inner.weight`", False),
    }
    assert use.unidentified == 0


def test_equal_layers_share_their_rows():
    net, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))), torch.randn(2, 4)

    def program():
        with torch.autocast("cpu"):
            net(x)

    rows = {row.tensor: row.cost.count for row in used(program).casts if row.parameter}
    assert rows == {"the parameter `*.weight`": 3, "the parameter `*.bias`": 3}


@pytest.mark.parametrize("square", [4, 5])
def test_a_parameter_from_the_cache_is_told_from_an_operand_that_looks_alike(square):
    weight, other = nn.Linear(4, square, bias=False), torch.randn(square, 4)

    def program():
        with torch.autocast("cpu"):
            weight(other)
            weight(other)

    casts = used(program).casts
    assert sorted((row.tensor or "", row.cost.count) for row in casts) == [
        ("the input `0`", 1),
        ("the input `0`", 1),
        ("the parameter `weight`", 1),
    ]


# -- again -----------------------------------------------------------------------------------------------------------


def repeated(program: Callable[[], Any]) -> list[tuple[str | None, float, str]]:
    return [(row.tensor, row.again.count, row.reason) for row in used(program).repeated]


def frozen():
    layer, x = nn.Linear(4, 4, bias=False).requires_grad_(False), torch.randn(1, 4)
    with torch.autocast("cpu"):
        layer(x)
        layer(x.sin())
    return layer


def without_a_cache():
    layer = nn.Linear(4, 4, bias=False)
    with torch.autocast("cpu", cache_enabled=False):
        layer(torch.randn(1, 4))
        layer(torch.randn(1, 4))
    return layer


def two_regions():
    layer = nn.Linear(4, 4, bias=False)
    for _ in range(2):
        with torch.autocast("cpu"):
            layer(torch.randn(1, 4))
    return layer


def inference():
    layer = nn.Linear(4, 4, bias=False)
    with torch.inference_mode(), torch.autocast("cpu"):
        layer(torch.randn(1, 4))
        layer(torch.randn(1, 4))
    return layer


def float16_parameter():
    layer = nn.Linear(4, 4, bias=False).half()
    with torch.autocast("cpu"):
        layer(torch.randn(1, 4))
        layer(torch.randn(1, 4))
    return layer


PARAMETER = "the parameter `weight`"
AGAIN = {
    frozen: (PARAMETER, 1, rows.NO_GRADIENT),
    without_a_cache: (PARAMETER, 1, rows.CACHE_OFF),
    two_regions: (PARAMETER, 1, rows.FORGETS),
    inference: (PARAMETER, 1, rows.INFERENCE),
    float16_parameter: (PARAMETER, 1, rows.OTHER_DTYPE),
}


@pytest.mark.needs_torch("2.7", "autocast keeps the cast of a parameter in inference mode, too", "[inference]")
@pytest.mark.parametrize("program", AGAIN)
def test_a_parameter_that_is_cast_again_has_a_reason(program):
    kept = []  # names are learnt at the end, from modules that are still there
    assert repeated(lambda: kept.append(program())) == [AGAIN[program]]


def cast_once():
    y, layers = torch.randn(1, 4).sin(), [nn.Linear(4, 4, bias=False) for _ in range(2)]
    with torch.autocast("cpu"):
        y = y.to(torch.bfloat16)
        return [layer(y) for layer in layers]


def view_of_the_cast():
    layer, x = nn.Linear(4, 5, bias=False), torch.randn(1, 4)
    with torch.autocast("cpu"):
        view = layer.weight.to(torch.bfloat16).t()
        return layer, torch.mm(x.sin(), view), torch.mm(x.cos(), view)


def frozen_in_the_lower_dtype():
    layer, x = nn.Linear(4, 4, bias=False).requires_grad_(False).to(torch.bfloat16), torch.randn(1, 4)
    with torch.autocast("cpu"):
        return layer, layer(x), layer(x.sin())


def one_region():
    layer = nn.Linear(4, 4, bias=False)
    with torch.autocast("cpu"):
        return layer, [layer(torch.randn(1, 4)) for _ in range(2)]


def converted_for_inference():
    layer = nn.Linear(4, 4, bias=False).to(torch.bfloat16)
    with torch.inference_mode(), torch.autocast("cpu"):
        return layer, layer(torch.randn(1, 4)), layer(torch.randn(1, 4))


@pytest.mark.parametrize(
    "program", [cast_once, view_of_the_cast, frozen_in_the_lower_dtype, one_region, converted_for_inference]
)
def test_what_the_guide_says_to_write_ends_it(program):
    kept = []
    assert repeated(lambda: kept.append(program())) == []


def test_the_cache_works_without_gradients():
    layer, x = nn.Linear(4, 4), torch.randn(1, 4)

    def program():
        with torch.no_grad(), torch.autocast("cpu"):
            layer(x)
            layer(x.sin())

    assert repeated(program) == []


def test_a_result_that_is_used_twice_is_cast_twice():
    x = torch.randn(3, 4)

    def program():
        with torch.autocast("cpu"):
            y = x.sin()
            for _ in range(3):
                F.linear(y, torch.randn(2, 4))

    assert repeated(program) == [("what `torch.Tensor.sin` returns", 2, rows.KEEPS)]


def test_a_result_that_is_written_between_is_another():
    x = torch.randn(3, 4)

    def program():
        with torch.autocast("cpu"):
            y = x.sin()
            F.linear(y, torch.randn(2, 4))
            y.add_(1)
            F.linear(y, torch.randn(2, 4))

    assert repeated(program) == []


def test_views_of_a_parameter_are_cast_each_time():
    layer, x = nn.Linear(4, 5, bias=False), torch.randn(1, 4)

    def program():
        with torch.autocast("cpu"):
            layer(x)
            torch.mm(x.sin(), layer.weight.t())
            torch.mm(x.cos(), layer.weight.t())

    assert repeated(program) == [("a view of the parameter `weight`", 1, rows.VIEW)]


# -- with copies -----------------------------------------------------------------------------------------------------


def test_a_cast_and_a_copy_of_its_result_are_a_pair():
    layer, x = nn.Linear(8, 3), torch.randn(2, 8, 4)

    def program():
        with torch.autocast("cpu"):
            layer(x.transpose(1, 2))

    (pair,) = used(program).with_copies
    assert not pair.one_pass
    assert (pair.tensor, pair.sizes, pair.source_strides) == (
        "what `torch.Tensor.transpose` returns",
        (2, 4, 8),
        (32, 1, 4),
    )
    assert pair.cost.count == 1
    assert pair.cost.bytes_moved == x.numel() * ((4 + 2) + (2 + 2))


def test_a_cast_that_writes_another_order_is_one_pass():
    def program():
        with torch.autocast("cpu"):
            F.conv2d(torch.randn(1, 2, 6, 6)[..., ::2], torch.randn(3, 2, 2, 2))

    (pair,) = used(program).with_copies
    assert pair.one_pass
    assert (pair.source_strides, pair.strides) == ((72, 36, 6, 2), (36, 18, 3, 1))


def test_operands_that_need_no_copy_are_no_pairs():
    net = Net()

    def program():
        with torch.autocast("cpu"):
            net(torch.randn(8, 4)).sum()
            nn.functional.linear(torch.randn(2, 8), torch.randn(8, 8), torch.randn(8))

    assert used(program).with_copies == ()


# -- recordings of others --------------------------------------------------------------------------------------------


def foreign(tmp_path, program: Callable[[], Any], **options: Any) -> AutocastUse | None:
    with profile(**options) as profiled:
        program()
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    return stridewise.analyze(Recording.load(tmp_path / "trace.json")).autocast


def test_a_trace_of_the_profiler_shows_casts_without_regions(tmp_path):
    net, x = Net(), torch.randn(3, 4)

    def program():
        with torch.autocast("cpu"):
            loss = net(x).sum()
        loss.backward()

    use = foreign(tmp_path, program, record_shapes=True)
    assert use is not None
    assert not use.recorded
    (region,) = use.regions
    assert (region.enabled, region.casts.count, use.backward.count, use.unidentified) == (None, 5, 4, 5)
    assert use.repeated == ()
    assert foreign(tmp_path, program) is None
    assert foreign(tmp_path, lambda: net(x), record_shapes=True) is None


def traced_linear(shapes: list[list[int]], dtypes: list[str]) -> list[Any]:
    """A linear on a device, as torch's profiler writes it: the weight comes from the cache."""

    def low(*kinds: str) -> list[str]:
        return ["c10::Half" if kind == "float" else kind for kind in kinds]

    x = shapes[0]
    strides = [[shape[-1], 1] for shape in shapes]
    cast = {"sizes": [x, x], "strides": [strides[0], strides[0]]}
    outer = hand_made.op("aten::linear", 0, 100, shapes, strides)
    outer["args"]["Input type"] = dtypes
    inner = hand_made.op("aten::linear", 50, 40, shapes, strides)
    inner["args"]["Input type"] = low(*dtypes)
    copy = hand_made.op("aten::copy_", 12, 6, **cast)
    copy["args"]["Input type"] = ["c10::Half", "float"]
    to = hand_made.op("aten::to", 10, 10, [x], [strides[0]])
    return [outer, to, hand_made.op("aten::_to_copy", 11, 8, [x], [strides[0]]), copy, inner]


def test_on_a_device_a_cast_takes_as_long_as_its_kernel():
    events = traced_linear([[4, 8], [2, 8]], ["float", "float"])
    recording = hand_made.recording(
        *events, hand_made.launch(14, 1), hand_made.kernel(200, 7, "cast_kernel", 1), hand_made.kernel(210, 9, "gemm")
    )
    use = stridewise.analyze(recording).autocast
    assert use is not None
    assert (use.cost.count, use.cost.bytes_moved, use.cost.duration_ns) == (1, 32 * (4 + 2), 7000)
    assert use.cache_hits == 1
    (row,) = use.regions[0].operators
    assert told(row) == ("linear", "float32", "float16", 1, 1)


def test_operators_inside_their_own_kind_are_none_of_autocast():
    events = traced_linear([[4, 8], [2, 8]], ["float", "float"])
    for event in events:
        event["args"]["Input type"] = [
            "double" if kind == "c10::Half" else kind for kind in event["args"]["Input type"]
        ]
    assert stridewise.analyze(hand_made.recording(*events)).autocast is None


def test_a_recording_of_an_earlier_version_says_that_regions_are_not_known():
    layer, x = nn.Linear(4, 4, bias=False), torch.randn(1, 4)
    with stridewise.record() as recording:
        for _ in range(2):
            with torch.autocast("cpu"):
                layer(x)
        stridewise.step()
    log = recording.trace.log
    assert log is not None
    older = [msgspec.structs.replace(call, autocast=-1) for call in log.calls]
    trace = msgspec.structs.replace(recording.trace, log=msgspec.structs.replace(log, autocast=None, calls=older))
    use = autocast_use(Case(trace))
    assert use is not None
    assert not use.recorded
    assert (PARAMETER, rows.UNKNOWN) in {(row.tensor, row.reason) for row in use.repeated}


def test_the_report_of_autocast_survives_json():
    net, x = Net(), torch.randn(3, 4)

    def program():
        with torch.autocast("cpu"):
            net(x)

    use = used(program)
    text = msgspec.json.encode(use)
    assert msgspec.json.decode(text, type=AutocastUse) == use
    assert json.loads(text)["regions"][0]["dtype"] == "bfloat16"
