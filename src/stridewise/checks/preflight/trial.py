"""A forward and a backward with the sample, on copies: which gradients an optimizer and other ranks will meet."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stridewise.checks.preflight.collect import is_a, wrapper_of
from stridewise.checks.preflight.facts import Trial
from stridewise.checks.words import layout_of
from stridewise.errors import UsageError
from stridewise.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor, nn

_LARGEST_COPY = 4 << 30
"""Bytes of parameters."""


_AROUND = {"DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}
"""By the class of a wrapper: where it holds what it wraps."""


def observe(model: nn.Module, sample: Any, loss: Callable[[Any], Tensor] | None) -> Trial:
    """The layouts of the gradients that a forward and a backward give.

    They run on copies of the model and of the sample. Raises UsageError where these can't be made, or a backward has
    nothing to start from, and whatever the model raises.
    """
    import torch

    from stridewise.recorder.state import keep_state

    own, path = _inside(model)
    tried, twins = _copied(own)
    args, kwargs = arguments(_sample_copied(sample))
    names = {id(twins.get(id(module))): _joined(path, name) for name, module in own.named_modules()}
    # A copy calls the program's own hooks, and what a loss holds may be the model itself, and get gradients.
    state = keep_state([("", own), ("", loss), ("", list(_shared(tried)))], parameters=False)
    try:
        with torch.inference_mode(False), torch.enable_grad(), _eager(), _watched(names) as inputs:
            _scalar(tried(*args, **kwargs), loss).backward()
    finally:
        state.restore()
    found = {id(parameter): _gradient(twins.get(id(parameter))) for parameter in own.parameters()}
    return Trial(
        {key: layout for key, layout in found.items() if layout is not None},
        inputs,
        any(_is_compiled(module) for module in model.modules()),
    )


def _inside(model: Any) -> tuple[Any, str]:
    """What DistributedDataParallel or `torch.compile` is around, and its path: DDP's backward talks to other ranks."""
    path = ""
    while True:
        name = next((inner for kind, inner in _AROUND.items() if is_a(model, kind)), None)
        inner = getattr(model, name, None) if name is not None else None
        if name is None or inner is None:
            return model, path
        model, path = inner, _joined(path, name)


def _is_compiled(module: nn.Module) -> bool:
    return is_a(module, "OptimizedModule") or vars(module).get("_compiled_call_impl") is not None


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _copied(model: Any) -> tuple[Any, Mapping[int, Any]]:
    """A copy of a model to run, which leaves no trace in it, and what stands in it for each of the model's objects."""
    import torch
    from torch.nn.parameter import is_lazy

    parameters = list(model.parameters())
    if any(is_lazy(parameter) for parameter in parameters):
        raise UsageError("parameters of the model are made in its first call.")
    if any(parameter.is_meta for parameter in parameters):
        raise UsageError("parameters of the model have no memory, they are on the meta device.")
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError("a scripted model can't be copied for a trial.")
    if wrapper_of(model) in ("FSDP1", "FSDP2"):
        raise UsageError("a backward of a part that is sharded talks to the other ranks.")
    if sum(tensor.numel() * tensor.element_size() for tensor in parameters) > _LARGEST_COPY:
        raise UsageError("the model is too large to be copied for a trial; a smaller one of its kind tells the same.")
    twins: dict[int, Any] = {}
    try:
        for wrapped in model.modules():
            if is_a(wrapped, "DistributedDataParallel"):  # a copy of it would talk to the other ranks too
                twins[id(wrapped)] = copy.deepcopy(wrapped.module, twins)
        copied = copy.deepcopy(model, twins)
    except Exception as error:  # the program's own: locks, graphs, and whatever else refuses
        raise UsageError(f"the model can't be copied for a trial: {type(error).__name__}.") from None
    for parameter in parameters:
        _lay_as(twins.get(id(parameter)), parameter)
    return copied, twins


def _lay_as(twin: Any, parameter: Tensor) -> None:
    """A copy of a parameter without its gradient, in the same layout: torch closes gaps where it copies one."""
    import torch

    if not isinstance(twin, torch.Tensor):
        return
    twin.grad = None
    given = layout_of(parameter)
    if given is not None and twin.stride() != given.strides:
        reach = 1 + sum((size - 1) * stride for size, stride in zip(given.sizes, given.strides, strict=True))
        flat = parameter.detach().as_strided((reach,), (1,), given.offset).clone()
        twin.data = flat.as_strided(given.sizes, given.strides)


def _sample_copied(sample: Any) -> Any:
    """A copy of a sample with the same layouts, cut off from what its tensors were computed of."""
    from stridewise.recorder.tensors import tensors_in

    given = dict(sample) if isinstance(sample, Mapping) else sample
    known = {
        id(tensor): copy.deepcopy(tensor.detach()).requires_grad_(tensor.requires_grad)
        for _, tensor in tensors_in(given, "sample")
    }
    try:
        return copy.deepcopy(given, known)
    except Exception as error:
        raise UsageError(f"the sample can't be copied for a trial: {type(error).__name__}.") from None


def _shared(model: nn.Module) -> Iterator[Any]:
    """What a model's copy has in common with it: hooks, with what they hold, and containers of its classes."""
    modules = list(model.modules())
    for module in modules:
        for key, held in vars(module).items():
            if key.endswith("_hooks") and isinstance(held, Mapping):
                yield from held.values()
    for kind in {kind for module in modules for kind in type(module).__mro__}:
        if not kind.__module__.startswith(("torch.", "builtins")):
            yield from (value for value in vars(kind).values() if isinstance(value, (dict, list, set)))


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """What is compiled runs as it was written: compiling would take minutes."""
    import torch

    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextlib.contextmanager
def _watched(names: Mapping[int, str]) -> Iterator[Mapping[str, Layout]]:
    """The layouts that modules are called with, filled in as they are called."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    from stridewise.recorder.tensors import tensors_in

    found: dict[str, Layout] = {}

    def see(module: nn.Module, args: tuple[Any, ...]) -> None:
        name = names.get(id(module))
        if name is not None and name not in found:
            given = next((layout_of(tensor) for _, tensor in tensors_in(args)), None)
            if given is not None:
                found[name] = given

    handle = register_module_forward_pre_hook(see)
    try:
        yield found
    finally:
        handle.remove()


def _scalar(output: Any, loss: Callable[[Any], Tensor] | None) -> Tensor:
    import torch

    from stridewise.recorder.once import loss_of

    value: Any = loss(output) if loss is not None else loss_of(output)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise UsageError("The loss is no scalar.", expected="Expected: a function from the output to a scalar.")
    return value


def _gradient(twin: Any) -> Layout | None:
    gradient = getattr(twin, "grad", None)
    return None if gradient is None else layout_of(gradient)


def arguments(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A sample as arguments: a tuple, a dict of keyword arguments, both as a pair, or one argument."""
    if isinstance(sample, Mapping):
        if not all(isinstance(key, str) for key in sample):
            raise UsageError("The sample is a dict whose keys are no names.", expected="Expected: names of arguments.")
        return (), dict(sample)
    if isinstance(sample, tuple):
        if len(sample) == 2 and isinstance(sample[0], tuple) and isinstance(sample[1], dict):
            return sample[0], sample[1]
        return sample, {}
    return (sample,), {}
