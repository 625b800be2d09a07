"""A collective on contiguous copies: results are copied back when it is done, once, whoever waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any


class CopyBack:
    """What is still to be copied back after a collective."""

    def __init__(self, copies: list[tuple[Any, Any]], outputs: list[int]) -> None:
        self._copies = copies
        """The caller's tensors, each with the copy that stands in for it."""
        self._outputs = outputs
        self._lock = threading.Lock()
        self._done = False

    def finish(self) -> None:
        """Write results to the caller's tensors, if that was not done yet."""
        import torch

        with self._lock:
            if self._done:
                return
            for index in self._outputs:
                given, copy = self._copies[index]
                with torch.inference_mode(given.is_inference()), torch.no_grad():
                    given.copy_(copy)
            self._done = True

    def given(self, value: Any) -> Any:
        """The caller's tensors in the place of the copies, in what a collective gives back."""
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.given, value))
        return next((given for given, copy in self._copies if copy is value), value)


def copy_of(tensor: Any, is_read: bool) -> Any:
    """A contiguous tensor like this one, with its values if they are read."""
    import torch

    with torch.no_grad():
        if is_read:
            return tensor.detach().clone(memory_format=torch.contiguous_format)
        return torch.empty_like(tensor.detach(), memory_format=torch.contiguous_format)


def converted_work(work: Any, back: CopyBack) -> Any:
    """A `Work` that has not been completed before results were copied back."""
    made = _work_class()()
    made.inner, made.back, made.future = work, back, None
    return made


@cache
def _work_class() -> type:
    """`Work` has other methods in other versions: each that isn't about completion goes to the work inside."""
    import torch.distributed as dist

    own: dict[str, Callable[..., Any]] = {
        "wait": _wait,
        "synchronize": _synchronize,
        "is_completed": _is_completed,
        "result": _result,
        "get_future": _get_future,
    }
    passed = [name for name in dir(dist.Work) if not name.startswith("__") and "pybind" not in name and name not in own]
    return type("ConvertedWork", (dist.Work,), {**own, **{name: _passed(name) for name in passed}})


def _passed(name: str) -> Callable[..., Any]:
    def passed(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, name)(*args, **kwargs)

    return passed


def _wait(self: Any, *args: Any, **kwargs: Any) -> Any:
    waited = self.inner.wait(*args, **kwargs)
    self.back.finish()
    return waited


def _synchronize(self: Any) -> None:
    self.inner.synchronize()
    self.back.finish()


def _is_completed(self: Any) -> bool:
    completed = bool(self.inner.is_completed())
    if completed and self.inner.is_success():
        self.back.finish()
    return completed


def _result(self: Any) -> Any:
    return self.back.given(self.inner.result())


def _get_future(self: Any) -> Any:
    if self.future is None:

        def finished(future: Any) -> Any:
            value = future.value()
            self.back.finish()
            return self.back.given(value)

        self.future = self.inner.get_future().then(finished)
    return self.future
