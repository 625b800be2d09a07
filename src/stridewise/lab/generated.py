"""What torch.compile makes of calls, read without building kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

from stridewise.lab.bench import Bench
from stridewise.results.compiled import Compiled, Launch, of_one_call


def generated(fn: Callable[..., Any], *args: Any, calls: Sequence[Any] = (), dynamic: bool | None = None) -> Compiled:
    """Graphs, kernels and copies of a call compiled anew, without gradients; `calls` as in `explain_compile`."""
    from stridewise.compiled.explain import explain_compile

    with unbuilt():
        return explain_compile(fn, *args, calls=calls, dynamic=dynamic, compare=False, try_without=False)


@contextlib.contextmanager
def unbuilt() -> Iterator[None]:
    """C++ kernels are written, and not built: what stands in for them does nothing, and results hold no values.

    To build them is most of the time that compiling takes, and nothing is counted in a binary. No later compilation is
    given this code: each one's has a number of its own, and graphs are not cached meanwhile. Tried on torch 2.6, 2.13
    and 2.14; where torch lacks what is put aside here, they are built. Triton's kernels always are.
    """
    from torch._inductor import async_compile, cpu_vec_isa

    def nothing(*_: object) -> None:
        """In place of a kernel."""

    aside: list[tuple[Any, str, Callable[..., Any]]] = [
        (async_compile.AsyncCompile, "cpp_pybinding", lambda *_: nothing),
        (cpu_vec_isa, "valid_vec_isa_list", list),  # vector instructions are tried by building something
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, instead in aside:
            if hasattr(owner, name):
                stack.enter_context(patch.object(owner, name, instead))
        yield


def graphs(fn: Callable[..., Any], calls: Iterable[Sequence[Any]], *, dynamic: bool | None = None) -> list[int]:
    """How many graphs torch.compile has made of a function after each call, without gradients."""
    import torch

    from stridewise.compiled.capture import forgotten, fresh

    made: list[object] = []

    def backend(module: Any, _: object) -> Callable[..., Any]:
        made.append(module)
        forward: Callable[..., Any] = module.forward
        return forward

    so_far = []
    with forgotten(), torch.no_grad():
        compiled = torch.compile(fresh(fn), backend=backend, dynamic=dynamic)
        for args in calls:
            compiled(*args)
            so_far.append(len(made))
    return so_far


def can_compile(bench: Bench, claims: Iterable[str]) -> bool:
    """Whether inductor works here; if not, what claims say of it is noted as not tested."""
    why = _cannot(bench.device.place)
    for claim in claims if why is not None else ():
        bench.untested(claim, "what torch.compile generates", str(why))
    return why is None


@cache
def _cannot(place: str) -> str | None:
    """Why nothing can be compiled for a device: no compiler, most often."""
    import torch

    found = generated(lambda x: x + 1, torch.zeros(2, device=place))
    return None if found.graphs else " ".join(found.notes) or "torch.compile compiled nothing"


def launches(found: Compiled) -> list[Launch]:
    """Generated kernels and library calls of one call, in order."""
    return [launch for graph in of_one_call(found.graphs) for launch in graph.launches]


def kernels(found: Compiled) -> int:
    """Generated kernels that one call launches."""
    return sum(graph.kernels for graph in of_one_call(found.graphs))


def copies(found: Compiled) -> int:
    """Tensors that these only copy."""
    return sum(graph.copies for graph in of_one_call(found.graphs))


def code(found: Compiled) -> str:
    """Everything that was generated."""
    return "\n".join(found.code.values())
