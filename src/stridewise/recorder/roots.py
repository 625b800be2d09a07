"""The modules that a script calls from outside any other: which calls of theirs may be its steps."""

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.nn import Module


class Roots:
    """The root modules of a script, numbered as they are seen; `asked` is the class or path of `--module-step`."""

    def __init__(self, asked: str | None) -> None:
        self._asked = asked
        self._numbered: dict[int, tuple[weakref.ref[Module], int]] = {}
        self._numbers = itertools.count(1)
        self._at_path: dict[int, weakref.ref[Module]] = {}
        """The modules whose path was asked for."""
        self._training = False
        """The one that was called last was in training, with gradients."""
        self._has_optimizer: bool | None = None
        """None before anybody looked for one."""

    def number(self, module: "Module") -> int:
        """A root module's number, below zero if it has no parameters. It is looked at when it is first seen."""
        known = self._numbered.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        number = next(self._numbers)
        if next(module.parameters(), None) is None:
            number = -number
        self._numbered[id(module)] = weakref.ref(module), number
        if self._asked is not None:
            paths = {self._asked, self._asked.removeprefix(f"{type(module).__name__}.")}
            asked = [below for path, below in module.named_modules() if path and path in paths]
            self._at_path.update((id(below), weakref.ref(below)) for below in asked)
        return number

    def see_training(self, module: "Module") -> None:
        """A root module is called."""
        from torch import is_grad_enabled

        self._training = module.training and is_grad_enabled()

    def await_optimizer(self) -> bool:
        """Whether an optimizer will step, if none has yet: gradients may be accumulated over many calls of a model."""
        if not self._training:
            return False
        if self._has_optimizer is None:
            from torch.optim import Optimizer

            from stridewise.recorder.state import instances

            self._has_optimizer = bool(instances(Optimizer))
        return self._has_optimizer

    @contextlib.contextmanager
    def watching_asked(self, called: Callable[[], None]) -> Iterator[None]:
        """Call back before each outermost call of a module that was asked for."""
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        local = threading.local()

        def before(module: "Module", args: Any) -> None:
            if self._is_asked(module):
                local.depth = getattr(local, "depth", 0) + 1
                if local.depth == 1:
                    called()

        def after(module: "Module", args: Any, output: Any) -> None:
            if self._is_asked(module):
                local.depth = max(0, getattr(local, "depth", 0) - 1)

        hooks = register_module_forward_pre_hook(before), register_module_forward_hook(after, always_call=True)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _is_asked(self, module: "Module") -> bool:
        known = self._at_path.get(id(module))
        return type(module).__name__ == self._asked or (known is not None and known() is module)
