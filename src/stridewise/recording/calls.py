"""The call log while it is being written: a function mode that sees every call the program makes of torch.

Everything in `CallRecorder.__torch_function__` runs once a call: it is written for speed, and says so where
that costs clarity. Nothing here keeps a tensor, a module or a storage of the program alive.
"""

import itertools
import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from stridewise.layout import Layout
from stridewise.recording import private
from stridewise.recording.model import COMPILED, MARK

_getframe = sys._getframe
_tracing_state = torch._C._get_tracing_state
_modes_below = torch._C._len_torch_function_stack
_Tensor = torch.Tensor
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.parameter.Buffer})

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO = os.path.join(_OURS, "demo", "")
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = os.sep + "site-packages" + os.sep


def _functions_without_ops() -> frozenset[Any]:
    """Functions that run no operator and make no tensor of their own: they are passed straight on."""
    keep = {"data", "T", "mT", "H", "mH", "real", "imag"}
    found: set[Any] = set()
    for owner in (torch.Tensor, torch._C.TensorBase):
        for name, attribute in vars(owner).items():
            if type(attribute).__name__ in ("getset_descriptor", "property"):
                if name not in keep:
                    found.add(attribute.__get__)
                if name not in ("data", "grad"):
                    found.add(attribute.__set__)
    names = """size dim stride numel is_contiguous storage_offset element_size data_ptr __len__ is_floating_point
        is_complex nelement ndimension get_device untyped_storage storage __hash__ is_signed _is_view is_inference
        is_pinned is_shared requires_grad_ retain_grad register_hook is_same_size has_names is_conj is_neg
        is_coalesced sparse_dim dense_dim __format__ register_post_accumulate_grad_hook""".split()
    found.update(getattr(torch.Tensor, name) for name in names if hasattr(torch.Tensor, name))
    found |= {torch.is_floating_point, torch.numel, torch.is_complex, torch.is_tensor, torch.is_signed}
    found |= {torch.is_inference, torch.result_type, torch._C._set_grad_enabled}
    for name in ("_record_function_enter", "_record_function_enter_new", "_record_function_exit"):
        if packet := getattr(torch.ops.profiler, name, None):
            found.add(packet)
            found.update(getattr(packet, overload) for overload in packet.overloads())
    return frozenset(found)


_WITHOUT_OPS = _functions_without_ops()


def is_foreign_to_program(filename: str) -> bool:
    """Whether a frame of this file is torch's, the standard library's, ours or generated: never a call's site."""
    if filename.startswith(_DEMO):  # it stands for a program
        return False
    return (
        filename.startswith((_TORCH, _OURS, "<eval_with_key>", "<frozen", "<string>", "<torch_package"))
        or (filename.startswith(_STDLIB) and _PACKAGES not in filename)
        or filename in _GENERATED
    )


_GENERATED = frozenset({"<attrs generated init>", "<__array_function__ internals>"})
_HANDLERS = frozenset({"handle_torch_function", "wrapped", "_handle_torch_function_and_wrap_type_error_to_not_implemented"})


class CallRecorder(TorchFunctionMode):
    """Marks each call in the trace and logs where it was made and what tensors went in and came out.

    `limit` is a number of calls; when it is reached, `full` is called once and the log stops growing.
    """

    def __init__(self, limit: int, full: Callable[[], None]) -> None:
        super().__init__()
        self.on = True
        self.limit = limit
        self.full = full
        self.unlogged = 0
        """Calls seen after the log was closed."""
        self.pending: Callable[[], None] | None = None
        """What is to be done at the next call on the right thread, after the log was closed on another."""
        self.mark = private.mark_type()
        self.position: Callable[[], int] | None = None
        """Of a library's own log, where one is kept."""
        self.numbers = itertools.count()
        """Of calls and module calls alike: `next` on it is atomic."""
        self.thing_numbers = itertools.count()
        """Of tensor objects and storages."""
        self.calls: list[list[Any]] = []
        self.library_ranges: list[tuple[int, int, int]] = []
        self.sites: dict[tuple[int, int], int] = {}
        self.site_codes: list[tuple[CodeType, int]] = []
        self.functions: dict[Any, int] = {}
        self.function_names: list[str] = []
        self.refs: dict[tuple[Any, ...], tuple[Any, int]] = {}
        self.ref_rows: list[tuple[int, int, int, int]] = []
        self.layouts: dict[tuple[Any, ...], int] = {}
        self.layout_rows: list[tuple[Any, ...]] = []
        self.lock = threading.RLock()
        """For the tables that number what they hold; taken only when something new is seen."""
        self.local = threading.local()
        self._objects: dict[int, tuple[Any, int]] = {}
        self._storages: dict[int, tuple[Any, int]] = {}
        self._foreign: dict[int, bool] = {}
        self._codes: list[CodeType] = []
        """Keeps looked-at code objects alive, since `_foreign` and `sites` know them by id."""

    # -- the hot path --------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            skip = func in _WITHOUT_OPS
        except TypeError:  # an unhashable callable
            skip = False
        if skip or not self.on or _tracing_state() is not None:
            if not skip and not self.on:
                self.unlogged += 1
                if self.pending is not None:
                    self.pending()
            return func(*args, **kwargs) if kwargs else func(*args)

        outputs: list[int] = []
        if _modes_below():  # the program's own modes must not see our looking at tensors
            with torch._C.DisableTorchFunction():
                inputs = self._refs_of_arguments(args, kwargs, outputs)
        else:
            inputs = self._refs_of_arguments(args, kwargs, outputs)
        row = self.open_call(self.function(func), _getframe(1), inputs)
        position = self.position
        before = position() if position is not None else 0
        with self.mark(f"{MARK}{row[0]}"):
            result = func(*args, **kwargs) if kwargs else func(*args)
        if position is not None and (after := position()) != before:
            self.library_ranges.append((row[0], before, after))
        if _modes_below():
            with torch._C.DisableTorchFunction():
                self._refs_of_result(result, outputs)
        else:
            self._refs_of_result(result, outputs)
        row[6] = outputs
        return result

    def _refs_of_arguments(self, args: Any, kwargs: Any, outputs: list[int]) -> list[int]:
        ref = self.ref
        inputs = []
        for value in args:
            if isinstance(value, _Tensor):
                inputs.append(ref(value))
            elif type(value) is list or type(value) is tuple:
                inputs += [ref(entry) for entry in value if isinstance(entry, _Tensor)]
        if kwargs:
            for name, value in kwargs.items():
                into = outputs if name == "out" else inputs
                if isinstance(value, _Tensor):
                    into.append(ref(value))
                elif type(value) is list or type(value) is tuple:
                    into += [ref(entry) for entry in value if isinstance(entry, _Tensor)]
        return inputs

    def _refs_of_result(self, result: Any, outputs: list[int]) -> None:
        if isinstance(result, _Tensor):
            outputs.append(self.ref(result))
        elif isinstance(result, (list, tuple)):
            outputs += [self.ref(entry) for entry in result if isinstance(entry, _Tensor)]

    def open_call(self, function: int, frame: FrameType | None, inputs: list[int]) -> list[Any]:
        """A new row in the log, for a call that `frame` makes or hands on."""
        site, via = self.find_site(frame)
        stack = self.module_stack()
        number = next(self.numbers)
        row = [number, site, via, function, stack[-1] if stack else -1, inputs, []]
        self.calls.append(row)
        if number >= self.limit and self.on:
            self.close()
            self.full()
        return row

    def ref(self, tensor: torch.Tensor) -> int:
        """The number of a tensor in its present state. Sizes and strides are read at each use: they can change."""
        try:
            if type(tensor) not in _PLAIN:
                return self._foreign_ref(tensor)
            key = (
                id(tensor),
                tensor.shape,
                tensor.stride(),
                tensor.storage_offset(),
                tensor.untyped_storage()._cdata,
                -1 if tensor.is_inference() else tensor._version,
            )
        except (RuntimeError, NotImplementedError):  # sparse, nested, functorch's: they have no strides
            return self._unknown_ref(tensor)
        known = self.refs.get(key)
        if known is not None and known[0]() is tensor:
            return known[1]
        return self._new_ref(tensor, key)

    def find_site(self, frame: FrameType | None) -> tuple[int, int]:
        """The nearest frame of the program's own, and the innermost of torch's below it (-1 where there is none)."""
        foreign = self._foreign
        via = None
        while frame is not None:
            code = frame.f_code
            known = foreign.get(id(code))
            if known is None:
                known = foreign[id(code)] = is_foreign_to_program(code.co_filename)
                self._codes.append(code)
            if not known:
                break
            if via is None and code.co_name not in _HANDLERS and code.co_filename.startswith(_TORCH):
                via = (code, frame.f_lasti)
            if frame.f_back is None and code.co_filename == "<string>":
                break  # `python -c`
            frame = frame.f_back
        site = -1 if frame is None else self._site(frame.f_code, frame.f_lasti)
        return site, -1 if via is None else self._site(*via)

    # -- what is seen for the first time --------------------------------------------------------------------------

    def function(self, func: Any) -> int:
        """The number of a function's name."""
        try:
            known = self.functions.get(func)
        except TypeError:
            return self.function_named(_function_name(func))
        if known is None:
            known = self.function_named(_function_name(func))
            if getattr(func, "__closure__", None) is None:  # a closure could keep the program's tensors alive
                self.functions[func] = known
        return known

    def function_named(self, name: str) -> int:
        """The number of a function by its name."""
        with self.lock:
            known = self.functions.get(name)
            if known is None:
                known = self.functions[name] = len(self.function_names)
                self.function_names.append(name)
        return known

    def _site(self, code: CodeType, lasti: int) -> int:
        key = (id(code), lasti)
        known = self.sites.get(key)
        if known is None:
            with self.lock:
                known = self.sites[key] = len(self.site_codes)
                self.site_codes.append((code, lasti))
        return known

    def _new_ref(self, tensor: torch.Tensor, key: tuple[Any, ...]) -> int:
        if tensor.layout is not torch.strided or tensor.is_nested:
            return self._unknown_ref(tensor)
        _, sizes, strides, offset, _, version = key
        layout_key = (tuple(sizes), strides, offset, str(tensor.dtype)[6:], str(tensor.device))
        with self.lock:
            layout = self.layouts.get(layout_key)
            if layout is None:
                layout = self.layouts[layout_key] = len(self.layout_rows)
                self.layout_rows.append(layout_key)
            storage = tensor.untyped_storage()
            number = self._number(self._storages, storage, storage._cdata)
            index = self._append_ref(tensor, layout, number, version)
        self.refs[key] = (weakref.ref(tensor), index)
        return index

    def _foreign_ref(self, tensor: torch.Tensor) -> int:
        """A subclass: its code must not run, and with a dispatch of its own its strides say nothing of its memory."""
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return self._unknown_ref(tensor)
        with torch._C.DisableTorchFunction():
            key = (
                id(tensor),
                _Tensor.size(tensor),
                _Tensor.stride(tensor),
                _Tensor.storage_offset(tensor),
                _Tensor.untyped_storage(tensor)._cdata,
                -1 if _Tensor.is_inference(tensor) else _version(tensor),
            )
            known = self.refs.get(key)
            if known is not None and known[0]() is tensor:
                return known[1]
            return self._new_ref(tensor, key)

    def _unknown_ref(self, tensor: torch.Tensor) -> int:
        with self.lock:
            key = ("unknown", id(tensor))
            known = self.refs.get(key)
            if known is not None and known[0]() is tensor:
                return known[1]
            index = self._append_ref(tensor, -1, -1, -1)
            self.refs[key] = (weakref.ref(tensor), index)
            return index

    def _append_ref(self, tensor: torch.Tensor, layout: int, storage: int, version: int) -> int:
        self.ref_rows.append((self._number(self._objects, tensor, id(tensor)), layout, storage, version))
        return len(self.ref_rows) - 1

    def _number(self, table: dict[int, tuple[Any, int]], thing: Any, address: int) -> int:
        known = table.get(address)
        if known is not None and known[0]() is thing:
            return known[1]
        number = next(self.thing_numbers)
        table[address] = (weakref.ref(thing), number)
        return number

    # -- what else the program does ---------------------------------------------------------------------------------

    def object_number(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor object that is alive and was seen, else None."""
        known = self._objects.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def module_stack(self) -> list[int]:
        """The module calls that are running on this thread, outermost first."""
        try:
            stack: list[int] = self.local.modules
        except AttributeError:
            stack = self.local.modules = []
        return stack

    @property
    def hidden(self) -> bool:
        """Whether the mode is off on this thread on purpose, see `hide`."""
        return bool(getattr(self.local, "hidden", 0))

    def hide(self) -> bool:
        """Take the mode off this thread until `show`. False, and nothing to show, if it was not on."""
        if not private.remove_mode(self):
            return False
        self.local.hidden = getattr(self.local, "hidden", 0) + 1
        return True

    def show(self) -> None:
        """Put the mode back on after `hide`."""
        self.local.hidden -= 1
        private.push_mode(self)

    def enter_compiled_region(self, frame: FrameType) -> Any:
        """Log a compiled region as one call and keep the mode out of Dynamo's sight. Give what comes back to leave."""
        if not self.hide():
            return None
        row = self.open_call(self.function_named(COMPILED), frame, [])
        mark = self.mark(f"{MARK}{row[0]}")
        mark.__enter__()
        return mark

    def leave_compiled_region(self, mark: Any) -> None:
        """The counterpart of `enter_compiled_region`."""
        if mark is not None:
            mark.__exit__(None, None, None)
            self.show()

    def close(self) -> None:
        """Stop logging; from now on calls are only counted."""
        self.on = False


def _version(tensor: torch.Tensor) -> int:
    version: int = _Tensor._version.__get__(tensor)  # type: ignore[attr-defined]
    return version


def _function_name(func: Any) -> str:
    name = getattr(func, "__name__", None) or type(func).__name__
    owner = getattr(func, "__self__", None)
    if name in ("__get__", "__set__") and owner is not None:
        return f"torch.Tensor.{getattr(owner, '__name__', '?')}.{name}"
    if isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{func}"
    objclass = getattr(func, "__objclass__", None)
    if objclass is not None and issubclass(_Tensor, objclass):
        return f"torch.Tensor.{name}"
    qualname = getattr(func, "__qualname__", name)
    module = getattr(func, "__module__", None) or "torch"
    if qualname.startswith(("_VariableFunctionsClass.", "TensorBase.")):
        return f"torch.{name}" if qualname.startswith("_V") else f"torch.Tensor.{name}"
    return f"{_PUBLIC.get(module, module)}.{qualname if '<locals>' not in qualname else name}"


_PUBLIC = {
    "torch._C._nn": "torch.nn.functional",
    "torch._C._linalg": "torch.linalg",
    "torch._C._special": "torch.special",
    "torch._C._fft": "torch.fft",
    "torch._tensor": "torch",
    "torch._VF": "torch",
    "torch.functional": "torch",
}


def tensors_in(value: Any, path: str = "", depth: int = 4) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a module's arguments or results, each with its path: tuples, dicts and dataclasses too.

    Only exact or derived built-in containers are looked into, so no code of the program runs.
    """
    kind = type(value)
    if issubclass(kind, _Tensor):
        yield path, value
    elif depth == 0:
        return
    elif issubclass(kind, dict):
        for key, entry in dict.items(value):
            yield from tensors_in(entry, f"{path}.{key}" if path else str(key), depth - 1)
    elif issubclass(kind, (list, tuple)):
        for position, entry in enumerate((list if issubclass(kind, list) else tuple).__iter__(value)):
            yield from tensors_in(entry, f"{path}[{position}]" if path else str(position), depth - 1)
    elif hasattr(kind, "__dataclass_fields__"):
        for name in kind.__dataclass_fields__:
            entry = getattr(value, "__dict__", {}).get(name)
            yield from tensors_in(entry, f"{path}.{name}" if path else name, depth - 1)


def layout_of(tensor: torch.Tensor) -> Layout | str:
    """A tensor's layout, or a sentence where it has none."""
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"{kind.__name__}: it decides by code of its own what its operators do; its strides need not be its memory's."
    with torch._C.DisableTorchFunction():
        if tensor.layout is not torch.strided or tensor.is_nested:
            what = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
            return f"{what}: it has no strides; layout classes are for strided tensors."
        try:
            return Layout(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        except (RuntimeError, NotImplementedError) as error:
            return f"unknown: its strides can't be read ({str(error).splitlines()[0]})."
