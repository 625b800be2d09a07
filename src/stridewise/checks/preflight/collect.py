"""Looks at live objects, and changes nothing of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stridewise.checks.preflight.facts import (
    Kind,
    OptimizerFacts,
    OptimizerState,
    SampleTensor,
    StateTensor,
    Subject,
    Trial,
    Wrapper,
)
from stridewise.checks.words import layout_of
from stridewise.errors import UsageError
from stridewise.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


def collect(
    model: nn.Module | None,
    optimizers: tuple[Optimizer, ...],
    sample: Any,
    *,
    has_ranks: bool,
    state_dict: Mapping[str, Any] | None,
    observed: Trial | None,
) -> Subject:
    """The facts; `observed` is what a trial showed, if there was one."""
    tensors: dict[int, StateTensor] = {}
    unseen: dict[str, str] = {}
    if model is not None:
        tensors, unseen = _state(model, {} if observed is None else observed.gradients)
    tensors |= _held_by(optimizers, tensors)
    names = {key: tensor.name for key, tensor in tensors.items()}
    wrapper = wrapper_of(model)
    return Subject(
        tensors=tuple(tensors.values()),
        optimizers=tuple(_optimizer(optimizer, names) for optimizer in optimizers),
        sample=tuple(SampleTensor(path, layout) for path, _, layout in sample_tensors(sample)),
        wrapper=wrapper,
        gradient_as_bucket_view=wrapper == "DDP" and _views_buckets(model),
        has_ranks=has_ranks or wrapper is not None,
        tried=observed is not None,
        inputs={} if observed is None else observed.inputs,
        unseen=unseen,
        model=model,
        state_dict=state_dict,
    )


def _state(model: nn.Module, observed: Mapping[int, Layout]) -> tuple[dict[int, StateTensor], dict[str, str]]:
    """Parameters and buffers by `id`; and those without a layout, with the reason."""
    from stridewise.recorder import tensors

    found: dict[int, StateTensor] = {}
    unseen: dict[str, str] = {}
    storages: dict[int, int] = {}
    for path, module in model.named_modules():
        kept_out = module._non_persistent_buffers_set
        for kind, name, tensor in _own(module):
            full = f"{path}.{name}" if path else name
            if (known := found.get(id(tensor))) is not None:
                if full not in known.names:
                    found[id(tensor)] = replace(known, names=(*known.names, full))
                continue
            layout = tensors.layout_of(tensor)
            if not isinstance(layout, Layout):
                unseen[full] = layout
                continue
            storage = tensor.untyped_storage()
            number = storages.setdefault(_storage_key(storage, tensor), len(storages))
            fact = _fact(full, kind, path, type(module).__name__, tensor, layout, number)
            persistent = kind == "parameter" or name not in kept_out
            found[id(tensor)] = replace(fact, persistent=persistent, observed=observed.get(id(tensor)))
    return found, unseen


def _held_by(optimizers: tuple[Optimizer, ...], known: Mapping[int, StateTensor]) -> dict[int, StateTensor]:
    """Parameters that only an optimizer holds."""
    found: dict[int, StateTensor] = {}
    for number, optimizer in enumerate(optimizers):
        where = f"{type(optimizer).__name__}" + (f" {number}" if len(optimizers) > 1 else "")
        for at, group in enumerate(optimizer.param_groups):
            for place, tensor in enumerate(group["params"]):
                layout = layout_of(tensor) if not _is_lazy(tensor) else None
                if id(tensor) in known or id(tensor) in found or layout is None:
                    continue
                name = f"{where}, group {at}, parameter {place}"
                # Its storage has a number of its own: it is not among those of the model.
                storage = -1 - len(found)
                fact = _fact(name, "parameter", "", "", tensor, layout, storage)
                found[id(tensor)] = replace(fact, persistent=False)
    return found


def _fact(
    name: str, kind: Kind, path: str, module_type: str, tensor: Tensor, layout: Layout, storage: int
) -> StateTensor:
    return StateTensor(
        names=(name,),
        kind=kind,
        module=path,
        module_type=module_type,
        layout=layout,
        dtype=str(tensor.dtype).removeprefix("torch."),
        itemsize=tensor.element_size(),
        device=tensor.device.type,
        storage=storage,
        storage_bytes=0 if tensor.is_meta else tensor.untyped_storage().nbytes(),
        requires_grad=tensor.requires_grad,
        persistent=True,
        gradient=_gradient(tensor),
    )


def _own(module: nn.Module) -> Iterator[tuple[Kind, str, Tensor]]:
    for name, parameter in module._parameters.items():
        if parameter is not None and not _is_lazy(parameter):
            yield "parameter", name, parameter
    for name, buffer in module._buffers.items():
        if buffer is not None and not _is_lazy(buffer):
            yield "buffer", name, buffer


def _is_lazy(tensor: Tensor) -> bool:
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


def _storage_key(storage: Any, tensor: Tensor) -> int:
    """What tensors of one storage share; a meta tensor's has no address."""
    address: int = storage._cdata if tensor.is_meta else storage.data_ptr() or storage._cdata
    return address


def _gradient(tensor: Tensor) -> Layout | None:
    gradient = tensor.grad if tensor.is_leaf else None
    return None if gradient is None else layout_of(gradient)


def _optimizer(optimizer: Optimizer, names: Mapping[int, str]) -> OptimizerFacts:
    fused: set[str] = set()
    foreach: set[str] = set()
    known: dict[int, str] = {}
    is_torchs = any(kind.__module__.startswith("torch.optim.") for kind in type(optimizer).__mro__[:-2])
    for number, group in enumerate(optimizer.param_groups):
        for at, parameter in enumerate(group["params"]):
            name = names.get(id(parameter), f"group {number}, parameter {at}")
            known[id(parameter)] = name
            if group.get("fused") and is_torchs:
                fused.add(name)
            elif group.get("foreach") is not False:
                foreach.add(name)
    state = [
        OptimizerState(known.get(id(parameter), "a parameter"), key, layout)
        for parameter, kept in optimizer.state.items()
        for key, value in (kept.items() if isinstance(kept, Mapping) else ())
        if (layout := _state_layout(value, parameter)) is not None
    ]
    return OptimizerFacts(
        type(optimizer).__name__, frozenset(fused), frozenset(foreach), frozenset(known.values()), tuple(state)
    )


def _state_layout(value: Any, parameter: Any) -> Layout | None:
    """Of state that is as large as its parameter; counters of steps are not."""
    import torch

    if isinstance(value, torch.Tensor) and isinstance(parameter, torch.Tensor) and value.shape == parameter.shape:
        return layout_of(value) if value.dim() else None
    return None


def sample_tensors(sample: Any) -> Iterator[tuple[str, Tensor, Layout]]:
    """The tensors of a sample with their paths and layouts."""
    from stridewise.recorder.tensors import tensors_in

    for path, tensor in tensors_in(dict(sample) if isinstance(sample, Mapping) else sample, "sample"):
        layout = layout_of(tensor)
        if layout is not None:
            yield path, tensor, layout


def wrapper_of(model: Any) -> Wrapper | None:
    """What spreads a model, or a part of it, over processes."""
    kinds = _module_types(model)
    if "FSDPModule" in kinds:
        return "FSDP2"
    return "FSDP1" if "FullyShardedDataParallel" in kinds else "DDP" if "DistributedDataParallel" in kinds else None


def _views_buckets(model: Any) -> bool:
    """Whether all that is wrapped in DistributedDataParallel has views of its buckets for gradients."""
    wrapped = [module for module in model.modules() if is_a(module, "DistributedDataParallel")]
    return all(vars(module).get("gradient_as_bucket_view", False) for module in wrapped)


def is_a(module: Any, name: str) -> bool:
    """Whether a module is of a class of that name, or below one: importing the classes themselves takes long."""
    return any(kind.__name__ == name for kind in type(module).__mro__)


def _module_types(model: nn.Module | None) -> frozenset[str]:
    modules = () if model is None else model.modules()
    return frozenset(kind.__name__ for module in modules for kind in type(module).__mro__)


def optimizers_of(given: Any) -> tuple[Optimizer, ...]:
    """One optimizer or several. Raises UsageError for anything else."""
    import torch

    if given is None:
        return ()
    if isinstance(given, torch.optim.Optimizer):
        return (given,)
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for one in found:
        if not isinstance(one, torch.optim.Optimizer):
            raise UsageError(
                f"preflight() was given {type(one).__name__} as an optimizer.",
                expected="Expected: a torch.optim.Optimizer, or several.",
            )
    return found
