"""What is known of a model, its optimizer and its sample before the first step: layouts, and who shares memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from stridewise.layout import Layout

if TYPE_CHECKING:
    from torch import nn

Kind = Literal["parameter", "buffer"]
Wrapper = Literal["DDP", "FSDP1", "FSDP2"]


class StateTensor(Struct, frozen=True):
    """A parameter or a buffer of a model, once however often it is tied."""

    names: tuple[str, ...]
    """All of them: a tied weight has several."""
    kind: Kind
    module: str
    """Path of the module that holds it under its first name; empty for the model itself."""
    module_type: str
    """As in `Conv2d`; empty for what an optimizer holds and the model does not."""
    layout: Layout
    dtype: str
    itemsize: int
    device: str
    """`cpu`, `cuda`: the type of device."""
    storage: int
    """A number that tensors of one storage share."""
    storage_bytes: int
    requires_grad: bool
    persistent: bool
    """It is saved with the model: its parameters always are."""
    gradient: Layout | None = None
    """Of `.grad`, as it is now."""
    observed: Layout | None = None
    """Of the gradient that a trial's backward gave it; None without a trial, or where it gave none."""

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def thing(self) -> str:
        """`` parameter `c.weight` ``."""
        return f"{self.kind} `{self.name}`"

    @property
    def view_bytes(self) -> int:
        """Of its elements; those that share memory count each."""
        count = 1
        for size in self.layout.sizes:
            count *= size
        return count * self.itemsize

    @property
    def reach(self) -> tuple[int, int]:
        """Byte offsets in its storage, from its first element to behind its last; equal if it is empty."""
        if self.layout.is_empty:
            return 0, 0
        last = sum((size - 1) * stride for size, stride in zip(self.layout.sizes, self.layout.strides, strict=True))
        return self.layout.offset * self.itemsize, (self.layout.offset + last + 1) * self.itemsize


class OptimizerState(Struct, frozen=True):
    """A tensor that an optimizer keeps of a parameter."""

    parameter: str
    key: str
    """As in `exp_avg`."""
    layout: Layout


class OptimizerFacts(Struct, frozen=True):
    """One optimizer."""

    name: str
    """Its class."""
    fused: frozenset[str]
    """Names of the parameters that torch's own fused kernels update."""
    foreach: frozenset[str]
    """Names of the parameters in groups that may be updated many at once."""
    parameters: frozenset[str]
    state: tuple[OptimizerState, ...]


class SampleTensor(Struct, frozen=True):
    """A tensor among the model's arguments."""

    path: str
    layout: Layout


class Trial(Struct, frozen=True):
    """What a forward and a backward with the sample showed."""

    gradients: Mapping[int, Layout]
    """By `id` of the parameter."""
    inputs: Mapping[str, Layout]
    """Of the first tensor that each module was called with, by the path of the module."""
    is_eager: bool = False
    """Something of the model is compiled, and was run without that."""


class Subject(Struct, frozen=True):
    """All that checks look at. Live objects are there for those that have to try something; none may change them."""

    tensors: tuple[StateTensor, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    sample: tuple[SampleTensor, ...] = ()
    wrapper: Wrapper | None = None
    gradient_as_bucket_view: bool = False
    """Of DistributedDataParallel."""
    has_ranks: bool = False
    """It is, or will be, trained by several processes."""
    tried: bool = False
    """A forward and a backward were run with the sample."""
    inputs: Mapping[str, Layout] = field(default_factory=dict)
    """Of the first tensor that each module was called with then, by the path of the module."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Parameters and buffers that have no layout to look at, and why."""
    model: nn.Module | None = None
    state_dict: Mapping[str, Any] | None = None

    def parameters(self) -> tuple[StateTensor, ...]:
        """The parameters alone."""
        return tuple(tensor for tensor in self.tensors if tensor.kind == "parameter")
