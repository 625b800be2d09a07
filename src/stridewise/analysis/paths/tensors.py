"""The arguments of operators as the profiler wrote them down, read once each."""

from msgspec import Struct

from stridewise.layout import Layout
from stridewise.recording.dtypes import from_cpp
from stridewise.recording.trace import Ops


class Tensor(Struct, frozen=True):
    """An argument of an operator, as far as it was recorded."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str | None

    @property
    def layout(self) -> Layout | None:
        """None where the trace has no strides."""
        return None if self.strides is None else Layout(self.sizes, self.strides)


class Tensors:
    """Arguments by operator. A recording repeats a few of them thousands of times: equal ones are one object."""

    def __init__(self, ops: Ops) -> None:
        self.ops = ops
        self._read: dict[int, tuple[Tensor | None, ...]] = {}
        self._equal: dict[str, tuple[Tensor | None, ...]] = {}

    def of(self, op: int) -> tuple[Tensor | None, ...]:
        """The arguments in order; None for one that is no tensor, or of which nothing was recorded."""
        if op not in self._read:
            args = self.ops.args[op]
            key = f"{args.dims}{args.strides}{args.types}"
            if key not in self._equal:
                self._equal[key] = tuple(
                    Tensor(sizes, strides, from_cpp(kind)) if sizes or from_cpp(kind) else None
                    for sizes, strides, kind in args.inputs
                )
            self._read[op] = self._equal[key]
        return self._read[op]
