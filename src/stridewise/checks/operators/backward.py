"""Gradients of a callable, for gradients of its outputs in some layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stridewise.checks.operators.case import Arrangement
from stridewise.checks.operators.grid import CONTIGUOUS
from stridewise.checks.operators.memory import Watched, arranged_values
from stridewise.checks.operators.operands import Bound
from stridewise.checks.operators.runs import Ran, called, copied, nudged, tensors_in

if TYPE_CHECKING:
    from torch import Tensor

GRADIENT = "gradient of "
_SECOND = "second gradient of "


class Incoming(Struct, frozen=True):
    """What comes into a backward."""

    values: Arrangement
    """Whose indices share elements, and so values: a contiguous run gets those of the layout it is held against."""
    layout: Arrangement
    nudge: int | None = None
    """Round them otherwise; None to leave them."""

    def watched(self, tensor: Tensor, number: int, fill: int) -> Watched:
        """A gradient of the `number`-th output."""
        values = arranged_values(_values(tensor, number), self.values)
        if self.nudge is not None:
            values = nudged({"": values}, self.nudge + number)[""]
        return Watched(values, self.layout, fill)


def gradients(
    bound: Bound, operands: dict[str, Watched], leaves: frozenset[str], incoming: Incoming, fill: int, *, second: bool
) -> Ran:
    """Gradients of some operands, or with `second` the gradients of those, by name. Raises Raised."""
    import torch

    wanted = {name: operands[name].tensor.requires_grad_() for name in operands if name in leaves}
    held: dict[str, Watched] = {}

    def run() -> dict[str, Tensor]:
        with torch.inference_mode(False), torch.enable_grad():
            output = bound.call({name: watched.tensor for name, watched in operands.items()})
            outputs = {name: tensor for name, tensor in tensors_in(output).items() if tensor.requires_grad}
            for at, (name, tensor) in enumerate(outputs.items()):
                held[f"{GRADIENT}{name}"] = incoming.watched(tensor, at, fill)
            first = _backward(outputs, wanted, held, GRADIENT, create_graph=second)
            if not second:
                return first
            seeds = {name: incoming.watched(tensor, at, fill) for at, (name, tensor) in enumerate(first.items())}
            rooted = {name: tensor for name, tensor in first.items() if tensor.requires_grad}
            held.update({f"gradient of {name}": seeds[name] for name in rooted})
            leaves_of_both = wanted | {name: held[f"{GRADIENT}{name}"].tensor for name in outputs}
            return _backward(rooted, leaves_of_both, {name: seeds[name] for name in rooted}, _SECOND)

    found = called(run, 0) if wanted else {}
    return Ran({name: copied(gradient) for name, gradient in found.items()}, {}, operands | held)


def contiguous(incoming: Arrangement, nudge: int | None = None) -> Incoming:
    """Contiguous gradients with the values of those in a layout."""
    return Incoming(incoming, CONTIGUOUS, nudge)


def _backward(
    outputs: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    incoming: Mapping[str, Watched],
    prefix: str,
    *,
    create_graph: bool = False,
) -> dict[str, Tensor]:
    import torch

    if not outputs:
        return {}
    arriving = [watched.tensor.requires_grad_(create_graph) for watched in incoming.values()]
    found: Any = torch.autograd.grad(
        [*outputs.values()], [*wanted.values()], arriving, create_graph=create_graph, allow_unused=True
    )
    return {f"{prefix}{name}": gradient for name, gradient in zip(wanted, found, strict=True) if gradient is not None}


def _values(tensor: Tensor, number: int) -> Tensor:
    """Of a gradient for a tensor: all different, and the same whatever its layout."""
    import torch

    count = tensor.numel()
    values = torch.linspace(-1, 1.5, max(count, 1), dtype=torch.float64)[:count] + 0.25 * number
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    return values[order].reshape(tensor.shape).to(dtype=tensor.dtype, device=tensor.device)
