"""Which `nn.Module` is running, under what name, and what goes in and out: global hooks, while recording."""

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.modules.module as nn_module
from torch.nn import Module

from stridewise.recording.calls import CallRecorder, tensors_in
from stridewise.recording.model import MODULE_MARK

_tracing_state = torch._C._get_tracing_state

FAST_PATH_MODULES: tuple[type[Module], ...] = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
)
"""Modules whose forward asks `has_torch_function()` and then runs other kernels. A test finds them in torch's source."""


def may_take_fast_path(module: Module) -> bool:
    """Whether a function mode on the stack could change what this module computes.

    It leaves its fast path anyway in training, and when one of the tensors it hands on requires grad.
    """
    if not isinstance(module, FAST_PATH_MODULES) or module.training:
        return False
    return not (torch.is_grad_enabled() and all(parameter.requires_grad for parameter in module.parameters()))


class ModuleRecorder:
    """Marks module calls in the trace and logs their tensors; `root_called` is told of each outermost call."""

    def __init__(self, recorder: CallRecorder, root_called: Callable[[Module], None] | None = None) -> None:
        self.recorder = recorder
        self.root_called = root_called
        self.modules: list[tuple[str, str, int]] = []
        """Path, type, and the number of the root module that the path starts at."""
        self.calls: list[list[Any]] = []
        self.names: dict[int, str] = {}
        """Of parameters, buffers and inputs of the model, by object number."""
        self._known: dict[int, tuple[Any, int]] = {}
        self._roots = itertools.count()
        self._pending_names: list[tuple[Any, str]] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """The hooks, registered around the body."""
        before = nn_module.register_module_forward_pre_hook(self._before)
        after = nn_module.register_module_forward_hook(self._after, with_kwargs=True, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    @contextlib.contextmanager
    def uninstalled(self) -> Iterator[None]:
        """No global hooks at all around the body: Dynamo on torch 2.6 inlines them, and recompiles for them."""
        tables = (nn_module._global_forward_pre_hooks, nn_module._global_forward_hooks)
        saved = [dict(table) for table in tables]
        for table in tables:
            table.clear()
        try:
            yield
        finally:
            for table, entries in zip(tables, saved, strict=True):
                table.update(entries)

    def _before(self, module: Module, args: Any) -> None:
        recorder = self.recorder
        if not recorder.on or _tracing_state() is not None:
            return
        with torch._C.DisableTorchFunction():
            stack = recorder.module_stack()
            if not stack:
                if self.root_called is not None:
                    self.root_called(module)
                self._name_root(module)
            number = next(recorder.numbers)
            row = [number, self._module(module, stack), stack[-1] if stack else -1, [], []]
            self.calls.append(row)
            mark = recorder.mark(f"{MODULE_MARK}{number}")
            mark.__enter__()
            stack.append(number)
            running = self._running()
            running.append((weakref.ref(module), row, mark, None))
        if may_take_fast_path(module) and recorder.hide():
            running[-1] = (*running[-1][:3], self._open_hidden_call(module, args))

    def _open_hidden_call(self, module: Module, args: Any) -> tuple[list[Any], Any]:
        """The module runs with the mode off and is logged as one call."""
        recorder = self.recorder
        import sys

        with torch._C.DisableTorchFunction():
            inputs = [recorder.ref(tensor) for _, tensor in tensors_in(args)]
            function = recorder.function_named(f"torch.nn.{type(module).__name__}.forward")
            row = recorder.open_call(function, sys._getframe(2), inputs)
            mark = recorder.mark(f"stridewise:{row[0]}")
            mark.__enter__()
        return row, mark

    def _after(self, module: Module, args: Any, kwargs: Any, output: Any) -> None:
        recorder = self.recorder
        running = self._running()
        if not any(entry[0]() is module for entry in running):
            return
        with torch._C.DisableTorchFunction():
            stack = recorder.module_stack()
            while running:
                entered, row, mark, hidden = running.pop()
                if hidden is not None:
                    call, call_mark = hidden
                    call_mark.__exit__(None, None, None)
                    call[6] = [recorder.ref(tensor) for _, tensor in tensors_in(output)]
                    recorder.show()
                mark.__exit__(None, None, None)
                if stack:
                    stack.pop()
                if entered() is module:
                    break
            if recorder.on:
                row[3] = [(path, recorder.ref(tensor)) for path, tensor in tensors_in(args)]
                row[3] += [(path, recorder.ref(tensor)) for path, tensor in tensors_in(kwargs)]
                row[4] = [(path, recorder.ref(tensor)) for path, tensor in tensors_in(output)]

    def leave_all(self) -> None:
        """End the marks that this thread still has open: a KeyboardInterrupt skips torch's own clean-up."""
        running = self._running()
        while running:
            _, _, mark, hidden = running.pop()
            if hidden is not None:
                hidden[1].__exit__(None, None, None)
                self.recorder.show()
            mark.__exit__(None, None, None)
        self.recorder.module_stack().clear()

    def _running(self) -> list[Any]:
        local = self.recorder.local
        try:
            running: list[Any] = local.running
        except AttributeError:
            running = local.running = []
        return running

    def _module(self, module: Module, stack: list[int]) -> int:
        known = self._known.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        # made or swapped in while its root was running: named after its type, under its caller
        parent = self._running()[-1][1][1] if stack and self._running() else -1
        path, _, root = self.modules[parent] if parent >= 0 else ("", "", -1)
        name = f"<{type(module).__name__}>"
        return self._add(module, f"{path}.{name}" if path else name, root)

    def _add(self, module: Module, path: str, root: int) -> int:
        index = len(self.modules)
        self.modules.append((path, type(module).__name__, root))
        self._known[id(module)] = (weakref.ref(module), index)
        return index

    def _name_root(self, root: Module) -> None:
        """Learn the paths below a module that is called from outside any; a later, larger root renames them."""
        known = self._known.get(id(root))
        if known is not None and known[0]() is root:
            return
        number = next(self._roots)
        for path, module in root.named_modules():
            self._add(module, path, number)
        named = [("parameter", root.named_parameters()), ("buffer", root.named_buffers())]
        for what, tensors in named:
            self._pending_names += [(weakref.ref(tensor), f"{what} `{path}`") for path, tensor in tensors]

    def learn_names(self) -> dict[int, str]:
        """What the tensor objects in the log are to the model, by object number."""
        names = {}
        for ref, name in self._pending_names:
            tensor = ref()
            if tensor is not None and (number := self.recorder.object_number(tensor)) is not None:
                names[number] = name
        return names

    def paths(self) -> list[tuple[str, str]]:
        """Path and type of each module; where the program has several roots, paths start with the root's type."""
        roots = {root: kind for path, kind, root in self.modules if path == "" and root >= 0}
        if len(roots) < 2:
            return [(path, kind) for path, kind, _ in self.modules]
        return [
            (".".join(part for part in (roots.get(root, ""), path) if part), kind) for path, kind, root in self.modules
        ]
