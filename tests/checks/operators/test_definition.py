"""What the program wrote is found in whatever torch and functools wrap around it."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.library import custom_op

from stridewise.checks.operators.check import check_op, site_of
from stridewise.checks.operators.definition import definition_of
from stridewise.checks.operators.load import target_of


def written(x: Tensor) -> Tensor:
    return x * 2


class Written(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2


class Methods:
    def written(self, x: Tensor) -> Tensor:
        return x * 2


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        return fn(*args)

    return call


def as_triton_op(name: str) -> Callable[..., Any]:
    triton_op = getattr(torch.library, "triton_op", None)
    if triton_op is None:
        pytest.skip("torch before 2.6 has no triton_op")
    return triton_op(f"stridewise_definition::{name}", mutates_args=())  # type: ignore[no-any-return]


WRAPPERS: dict[str, Callable[[], Any]] = {
    "functools.wraps": lambda: decorated(written),
    "functools.partial": lambda: functools.partial(written),
    "a partial of a partial": lambda: functools.partial(functools.partial(decorated(written))),
    "functools.lru_cache": lambda: functools.lru_cache(written),
    "functools.cache": lambda: functools.cache(written),
    "functools.singledispatch": lambda: functools.singledispatch(written),
    "torch.no_grad": lambda: torch.no_grad()(written),
    "torch.inference_mode": lambda: torch.inference_mode()(written),
    "torch.enable_grad": lambda: torch.enable_grad()(written),
    "torch.autocast": lambda: torch.autocast("cpu")(written),
    "torch.amp.custom_fwd": lambda: torch.amp.custom_fwd(written, device_type="cpu"),
    "torch.vmap": lambda: torch.vmap(written),
    "torch.func.grad": lambda: torch.func.grad(written),
    "torch.compile": lambda: torch.compile(written, backend="eager"),
    "torch.compiler.disable": lambda: torch.compiler.disable(written),
    "torch.autograd.once_differentiable": lambda: torch.autograd.function.once_differentiable(written),
    "custom_op": lambda: custom_op("stridewise_definition::plain", written, mutates_args=()),
    "custom_op of a decorated function": lambda: custom_op(
        "stridewise_definition::decorated", torch.no_grad()(written), mutates_args=(), schema="(Tensor x) -> Tensor"
    ),
    "triton_op": lambda: as_triton_op("plain_triton")(written),
    "triton_op of a decorated function": lambda: as_triton_op("decorated_triton")(decorated(written)),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_function_is_found_in_its_wrapper(name: str) -> None:
    wrapped = WRAPPERS[name]()
    site = site_of(wrapped, "written")
    assert site.text == "def written(x: Tensor) -> Tensor:"
    assert site.file is not None
    assert site.file.endswith("test_definition.py")
    assert definition_of(wrapped) is written


def test_modules_methods_and_functions_with_a_backward() -> None:
    assert site_of(torch.compile(Written(), backend="eager"), "Written").text == "class Written(nn.Module):"
    assert site_of(Written().__call__, "Written").text == "class Written(nn.Module):"
    assert site_of(Doubled.apply, "Doubled").text == "class Doubled(torch.autograd.Function):"
    assert site_of(Methods().written, "written").text == "    def written(self, x: Tensor) -> Tensor:"
    assert site_of(torch.no_grad()(Methods().written), "written").text == "    def written(self, x: Tensor) -> Tensor:"


@pytest.mark.parametrize(
    "fn", [torch.nn.functional.softmax, torch.add, torch.ops.aten.add.Tensor, len, torch.nn.ReLU()]
)
def test_what_no_program_wrote_is_its_own(fn: Any) -> None:
    assert definition_of(fn) is fn


def test_operators_in_torch_ops_are_those_of_the_program() -> None:
    op = custom_op("stridewise_definition::registered", written, mutates_args=())
    packet = torch.ops.stridewise_definition.registered
    assert definition_of(packet) is definition_of(packet.default) is definition_of(op) is written


def flat(x: Tensor) -> Tensor:
    """As a kernel reads that is given the sizes alone."""
    return x.as_strided(x.shape, torch.empty(x.shape).stride()) * 2


@pytest.mark.parametrize("kind", ["custom_op", "triton_op"])
def test_a_finding_is_at_the_function_of_the_program(kind: str) -> None:
    plain = custom_op("stridewise_definition::flat", mutates_args=())
    op = (plain if kind == "custom_op" else as_triton_op("flat_triton"))(flat)
    found = check_op(op, torch.randn(3, 4), contain=False, fake=False)
    (finding,) = [finding for finding in found.findings if finding.code == "SW401"]
    assert finding.site.text == "def flat(x: Tensor) -> Tensor:"


def test_an_operator_has_the_target_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    op = as_triton_op("target_triton")(written)
    monkeypatch.setitem(globals(), "target_op", op)
    assert target_of(op) == f"{__name__}:target_op"
