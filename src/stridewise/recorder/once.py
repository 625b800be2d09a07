"""Record a few calls of a model and leave it as it was."""

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stridewise.errors import UsageError
from stridewise.recorder.live import record
from stridewise.recorder.tensors import tensors_in
from stridewise.recording.handle import Recording

STEPS = 3


def record_calls(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    train: bool,
    loss: Callable[[Any], Tensor] | None,
    library_copies: bool = False,
) -> Recording:
    """A warm-up call and three recorded steps of `model(*args, **kwargs)`, with a backward if `train`.

    Raises UsageError where a backward is asked for and the output has nothing to start it from.
    """

    def one_step() -> None:
        with torch.set_grad_enabled(train):
            output = model(*args, **kwargs)
            if train:
                (loss(output) if loss is not None else _loss_of(output)).backward()

    with _left_as_it_was(model, args, kwargs, train):
        one_step()
        with record(library_copies=library_copies) as recording:
            for _ in range(STEPS):
                one_step()
                recording.step()
    return recording


def _loss_of(output: Any) -> Tensor:
    """The model's own loss, else the mean square of its first floating-point output.

    A plain sum would send back an expanded gradient, which costs copies that no real loss costs.
    """
    own = getattr(output, "loss", None)
    if isinstance(own, Tensor):
        return own
    for _, tensor in tensors_in(output):
        if tensor.is_floating_point() and tensor.requires_grad:
            return tensor.float().square().mean()
    raise UsageError(
        "The model returns no floating-point tensor that a backward could start from.",
        advice="Give `loss=`, a function from the output to a scalar, or leave `train=True` out.",
    )


@contextlib.contextmanager
def _left_as_it_was(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], train: bool
) -> Iterator[None]:
    """Random states, buffers, gradients and training flags are restored, whatever happens in between."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    parameters = [parameter for module in modules for parameter in module._parameters.values() if parameter is not None]
    leaves = [tensor for _, tensor in tensors_in((args, kwargs)) if tensor.is_leaf and tensor.requires_grad]
    gradients = [(tensor, tensor.grad) for tensor in {id(tensor): tensor for tensor in [*parameters, *leaves]}.values()]
    flags = [(module, module.training) for module in modules]
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in modules
        for name, buffer in module._buffers.items()
    ]
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    python_state = random.getstate()
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    try:
        with torch.random.fork_rng(devices):
            for tensor, _ in gradients:
                tensor.grad = None
            if isinstance(model, nn.Module):
                model.train(train)
            yield
    finally:
        for module, training in flags:
            module.training = training
        for module, name, buffer, value in buffers:
            if buffer is not None and value is not None:
                with torch.no_grad():
                    buffer.copy_(value)
            module._buffers[name] = buffer
        for tensor, gradient in gradients:
            tensor.grad = gradient
        random.setstate(python_state)
        if numpy_random is not None:
            numpy_random.set_state(numpy_state)
