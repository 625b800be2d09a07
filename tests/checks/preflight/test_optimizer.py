"""SW204 and SW224: said of an optimizer exactly where torch's own steps go wrong, or walk two orders."""

import itertools

import pytest
import torch
from torch import nn

import stridewise
from stridewise.checks.preflight.facts import OptimizerFacts, OptimizerState, StateTensor, Subject
from stridewise.checks.rules import sw204, sw224
from stridewise.layout import Layout

SIZES = (4, 6)
MARK = 99.0
KINDS = {
    "adam": lambda p, fused: torch.optim.Adam([p], 0.1, fused=fused),
    "amsgrad": lambda p, fused: torch.optim.Adam([p], 0.1, amsgrad=True, fused=fused),
    "adamw": lambda p, fused: torch.optim.AdamW([p], 0.1, fused=fused),
    "sgd": lambda p, fused: torch.optim.SGD([p], 0.1, fused=fused),
    "momentum": lambda p, fused: torch.optim.SGD([p], 0.1, momentum=0.9, nesterov=True, fused=fused),
    "adagrad": lambda p, fused: torch.optim.Adagrad([p], 0.1, fused=fused),
}
WAYS = {
    "contiguous": lambda room: room[8:32].view(4, 6),
    "transposed": lambda room: room[8:32].view(6, 4).t(),
    "sliced": lambda room: room[8:56].view(4, 12)[:, :6],
    "every other": lambda room: room[8:56].view(4, 12)[:, ::2],
    "sliced and transposed": lambda room: room[8:56].view(6, 8)[:, :4].t(),
    "repeated rows": lambda room: room[8:14].expand(4, 6),
}


def laid(way: str, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values in some layout, in a room whose other places are marked."""
    room = torch.full((80,), MARK)
    view = WAYS[way](room)
    if way == "repeated rows":
        room[8:14] = values[0]
    else:
        view.copy_(values)
    return room, view


def marks_left(room: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether all but the view's own elements are as they were."""
    other = torch.ones_like(room)
    other.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(0)
    return bool((room[other.bool()] == MARK).all())


def a_step(
    kind: str, ways: tuple[str, str, str | None], fused: bool
) -> tuple[nn.Module, torch.optim.Optimizer, list[tuple[torch.Tensor, torch.Tensor]]]:
    """All that is ready for the second step, with parameter, gradient and state in these layouts."""
    of_parameter, of_gradient, of_state = ways
    values = torch.linspace(-1, 1, 24).reshape(SIZES)
    rooms = [laid(of_parameter, values.flip(0))]
    model = nn.Module()
    model.w = nn.Parameter(rooms[0][1])
    optimizer = KINDS[kind](model.w, False)
    model.w.grad = values.sin()
    optimizer.step()
    for key, value in optimizer.state[model.w].items():
        if isinstance(value, torch.Tensor) and value.shape == SIZES:
            rooms.append(laid(of_state or of_parameter, value))
            optimizer.state[model.w][key] = rooms[-1][1]
    gradient = values.cos() if of_gradient != "repeated rows" else values.cos()[:1].expand(SIZES)
    rooms.append(laid(of_gradient, gradient))
    model.w.grad = rooms[-1][1]
    optimizer.param_groups[0].update(fused=fused, foreach=False)
    return model, optimizer, rooms


def is_harmed(kind: str, ways: tuple[str, str, str | None]) -> bool:
    """Whether torch's fused step gives other values than the one that is not fused, or writes elsewhere."""
    ended = []
    for fused in (True, False):
        model, optimizer, rooms = a_step(kind, ways, fused)
        optimizer.step()
        ended.append(model.w.detach().clone())
        if fused and not all(marks_left(*room) for room in rooms):
            return True
    return not torch.allclose(*ended, atol=1e-5)


GRID = [
    (parameter, gradient, state)
    for parameter, gradient, state in itertools.product(
        ("contiguous", "transposed", "sliced", "every other", "sliced and transposed"),
        ("contiguous", "transposed", "sliced", "repeated rows"),
        (None, "contiguous", "transposed", "sliced"),
    )
    if state is not None or parameter in ("contiguous", "transposed")  # made by torch, it has no gaps
]
"""Layouts of the parameter, the gradient and the state; None for the state's own."""


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_said_of_fused_steps_exactly_where_torch_is_wrong(kind):
    judged = {True: 0, False: 0}
    for ways in GRID:
        model, optimizer, _ = a_step(kind, ways, fused=True)
        errors = [f for f in stridewise.preflight(model, optimizer).findings if f.code == "SW204"]
        harmed = is_harmed(kind, ways)
        assert bool(errors) == harmed, ways
        assert all(each.severity == "error" for each in errors)
        judged[harmed] += 1
    assert judged[True] > 0
    assert judged[False] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_said_of_dimensions_of_size_1_and_torch_is_right(kind):
    ended = []
    for strides in ((3, 1, 1), (3, 1, 7)):
        w = nn.Parameter(torch.arange(6.0).reshape(2, 3, 1))
        optimizer = KINDS[kind](w, True)
        for value in (1.0, 2.0):
            w.grad = torch.full((6,), value).as_strided((2, 3, 1), strides)
            model = nn.Module()
            model.w = w
            assert stridewise.preflight(model, optimizer).findings == ()
            optimizer.step()
        ended.append(w.detach().clone())
    assert torch.equal(*ended)


@pytest.mark.parametrize("fused", [True, False])
def test_the_advice_for_state_gives_it_its_parameters_strides(fused):
    model = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.to(memory_format=torch.channels_last)
    (found,) = [f for f in stridewise.preflight(model, optimizer).findings if f.code in ("SW204", "SW224")]
    assert (found.code, found.severity) == (("SW204", "error") if fused else ("SW224", "note"))
    for p, state in optimizer.state.items():
        for key, value in state.items():
            if value.shape == p.shape:
                state[key] = torch.empty_like(p).copy_(value)
    assert not {"SW204", "SW224"} & {f.code for f in stridewise.preflight(model, optimizer).findings}


@pytest.mark.parametrize("fused", [True, False])
def test_a_gradient_that_was_assigned(fused):
    model = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=fused)
    gradient = torch.randn(3, 4).t()
    model.weight.grad = gradient
    (found,) = stridewise.preflight(model, optimizer).findings
    assert found.code == ("SW204" if fused else "SW224")
    assert "gradient of" in found.message.lower() or "its gradient" in found.message
    model.weight.grad = torch.empty_like(model.weight).copy_(gradient)
    assert stridewise.preflight(model, optimizer).findings == ()


def test_equal_faults_of_many_parameters_are_one_finding():
    model = nn.Sequential(*(nn.Conv2d(3, 3, 3) for _ in range(5)))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    model(torch.randn(1, 3, 16, 16)).sum().backward()
    optimizer.step()
    model.to(memory_format=torch.channels_last)
    found = [f for f in stridewise.preflight(model, optimizer).findings if f.code == "SW204"]
    assert [(f.count, len(f.evidence)) for f in found] == [(5, 3)]


def test_parameters_that_only_the_optimizer_holds_are_judged():
    w = nn.Parameter(torch.randn(4, 8)[:, :4])
    found = stridewise.preflight(optimizer=torch.optim.AdamW([w], fused=True)).findings
    assert "SW204" in {f.code for f in found}
    assert "SW212" not in {f.code for f in found}  # no state dict has them


def test_frozen_parameters_are_not_updated():
    model = nn.Linear(4, 4)
    model.weight = nn.Parameter(torch.randn(4, 8)[:, :4], requires_grad=False)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    assert "SW204" not in {f.code for f in stridewise.preflight(model, optimizer).findings}


def test_what_others_call_fused_is_not_judged():
    class Theirs(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"fused": True})

    model = nn.Linear(4, 4)
    model.weight = nn.Parameter(torch.randn(4, 8)[:, :4])
    assert "SW204" not in {f.code for f in stridewise.preflight(model, Theirs(model.parameters())).findings}


def on(device: str, *, fused: bool, state: Layout) -> Subject:
    """A weight on a device that need not be here."""
    names = frozenset({"c.weight"})
    weight = StateTensor(
        names=("c.weight",),
        kind="parameter",
        module="c",
        module_type="Conv2d",
        layout=Layout((4, 3, 3, 3), (27, 1, 9, 3)),
        dtype="float32",
        itemsize=4,
        device=device,
        storage=0,
        storage_bytes=432,
        requires_grad=True,
        persistent=True,
    )
    rows = (OptimizerState("c.weight", "exp_avg", state),)
    optimizer = OptimizerFacts("Adam", names if fused else frozenset(), frozenset() if fused else names, names, rows)
    return Subject(tensors=(weight,), optimizers=(optimizer,))


OTHER = Layout((4, 3, 3, 3), (27, 9, 3, 1))


def test_on_cuda_the_fused_step_raises():
    (found,) = sw204.check(on("cuda", fused=True, state=OTHER))
    assert found.severity == "error"
    assert "on CUDA raises" in found.message


def test_of_other_devices_nothing_is_known():
    assert sw204.check(on("mps", fused=True, state=OTHER)) == []


def test_on_cuda_state_in_another_order_takes_a_kernel_for_each():
    (found,) = sw224.check(on("cuda", fused=False, state=OTHER))
    assert "a kernel for each" in found.message
    (found,) = sw224.check(on("cpu", fused=False, state=OTHER))
    assert "reads two orders" in found.message


EXAMPLES = [
    pytest.param(rule, text, id=f"{rule.__name__[-5:]}-{number}")
    for rule in (sw204, sw224)
    for number, text in enumerate(rule.FIRES)
]


@pytest.mark.parametrize(("rule", "text"), EXAMPLES)
def test_words(rule, text, snapshot):
    names = {}
    exec(compile(text, "example.py", "exec"), names)
    found = [f for f in stridewise.preflight(**names["subject"]()).findings if f.code == rule.__name__[-5:].upper()]
    lines = [line for f in found for line in (f.message, *f.evidence, f"Write: {f.advice}")]
    assert "\n".join(lines) == snapshot
