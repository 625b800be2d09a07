"""Autocast in real models, against an independent count: torch's dispatcher below autocast sees every cast."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import stridewise
from stridewise.analysis.autocast.casting import Castings
from stridewise.analysis.case import Case
from stridewise.analysis.functions import CASTS, short_name
from stridewise.demo.model import Encoder
from stridewise.recorder.functions import function_name
from stridewise.recorder.private import in_backward

from .models import build

Row = tuple[str, str, tuple[int, ...]]
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class Asked(TorchFunctionMode):
    """Knows while the program itself asks for a cast."""

    depth = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_cast = short_name(function_name(func)) in CASTS or (kwargs or {}).get("dtype") is not None
        self.depth += is_cast
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.depth -= is_cast


class Below(TorchDispatchMode):
    """Counts casts that nobody asked for; in backward those of casts' gradients, also of casts that were asked for."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked
        self.forward: Counter[Row] = Counter()
        self.backward = self.asked_for = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default:
            source, target = args[0].dtype, result.dtype
            if source in _FLOATS and target in _FLOATS and source != target:
                if in_backward():
                    # Of residual connections that add two dtypes, the node of the addition casts too.
                    self.backward += torch._C._current_autograd_node().name() == "ToCopyBackward0"
                elif self.asked.depth:
                    self.asked_for += args[0].requires_grad
                else:
                    self.forward[name(source), name(target), tuple(result.shape)] += 1
        return result


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def encoder() -> Callable[[], Any]:
    model, images = Encoder(width=32, heads=2, depth=2), torch.randn(2, 3, 32, 32)

    def step() -> Any:
        model.zero_grad()
        return model(images).float().pow(2).mean().backward()

    return step


STEPS = {
    "demo": encoder,
    "bert": lambda: build("bert", True),
    "vit": lambda: build("vit", True),
    "whisper, inference": lambda: build("whisper", False),
}


@pytest.fixture(scope="module", params=list(STEPS))
def step(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return STEPS[request.param]()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=name)
def test_casts_are_those_that_the_dispatcher_sees(step, dtype):
    def program():
        with torch.autocast("cpu", dtype=dtype):
            step()

    asked = Asked()
    below = Below(asked)
    with asked, below:
        program()
    with stridewise.record() as recording:
        program()
        recording.step()
    found: Counter[Row] = Counter()
    forward = [each for each in Castings(Case(recording.trace)).found if recording.trace.ops.node[each.outer] < 0]
    for casting in forward:
        for cast in casting.casts:
            assert cast.source_dtype is not None
            assert cast.dtype is not None
            found[cast.source_dtype, cast.dtype, cast.sizes] += 1
    assert found == below.forward
    use = stridewise.analyze(recording).autocast
    assert use is not None
    # These steps run backward under autocast too, which then casts for operators of backward.
    assert use.cost.count >= below.forward.total()
    backward = below.backward - below.asked_for
    assert use.cost.count + use.backward.count == below.forward.total() + backward
    assert use.cost.count == sum(region.casts.count for region in use.regions)
    assert sum(row.cost.count for row in use.casts) == pytest.approx(use.cost.count)
    assert use.regions[0].dtype == name(dtype)
