"""Whose implementation ran an operator: by the operators in it, its kernels, or what oneDNN logged."""

from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from stridewise.analysis.kernel_names import Implementation, implementation
from stridewise.analysis.paths.library import PRIMITIVES, Primitives
from stridewise.analysis.paths.operators import BACKENDS, PRODUCTS, SPARSE
from stridewise.analysis.paths.tensors import Tensors
from stridewise.analysis.paths.units import Unit
from stridewise.recording import onednn
from stridewise.recording.trace import Trace
from stridewise.results import Cause, Family

UNKNOWN = "unknown"
NOT_ONEDNN = "BLAS or ATen"
"""What multiplies on the CPU where oneDNN logged nothing."""

_DEVICE_BACKENDS = ("cuDNN", "MIOpen", "cuDNN attention", "memory-efficient attention")
_KERNEL_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "fp8": "float8"}
_TRANSPOSED = tuple(f"aten::conv_transpose{dimensions}d" for dimensions in (1, 2, 3))


class Ran(Struct, frozen=True, gc=False):
    """What is known of an implementation."""

    family: Family
    backend: str
    evidence: tuple[str, ...]
    dtype: str | None
    inferred: bool = False
    on_device: bool = False
    """Known to have run on a device, whether or not its kernels were recorded."""
    reorders: int = 0
    """How often oneDNN said that it converted a tensor."""
    operands: tuple[str, ...] = ()
    """What a kernel's name tells of them."""
    alignment: int | None = None
    """Elements that a product's kernel needs its operands aligned to."""


class Implementations:
    """The implementations behind a trace's units and kernels."""

    def __init__(self, trace: Trace, causes: Sequence[Cause | None], tensors: Tensors) -> None:
        self.trace = trace
        self.causes = causes
        self.tensors = tensors
        self.primitives = Primitives(trace)
        self.has_device = any(event.category == "kernel" for event in trace.device_events)
        self._of_name = cache(implementation)
        self._known: dict[int, str] = {}

    def of(self, unit: Unit, forward: Unit | None) -> Ran:
        """What ran a unit; `forward` is the one whose gradient it computes, for backward."""
        ran = self._of_kernels(unit) if unit.events else self._of_operators(unit, forward)
        self._known[unit.leaf] = ran.backend
        return ran

    def of_kernel(self, event: int) -> Ran | None:
        """What a kernel's name tells; None for a kernel of no family."""
        found = None if self.causes[event] else self._of_name(self.trace.device_events[event].name)
        if found is None or found.family is None:
            return None
        operands = tuple(filter(None, (found.format, found.transposes)))
        return Ran(found.family, found.backend, (found.evidence,), _dtype(None, found), operands=operands)

    def _of_operators(self, unit: Unit, forward: Unit | None) -> Ran:
        name = self.trace.ops.text(unit.leaf)
        backend = BACKENDS.get(name)
        logged = self.primitives.of(unit.first)
        reorders = sum(isinstance(record, onednn.Reorder) for record in logged)
        primitive = next(
            (
                record
                for record in logged
                if isinstance(record, onednn.Primitive) and PRIMITIVES.get(record.primitive) == unit.family
            ),
            None,
        )
        stored = self._stored_dtype(unit)
        if primitive is not None and backend in (None, "oneDNN"):
            evidence = (name, f"{primitive.primitive} {primitive.implementation}")
            return Ran(unit.family, "oneDNN", evidence, stored, reorders=reorders)
        if backend is not None:
            return Ran(unit.family, backend, (name,), stored, on_device=backend in _DEVICE_BACKENDS)
        if unit.family in ("normalization", "pooling", "attention"):
            return Ran(unit.family, "ATen", (name,), stored)
        concluded = self._concluded(unit, forward)
        return Ran(unit.family, concluded or UNKNOWN, (name,), stored, inferred=concluded is not None)

    def _concluded(self, unit: Unit, forward: Unit | None) -> str | None:
        """The backend where no operator, kernel or line names it, as far as it follows from what does.

        `_select_conv_backend` in aten/src/ATen/native/Convolution.cpp gives backward what it gave forward, and of the
        transposed convolutions on the CPU only oneDNN's has no operator of its own.
        """
        if self.has_device:
            return None
        name = self.trace.ops.text(unit.leaf)
        if unit.family == "convolution":
            if self.trace.ops.text(unit.first) in _TRANSPOSED:
                return "oneDNN"
            known = self._known.get(forward.leaf) if forward is not None and forward.leaf != unit.leaf else None
            return None if known == UNKNOWN else known
        if name in SPARSE or name not in PRODUCTS:
            return None
        return NOT_ONEDNN if self.primitives.complete else None

    def _of_kernels(self, unit: Unit) -> Ran:
        name = self.trace.ops.text(unit.leaf)
        events = sorted(unit.events, key=lambda event: -self.trace.device_events[event].duration_ns)
        named = [
            (self.causes[event], found)
            for event in events
            if (found := self._of_name(self.trace.device_events[event].name)) is not None
        ]
        main = _main(unit.family, [found for cause, found in named if not cause])
        backend = BACKENDS.get(name)
        evidence = [name] + ([main.evidence] if main is not None else [])
        if backend is None and unit.family == "convolution":
            # One library does all of it, with kernels of others too: MIOpen those of Tensile and Composable Kernel.
            owner = next((found for _, found in named if found.backend in ("cuDNN", "MIOpen")), None)
            if owner is not None:
                backend = owner.backend
                evidence += [owner.evidence]
        if backend is None and unit.family == "matmul":
            owner = next((found for _, found in named if found.backend == "cuBLASLt"), None)
            if owner is not None:
                backend = owner.backend
                evidence += [owner.evidence]
        backend = backend or (main.backend if main is not None else UNKNOWN)
        return Ran(
            unit.family,
            backend,
            tuple(evidence),
            _dtype(self._stored_dtype(unit), main),
            on_device=True,
            alignment=main.alignment if main is not None else None,
        )

    def _stored_dtype(self, unit: Unit) -> str | None:
        given = self.tensors.of(unit.leaf)
        place = PRODUCTS.get(self.trace.ops.text(unit.leaf), (0, 0))[0]
        tensor = given[place] if place < len(given) else None
        return tensor.dtype if tensor is not None else None


def _main(family: Family, found: Sequence[Implementation]) -> Implementation | None:
    """The kernel that does the work: the longest of the family; a convolution may be a product of matrices."""
    families = (family, "matmul") if family == "convolution" else (family,)
    for wanted in families:
        for candidate in found:
            if candidate.family == wanted:
                return candidate
    return found[0] if found else None


def _dtype(stored: str | None, kernel: Implementation | None) -> str | None:
    """What is multiplied: TF32 and FP8 are told by the kernel alone, everything else by the operands, if recorded."""
    told = kernel.dtype if kernel is not None else None
    if told == "tf32" or (stored is None and told is not None):
        return _KERNEL_DTYPES.get(told, told)
    return stored
