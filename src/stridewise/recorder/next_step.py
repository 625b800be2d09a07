"""Where the next step of a program ends, while nothing is recorded."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.nn import Module


@contextlib.contextmanager
def next_step(
    begins: Callable[[bool], None], *, is_optimizer: Callable[[Any], bool], is_root: Callable[["Module"], bool]
) -> Iterator[None]:
    """Call back where a step of the program ends; with False after a root module's call, which need not be all of it.

    What ends must also have begun inside the body. The profiler's annotations lie around it (`Optimizer.step` has one):
    one that was opened in an earlier recording would be closed in memory that is no longer there.
    """
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from stridewise.recorder import live

    begun: dict[str, Any] = {}

    def before_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_optimizer(optimizer):
            begun["optimizer"] = optimizer

    def after_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
        if begun.get("optimizer") is optimizer:
            begins(True)

    def before_module(module: "Module", args: Any) -> None:
        if "root" not in begun and is_root(module):
            begun["root"] = module

    def after_module(module: "Module", args: Any, output: Any) -> None:
        if begun.get("root") is module:
            begun.clear()
            begins(False)

    live.step_listener = lambda: begins(True)
    hooks = [
        register_optimizer_step_pre_hook(before_optimizer),
        register_optimizer_step_post_hook(after_optimizer),
        register_module_forward_pre_hook(before_module),
        register_module_forward_hook(after_module, always_call=True),
    ]
    try:
        yield
    finally:
        live.step_listener = None
        for hook in hooks:
            hook.remove()
