"""Compile something with all that the compiler logs about it kept, and nothing of it taken from a cache."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from stridewise.compiled.trace_log import Entry, entry

TRACE_LOGGER = "torch.__trace"
"""Where torch logs its structured trace, from 2.3 on: what TORCH_TRACE writes and tlparse reads."""
PROVENANCE = "trace.provenance_tracking_level"
_CACHES = {"fx_graph_cache": False, "fx_graph_remote_cache": False, PROVENANCE: 1}
_LIMITS = {"recompile_limit": 64, "accumulated_recompile_limit": 512, "cache_size_limit": 64}


class Kept(logging.Handler):
    """Keeps what the compiler logs, in all threads."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.entries: list[Entry] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one entry."""
        try:
            made = entry(getattr(record, "metadata", {}), getattr(record, "payload", None))
        except Exception:  # the program is being compiled: it goes on as it would without us
            return
        if made is not None:
            self.entries.append(made)


@contextlib.contextmanager
def logged() -> Iterator[list[Entry]]:
    """What torch.compile logs while this lasts, in order."""
    logger = logging.getLogger(TRACE_LOGGER)
    kept = Kept()
    level, propagates = logger.level, logger.propagate
    # torch 2.6 warns of settings that it can't write down when it logs a graph.
    warnings.filterwarnings("ignore", message="Skipping serialization of ", category=UserWarning)
    ours = warnings.filters[0]
    logger.addHandler(kept)
    if level == logging.NOTSET or level > logging.DEBUG:
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield kept.entries
    finally:
        logger.removeHandler(kept)
        with contextlib.suppress(ValueError):  # somebody reset them
            warnings.filters.remove(ours)  # type: ignore[attr-defined]
        logger.level, logger.propagate = level, propagates


@contextlib.contextmanager
def without_caches(settings: Mapping[str, Any] | None = None, *, limits: bool = True) -> Iterator[tuple[str, ...]]:
    """Graphs are compiled anew, and kernels know their nodes. Gives what this version of torch has no setting for.

    With `limits` a function may be compiled more often than usual.
    """
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config

    inductor, dynamo = torch._inductor.config, torch._dynamo.config
    wanted = {**_CACHES, **(settings or {})}
    missing = tuple(name for name in wanted if not _has(inductor, name))
    with contextlib.ExitStack() as stack:
        stack.enter_context(inductor.patch({name: value for name, value in wanted.items() if name not in missing}))
        if limits:
            known = {name: value for name, value in _LIMITS.items() if _has(dynamo, name)}
            stack.enter_context(
                dynamo.patch({name: max(value, getattr(dynamo, name)) for name, value in known.items()})
            )
        if _has(torch._functorch.config, "enable_autograd_cache"):
            stack.enter_context(torch._functorch.config.patch(enable_autograd_cache=False))
        yield missing


def _has(config: Any, name: str) -> bool:
    """Whether a configuration has a setting, which may lie in a part of it."""
    for part in name.split("."):
        try:
            config = getattr(config, part)
        except AttributeError:
            return False
    return True


def original(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function or module that was compiled already; the same if it was not."""
    modules = getattr(fn, "__dict__", {}).get("_modules")
    module = modules.get("_orig_mod") if isinstance(modules, dict) else None
    return module or getattr(fn, "_torchdynamo_orig_callable", None) or fn


def fresh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls another, with code of its own: what Dynamo knows of the program's code stays as it is."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    with _LOCK:
        _made[0] += 1
        code = called.__code__.replace(co_name=f"called_{_made[0]}")
    return FunctionType(code, called.__globals__, code.co_name, None, called.__closure__)


def inductor() -> Callable[..., Any]:
    """The usual backend, as another than it was before: code that was compiled with that is not taken for its own."""
    import torch

    def compile(module: Any, inputs: Any) -> Any:
        return torch._dynamo.lookup_backend("inductor")(module, inputs)

    return compile


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """What Dynamo compiles meanwhile of the program's own code, behind graph breaks, is forgotten at the end.

    Else it would count as recompilations of that code. What the program itself compiled of it before is forgotten with
    it, and compiled again when it is called. Tried on torch 2.6, 2.13 and 2.14; nothing is forgotten where torch lacks
    `register_bytecode_hook` or `reset_code`.
    """
    from torch._dynamo import convert_frame

    try:
        from torch._C._dynamo.eval_frame import reset_code  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        yield
        return
    register = getattr(convert_frame, "register_bytecode_hook", None)
    codes: list[CodeType] = []
    limit = sys.getrecursionlimit()  # inductor raises it
    handle = register(lambda code, _: codes.append(code)) if register is not None else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()
        for code in codes:
            reset_code(code)
        sys.setrecursionlimit(limit)


_LOCK = threading.Lock()
_made = [0]
OWN_FILE = fresh.__code__.co_filename
"""The file that such functions are of."""
