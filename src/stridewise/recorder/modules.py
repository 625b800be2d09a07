"""Which `nn.Module` is running, under what name, and what goes in and out: global hooks, while recording."""

import contextlib
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Literal

import torch
import torch.nn.modules.module as nn_module
from torch.nn import Module

from stridewise.recorder import private
from stridewise.recorder.calls import CallRecorder, OpenCall
from stridewise.recorder.tensors import tensors_in
from stridewise.recording.model import MODULE_MARK

_getframe = sys._getframe
_tracing_state = torch._C._get_tracing_state
_MOST_MODULES = 100_000
"""A program that makes modules over and over gets no new names after that many."""

FAST_PATH_MODULES: tuple[type[Module], ...] = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
)
"""Modules whose forward asks `has_torch_function()` and then runs other kernels. A test looks for them in torch."""


def may_take_fast_path(module: Module) -> bool:
    """Whether a function mode on the stack could change what this module computes.

    It leaves its fast path anyway in training, and when one of the tensors it hands on requires grad. An encoder asks
    that of its first layer.
    """
    if not isinstance(module, FAST_PATH_MODULES) or all(part.training for part in module.modules()):
        return False
    parameters = list(module.parameters())
    return not (parameters and torch.is_grad_enabled() and all(parameter.requires_grad for parameter in parameters))


class _Running:
    """A module call that has not ended."""

    __slots__ = ("frame", "hidden", "mark", "module", "row")

    def __init__(self, module: Any, frame: int, row: tuple[int, int, int] | None, mark: Any) -> None:
        self.module = module
        """Weak reference."""
        self.frame = frame
        """Address of the frame that torch runs the module's hooks from."""
        self.row = row
        """Number, module and parent; None where the call is not logged, only run with the mode off."""
        self.mark = mark
        self.hidden: OpenCall | Literal[True] | None = None
        """The call that a module run with the mode off is logged as; True where it is not logged."""


class ModuleRecorder:
    """Marks module calls in the trace and logs their tensors; `root_called` is told of each outermost call."""

    def __init__(self, recorder: CallRecorder, root_called: Callable[[Module], None] | None = None) -> None:
        self.recorder = recorder
        self.root_called = root_called
        self.modules: list[tuple[str, str, int]] = []
        """Path, type, and the number of the root module that the path starts at."""
        self.calls: list[tuple[Any, ...]] = []
        """In the order in which they ended."""
        self.weightless: set[int] = set()
        """The root modules without parameters."""
        self.of_torch: set[int] = set()
        """Modules whose classes are torch's own."""
        self._known: dict[int, tuple[Any, int]] = {}
        self._roots = itertools.count()
        self._pending_names: list[tuple[Any, str]] = []
        self._entries: list[tuple[Any, int, Any]] = []
        """Our hooks in torch's tables: table, key, entry."""
        self._uninstalled = 0
        self._lock = threading.Lock()
        codes = [getattr(kind.forward, "__code__", None) for kind in FAST_PATH_MODULES]
        recorder.fast_path_codes = frozenset(id(code) for code in codes)
        recorder.fast_path_begins = self._forward_without_hooks

    # -- the hooks -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """The hooks, registered around the body."""
        before = nn_module.register_module_forward_pre_hook(self._before)
        after = nn_module.register_module_forward_hook(self._after, with_kwargs=True, always_call=True)
        ours = {before.id, after.id}
        named = [table for name, table in vars(nn_module).items() if name.startswith("_global_")]
        tables = [table for table in named if isinstance(table, dict)]
        self._entries = [(table, key, table[key]) for table in tables for key in ours if key in table]

        def has_any_global_hook() -> bool:
            return any(key not in ours for table in tables for key in list(table))

        with contextlib.ExitStack() as stack:
            stack.callback(self._remove, tables, ours)
            if hasattr(nn_module, "_has_any_global_hook"):  # compiled modules warn if it says yes
                stack.enter_context(private.replaced(nn_module, "_has_any_global_hook", has_any_global_hook))
            yield

    def _remove(self, tables: list[dict[int, Any]], ours: set[int]) -> None:
        # By hand: the handle of `register_module_forward_hook` leaves an entry behind.
        with self._lock:
            for table, key, _ in self._entries:  # torch's `remove` forgets one: compiled modules would warn ever after
                table.pop(key, None)
            self._entries = []
            for table in tables:
                for key in ours:
                    table.pop(key, None)

    @contextlib.contextmanager
    def uninstalled(self) -> Iterator[None]:
        """None of our hooks around the body: Dynamo on torch 2.6 inlines them, and recompiles for them."""
        with self._lock:
            self._uninstalled += 1
            for table, key, _ in self._entries:
                table.pop(key, None)
        try:
            yield
        finally:
            with self._lock:
                self._uninstalled -= 1
                if not self._uninstalled:  # no other thread is in such a body
                    for table, key, hook in self._entries:
                        table[key] = hook

    def forget_other_threads(self) -> None:
        """In a forked child: those that held the lock are not here."""
        self._lock = threading.Lock()

    def _before(self, module: Module, args: Any) -> None:
        try:
            recorder = self.recorder
            local = recorder.local
            try:
                running, stack = local.running, local.modules
            except AttributeError:
                running, stack = local.running, local.modules = [], recorder.module_stack()
            frame = _getframe(1)
            if running:
                self._leave_stale(running, frame)
            if recorder.on and _tracing_state() is None:
                if not stack and not self._begin_root(module):
                    return
                known = self._known.get(id(module))
                if known is None or known[0]() is not module:
                    known = self._new_module(module, running)
                number = next(recorder.numbers)
                mark = recorder.mark(f"{MODULE_MARK}{number}")
                mark.__enter__()
                entry = _Running(known[0], id(frame), (number, known[1], stack[-1] if stack else -1), mark)
                stack.append(number)
                running.append(entry)
                if isinstance(module, FAST_PATH_MODULES) and may_take_fast_path(module) and recorder.hide():
                    entry.hidden = True
                    entry.hidden = self._open_hidden_call(module, args, frame)
            elif isinstance(module, FAST_PATH_MODULES) and may_take_fast_path(module) and recorder.hide():
                entry = _Running(weakref.ref(module), id(frame), None, None)
                entry.hidden = True
                running.append(entry)
        except Exception as error:
            self.recorder.failed(error)

    def _begin_root(self, module: Module) -> bool:
        """A module is called from outside any. False if that was the end of the recording."""
        if self.root_called is not None:
            self.root_called(module)
        if self.recorder.on:
            self._name_root(module)
        return self.recorder.on

    def _forward_without_hooks(self, frame: FrameType) -> None:
        """`forward` of a module with a fast path was called by its name: no hook has taken the mode off."""
        try:
            module = frame.f_locals["self"]
            if may_take_fast_path(module):
                caller = frame.f_back
                private.around_rest_of_frame(frame, lambda: self._hide_unhooked(module, caller), self._show_unhooked)
        except Exception as error:
            self.recorder.failed(error)

    def _hide_unhooked(self, module: Module, caller: FrameType | None) -> Any:
        if not self.recorder.hide():
            return None
        return self._open_hidden_call(module, (), caller) if self.recorder.on else contextlib.nullcontext()

    def _show_unhooked(self, call: Any) -> None:
        call.__exit__(None, None, None)
        self.recorder.show()

    def _open_hidden_call(self, module: Module, args: Any, frame: FrameType | None) -> OpenCall:
        """The module runs with the mode off and is logged as one call."""
        recorder = self.recorder
        inputs = [recorder.ref(tensor) for _, tensor in tensors_in(args)]
        function = recorder.function_named(f"torch.nn.{type(module).__name__}.forward")
        return recorder.open_call(function, frame, inputs)

    def _after(self, module: Module, args: Any, *rest: Any) -> None:
        try:
            recorder = self.recorder
            running: list[_Running] = getattr(recorder.local, "running", [])
            if not running or (
                running[-1].module() is not module and not any(entry.module() is module for entry in running)
            ):
                return
            while (entry := running.pop()).module() is not module:
                self._close(entry)
            inputs: tuple[tuple[str, int], ...] = ()
            outputs: tuple[tuple[str, int], ...] = ()
            if entry.row is not None and recorder.on:
                # After an exception torch calls this without the keyword arguments.
                kwargs = rest[0] if len(rest) > 1 else None
                with torch._C.DisableTorchFunction():
                    inputs = self._refs(args) + self._refs(kwargs) if kwargs else self._refs(args)
                    outputs = self._refs(rest[-1])
                if isinstance(entry.hidden, OpenCall):
                    entry.hidden.outputs = [ref for _, ref in outputs]
            self._close(entry, inputs, outputs)
        except Exception as error:
            self.recorder.failed(error)

    def _refs(self, value: Any) -> tuple[tuple[str, int], ...]:
        ref = self.recorder.ref
        if type(value) is torch.Tensor:
            return (("", ref(value)),)
        if type(value) is tuple and len(value) == 1 and type(value[0]) is torch.Tensor:
            return (("0", ref(value[0])),)
        return tuple((path, ref(tensor)) for path, tensor in tensors_in(value))

    def _close(self, entry: _Running, inputs: Any = (), outputs: Any = ()) -> None:
        """End the marks of a module call and put the mode back on if it was taken off for it."""
        recorder = self.recorder
        if entry.hidden is not None:
            if isinstance(entry.hidden, OpenCall):
                entry.hidden.__exit__(None, None, None)
            recorder.show()
        if entry.row is not None:
            recorder.end_mark(entry.mark)
            stack = recorder.local.modules
            if stack:
                stack.pop()
            # Tuples: the garbage collector looks at each once, at lists again and again.
            self.calls.append((*entry.row, inputs, outputs))

    def _leave_stale(self, running: list[_Running], hooking: FrameType) -> None:
        """End the calls that were left without torch's running the hooks: a KeyboardInterrupt skips them.

        An address is used again, but a frame that runs hooks has come through here, and ended what was left at its own.
        """
        innermost, code = running[-1].frame, hooking.f_code
        frames = set()
        frame = hooking.f_back
        while frame is not None:
            if frame.f_code is code:
                address = id(frame)
                if address == innermost:
                    return
                frames.add(address)
            frame = frame.f_back
        while running and running[-1].frame not in frames:
            self._close(running.pop())

    def leave_all(self) -> None:
        """End the marks that this thread still has open."""
        running = getattr(self.recorder.local, "running", [])
        while running:
            self._close(running.pop())
        self.recorder.module_stack().clear()

    # -- names -----------------------------------------------------------------------------------------------------

    def _new_module(self, module: Module, running: list[_Running]) -> tuple[Any, int]:
        # Made or swapped in while its root was running: named after its type, under its caller.
        rows = [entry.row for entry in running if entry.row is not None]
        path, _, root = self.modules[rows[-1][1]] if rows else ("", "", -1)
        name = f"<{type(module).__name__}>"
        return self._add(module, f"{path}.{name}" if path else name, root)

    def _add(self, module: Module, path: str, root: int) -> tuple[Any, int]:
        if len(self.modules) >= _MOST_MODULES:
            return weakref.ref(module), len(self.modules) - 1
        entry = (path, type(module).__name__, root)
        with self._lock:
            index = len(self.modules)
            self.modules.append(entry)
        if str(type(module).__module__).startswith("torch."):
            self.of_torch.add(index)
        known = self._known[id(module)] = (weakref.ref(module), index)
        return known

    def _name_root(self, root: Module) -> None:
        """Learn the paths below a module that is called from outside any; a later, larger root renames them."""
        known = self._known.get(id(root))
        if known is not None and known[0]() is root:
            return
        number = next(self._roots)
        first = len(self.modules)
        has_parameters = False
        for path, module in _modules_below(root):
            self._add(module, path, number)
            prefix = f"{path}." if path else ""
            for what, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
                for name, tensor in list(tensors.items()):
                    if isinstance(tensor, torch.Tensor):
                        self._pending_names.append((weakref.ref(tensor), f"{what} `{prefix}{name}`"))
                        has_parameters |= what == "parameter"
        if not has_parameters:
            self.weightless.add(first)

    def learn_names(self) -> dict[int, str]:
        """What the tensor objects in the log are to the model, by object number."""
        names = {}
        for ref, name in self._pending_names:
            tensor = ref()
            if tensor is not None and (number := self.recorder.tensors.object_number(tensor)) is not None:
                names[number] = name
        return names

    def forget_names(self) -> None:
        """Keep no weak reference to tensors at all."""
        self._pending_names = []

    def paths(self) -> list[tuple[str, str]]:
        """Path and type of each module; where the program has several roots, paths start with the root's type."""
        roots = {root: kind for path, kind, root in self.modules if path == "" and root >= 0}
        if len(roots) < 2:
            return [(path, kind) for path, kind, _ in self.modules]
        return [
            (".".join(part for part in (roots.get(root, ""), path) if part), kind) for path, kind, root in self.modules
        ]


def _modules_below(root: Module) -> Iterator[tuple[str, Module]]:
    """A module and all below it, each once, with its path. `named_modules` may be the program's own code."""
    todo, seen = [("", root)], {id(root)}
    while todo:
        path, module = todo.pop()
        yield path, module
        children = []
        for name, child in list(module._modules.items()):
            if isinstance(child, Module) and id(child) not in seen:
                seen.add(id(child))
                if name == "_orig_mod":  # `torch.compile` wraps it
                    children.append((path, child))
                else:
                    children.append((f"{path}.{name}" if path else str(name), child))
        todo += reversed(children)
