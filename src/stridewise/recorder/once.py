"""Record a few calls of a model and leave it as it was."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stridewise.errors import UsageError
from stridewise.recorder.live import record
from stridewise.recorder.state import keep_state
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
                (loss(output) if loss is not None else loss_of(output)).backward()

    with left_as_it_was(model, args, kwargs, train):
        one_step()
        with record(library_copies=library_copies) as recording:
            for _ in range(STEPS):
                one_step()
                recording.step()
    return recording


def loss_of(output: Any) -> Tensor:
    """The model's own loss, else the mean softplus of its first floating-point output.

    A plain sum would send back an expanded gradient, which costs copies that no real loss costs. Of a normalized output
    the mean and the mean square are constant: their gradients would be nothing but rounding errors.
    """
    own = getattr(output, "loss", None)
    if isinstance(own, Tensor):
        return own
    for _, tensor in tensors_in(output):
        if tensor.is_floating_point() and tensor.requires_grad:
            return nn.functional.softplus(tensor.float()).mean()
    raise UsageError(
        "The model returns no floating-point tensor that a backward could start from.",
        advice="Give `loss=`, a function from the output to a scalar, or leave `train=True` out.",
    )


@contextlib.contextmanager
def left_as_it_was(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    train: bool,
    *,
    others: Any = None,
    containers: bool = False,
) -> Iterator[Callable[[], None]]:
    """Random states, buffers, gradients and training flags are restored, whatever happens in between.

    With `containers` attributes, lists and dicts are too. What this gives brings everything back for another run.
    `others` are further things that the runs may change.
    """
    roots = [("", model), ("", args), ("", kwargs), ("", others)]
    state = keep_state(roots, parameters=False, containers=containers)

    def prepare() -> None:
        for tensor in state.leaves:
            tensor.grad = None
        if isinstance(model, nn.Module):
            model.train(train)

    def begin_again() -> None:
        state.restore()
        prepare()

    try:
        prepare()
        yield begin_again
    finally:
        state.restore()
