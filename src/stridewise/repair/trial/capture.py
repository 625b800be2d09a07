"""What a step calls with strided operands: enough of each call to run it again on data of the same layouts."""

import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, FunctionType, NoneType
from typing import Any, Literal

import msgspec
import torch
from msgspec import Struct
from torch.overrides import TorchFunctionMode, handle_torch_function

from stridewise import layout
from stridewise.analysis.functions import EXPLICIT, IMPLICIT, short_name
from stridewise.findings import Site
from stridewise.layout import Layout
from stridewise.recorder import private
from stridewise.recorder.compiler import around_compiled_regions
from stridewise.recorder.frames import FrameTable
from stridewise.recorder.functions import function_name, functions_without_ops, may_be_kept
from stridewise.recorder.modules import FAST_PATH_MODULES, may_take_fast_path
from stridewise.recorder.sources import Sources
from stridewise.recording.model import SiteRow

_MOST_BYTES = 1 << 30
"""Of the storages that a call's operands need: it is not replayed on more."""
_MOST_VALUES = 1 << 22
"""Bytes of one operand of integers whose values are kept."""
_MOST_VALUES_IN_ALL = 1 << 26
_MOST_ENTRIES = 1000
"""Arguments of one call, those in lists counted."""
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.parameter.Buffer})
_CONSTANTS = (
    type(None), bool, int, float, complex, str, type(...), torch.dtype, torch.device, torch.memory_format, torch.layout,
    torch.Size,
)  # fmt: skip
_WITHOUT_OPS = functions_without_ops()
_HANDLER = handle_torch_function.__code__
_FAST_PATH_CODES = frozenset(kind.forward.__code__ for kind in FAST_PATH_MODULES)

Path = tuple[int | str, ...]
Role = Literal["kernel", "copy", "view"]
"""Whether a call computes something, copies because the program asks for that, or only looks at its operands anew."""


class Constant(Struct, frozen=True):
    """An argument that is no tensor. Its type is a part of it: 1, 1.0 and True are equal, but not as arguments."""

    type: type
    value: Any


class Group(Struct, frozen=True):
    """Arguments in a list, tuple, dictionary or slice."""

    kind: Literal["tuple", "list", "dict", "slice"]
    keys: tuple[str, ...]
    entries: "tuple[Argument, ...]"


class TensorSpec(Struct, frozen=True):
    """A tensor without its data. Its storage offset is dropped."""

    place: int
    """Which of the call's tensors it is."""
    same_as: int
    """The first place of the same tensor object."""
    path: Path
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    @property
    def layout(self) -> Layout:
        """Sizes and strides."""
        return Layout(self.sizes, self.strides)

    @property
    def is_strided(self) -> bool:
        """Whether it is anything but row-major."""
        return not layout.is_contiguous(self.layout)


Argument = Constant | Group | TensorSpec


class Call(Struct, frozen=True):
    """A function and its arguments, tensors by their layouts. Equal calls take equally long."""

    function: Any
    args: Group
    kwargs: Group
    grad: bool
    """Autograd was on."""
    autocast: torch.dtype | None
    """What autocast casts to on the device of the first tensor; None where it is off."""

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Every tensor among the arguments."""
        return (*_tensors(self.args), *_tensors(self.kwargs))

    @property
    def strided(self) -> tuple[TensorSpec, ...]:
        """The tensors that are not row-major, each once."""
        return tuple(spec for spec in self.tensors if spec.is_strided and spec.same_as == spec.place)

    @property
    def device(self) -> torch.device:
        """That of the first tensor that is not row-major."""
        return self.strided[0].device


class Signature(Struct, frozen=True):
    """A distinct call of a step, and where it was made."""

    call: Call
    sites: tuple[tuple[Site, int], ...]
    """Each with how often the step made the call there."""
    values: dict[int, bytes]
    """Of its integer and boolean tensors, by place: indices have to be valid."""
    role: Role = "kernel"

    @property
    def weight(self) -> int:
        """How much a step probably spends on it: elements of its operands, times calls."""
        elements = sum(layout.numel(spec.layout) for spec in self.call.tensors)
        return elements * sum(count for _, count in self.sites)


def capture(step: Callable[[], Any], *, everything: bool = False) -> tuple[Signature, ...]:
    """Run a step once and note its calls with strided operands; nothing of the program is kept alive.

    Forward calls of this thread only, and only torch's own functions. Left out are what works in place or into `out=`,
    what is compiled or traced, calls with arguments of unknown types, and, unless `everything` is asked for, views and
    copies that the program asks for.
    """
    mode = _Capture(everything)
    with around_compiled_regions(lambda frame: mode.hide(), mode.hide, mode.show, lambda: None):
        private.push_mode(mode)
        try:
            step()
        finally:
            private.remove_mode(mode)
    return mode.signatures()


class _Capture(TorchFunctionMode):
    def __init__(self, everything: bool) -> None:
        super().__init__()
        self._everything = everything
        self._frames = FrameTable()
        self._seen: dict[Call, dict[tuple[int, int], int]] = {}
        """How often each call was made at each site, by the numbers of site and `via`."""
        self._values: dict[Call, dict[int, bytes]] = {}
        self._roles: dict[Call, Role] = {}
        self._room = _MOST_VALUES_IN_ALL

    def hide(self) -> bool | None:
        """Take the mode off; None if it was not on."""
        return private.remove_mode(self) or None

    def show(self, hidden: object) -> None:
        """Put it back on."""
        private.push_mode(self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        frame = sys._getframe(1)
        if func is torch.Tensor.dim and frame.f_code in _FAST_PATH_CODES and may_take_fast_path(frame.f_locals["self"]):
            private.around_rest_of_frame(frame, self.hide, self.show)
        with torch._C.DisableTorchFunction():
            call = _call(func, args, kwargs) if self._is_wanted(func, kwargs) else None
            values = self._values_of(call, args, kwargs) if call is not None else None
            storages = _storages(args, kwargs) if call is not None else frozenset()
        result = func(*args, **kwargs)
        if call is not None and values is not None:
            with torch._C.DisableTorchFunction():
                role = _role(func, result, storages)
                if role == "kernel" or (role is not None and self._everything):
                    self._note(call, role, values, frame)
        return result

    def _is_wanted(self, func: Any, kwargs: dict[str, Any]) -> bool:
        if torch._C._get_tracing_state() is not None or torch.compiler.is_compiling() or private.in_backward():
            return False
        return "out" not in kwargs and _may_be_replayed(func) and (self._everything or not _asks_for_copy(func))

    def _values_of(self, call: Call, args: Any, kwargs: Any) -> dict[int, bytes] | None:
        """The values that a replay needs, unless they are too many; those of an equal call do as well."""
        known = self._values.get(call)
        if known is not None:
            return known
        values = {}
        tensors = dict(_tensors_in((args, kwargs)))
        for spec in call.tensors:
            if spec.dtype.is_floating_point or spec.dtype.is_complex or spec.same_as != spec.place:
                continue
            tensor = tensors[spec.place].detach()
            if tensor.numel() * tensor.element_size() > min(_MOST_VALUES, self._room):
                return None
            values[spec.place] = bytes(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
            self._room -= len(values[spec.place])
        return values

    def _note(self, call: Call, role: Role, values: dict[int, bytes], frame: FrameType) -> None:
        if frame.f_code is _HANDLER:  # a function of torch's in Python asked for the mode: its caller made the call
            function = frame.f_back
            frame = (function and function.f_back) or frame
        at = self._frames.find(frame)
        self._values.setdefault(call, values)
        self._roles.setdefault(call, role)
        sites = self._seen.setdefault(call, {})
        sites[at] = sites.get(at, 0) + 1

    def signatures(self) -> tuple[Signature, ...]:
        """What was noted, in the order in which it came."""
        sources = Sources()
        rows = [sources.site(code, at) for code, at in self._frames.site_codes]
        return tuple(
            Signature(
                call,
                tuple((_site(rows, *at), count) for at, count in sites.items()),
                self._values[call],
                self._roles[call],
            )
            for call, sites in self._seen.items()
        )


def _may_be_replayed(func: Any) -> bool:
    """Whether it is one of torch's own functions that compute something, and touch nothing else of the program's."""
    try:
        if func in _WITHOUT_OPS or not (may_be_kept(func) or _is_wrapper(func)):
            return False
    except TypeError:  # it can't be hashed
        return False
    function, short = function_name(func), short_name(function_name(func))
    # Among `torch.ops` are collectives, which wait for other ranks, and operators that are not torch's.
    others = function.startswith(("torch.ops.", "torch.distributed.")) and not function.startswith("torch.ops.aten.")
    in_place = short.endswith("_") and not short.endswith("__")
    return function.startswith("torch.") and not others and not in_place


def _asks_for_copy(func: Any) -> bool:
    return short_name(function_name(func)) in EXPLICIT | IMPLICIT


def _is_wrapper(func: Any) -> bool:
    """Whether it is a function of torch's around others of torch's, such as `max_pool2d` and `Tensor.__rsub__`."""
    if not _is_torchs(func):
        return False
    held = [cell.cell_contents for cell in func.__closure__ or ()]
    return all(type(entry) in (bool, int, str, NoneType) or _is_torchs(entry) or may_be_kept(entry) for entry in held)


def _is_torchs(value: Any) -> bool:
    return type(value) is FunctionType and value.__module__.partition(".")[0] == "torch"


def _call(func: Any, args: Any, kwargs: Any) -> Call | None:
    """The signature of a call; None unless it has a strided tensor, and nothing that is not understood."""
    try:
        freeze = _Freezer()
        call = Call(func, freeze.group(args), freeze.group(kwargs), torch.is_grad_enabled(), None)
        if not call.strided or freeze.bytes > _MOST_BYTES:
            return None
        device = call.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        call = msgspec.structs.replace(call, autocast=dtype)
        hash(call)
    except (_Unknown, RuntimeError, NotImplementedError, TypeError):  # sparse, functorch's, symbolic: no plain strides
        return None
    return call


class _Unknown(Exception):
    """An argument that can't be made again."""


class _Freezer:
    """Turns arguments into values that say how to make their like."""

    def __init__(self) -> None:
        self.bytes = 0
        self._places: dict[int, int] = {}
        self._entries = 0
        self._tensors = 0

    def group(self, value: Any) -> Group:
        frozen = self._argument(value, ())
        assert isinstance(frozen, Group)
        return frozen

    def _argument(self, value: Any, path: Path) -> Argument:
        self._entries += 1
        if self._entries > _MOST_ENTRIES:
            raise _Unknown
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if kind in _CONSTANTS:
            return Constant(kind, value)
        if kind is tuple or kind is list:
            entries = tuple(self._argument(entry, (*path, place)) for place, entry in enumerate(value))
            return Group("tuple" if kind is tuple else "list", (), entries)
        if kind is slice:
            parts = (value.start, value.stop, value.step)
            return Group("slice", (), tuple(self._argument(part, (*path, "slice")) for part in parts))
        if kind is dict and all(type(key) is str for key in value):
            entries = tuple(self._argument(entry, (*path, key)) for key, entry in value.items())
            return Group("dict", tuple(value), entries)
        raise _Unknown

    def _tensor(self, value: torch.Tensor, path: Path) -> TensorSpec:
        if type(value) not in _PLAIN or value.layout is not torch.strided or value.is_nested or value.is_quantized:
            raise _Unknown
        if value.is_conj() or value.is_neg() or value.device.type == "meta":
            raise _Unknown
        place = self._tensors
        self._tensors += 1
        value.untyped_storage()  # raises where there is none
        spec = TensorSpec(
            place=place,
            same_as=self._places.setdefault(id(value), place),
            path=path,
            sizes=tuple(value.shape),
            strides=value.stride(),
            dtype=value.dtype,
            device=value.device,
            requires_grad=value.requires_grad,
        )
        self.bytes += layout.storage_needed(spec.layout) * value.element_size()
        return spec


def _tensors(argument: Argument) -> Iterator[TensorSpec]:
    if isinstance(argument, TensorSpec):
        yield argument
    elif isinstance(argument, Group):
        for entry in argument.entries:
            yield from _tensors(entry)


def _tensors_in(value: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """The tensors among arguments that were understood, with their places."""
    yield from enumerate(_flat(value))


def _flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _flat(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _flat(entry)
    elif isinstance(value, slice):
        yield from _flat((value.start, value.stop, value.step))


def _storages(*values: Any) -> frozenset[int]:
    return frozenset(tensor.untyped_storage()._cdata for tensor in _flat(values))


def _role(func: Any, result: Any, storages: frozenset[int]) -> Role | None:
    """What a call did; None if not all that it gave are strided tensors, or some are views and others are not."""
    results: Sequence[Any] = result if isinstance(result, (list, tuple)) else (result,)
    tensors = [entry for entry in results if isinstance(entry, torch.Tensor)]
    if not tensors or any(type(entry) not in _PLAIN or entry.layout is not torch.strided for entry in tensors):
        return None
    shared = {entry.untyped_storage()._cdata in storages for entry in tensors}
    if shared == {True}:
        return "view"
    if shared == {False}:
        return "copy" if _asks_for_copy(func) else "kernel"
    return None


def _site(rows: list[SiteRow], number: int, via: int) -> Site:
    inside = f"{rows[via].file}:{rows[via].line} in {rows[via].function}" if via >= 0 else None
    if number < 0:
        return Site(via=inside)
    return rows[number].to_site(inside)
