"""A call that is slower because of its operands' strides, as it was measured on data of its own. No torch."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Site

Format = Literal["contiguous", "channels_last"]


class Operand(Struct, frozen=True):
    """A strided tensor that a call was given."""

    place: int
    """Which of the call's tensors it is, counted as the call log does."""
    path: tuple[int | str, ...]
    """Where it stands among the arguments: `(0,)`, `(0, 1)` for an entry of a list, `("weight",)`."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        return f"input {self.place}, {self.sizes} with strides {self.strides}"


class Slow(Struct, frozen=True):
    """Equal calls of one place that run faster on operands of another layout. Times are of one call."""

    function: str
    """As the call log names it: `torch.Tensor.sum`."""
    site: Site
    count: int
    """How often it is called in a step."""
    operands: tuple[Operand, ...]
    """The strided ones: those that were converted."""
    tensors: int
    """How many of its arguments are tensors."""
    format: Format
    """What they were converted to: the format that gains most."""
    recorded_ns: float
    op_ns: float
    """The call alone, on operands in that format."""
    with_copy_ns: float
    """The conversion and the call."""
    backward: bool
    """The times hold the call's backward, too."""
    pays_for_copy: bool
    """Conversion and call together are clearly faster than the call as it is."""

    @property
    def loss_ns(self) -> float:
        """What the strides cost a step: the time that is gone if the operands come in that format."""
        return self.count * max(0.0, self.recorded_ns - self.op_ns)
