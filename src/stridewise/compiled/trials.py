"""Compile a program with and without a layout call of its source, and compare what is generated.

The call is taken out of the graph that Dynamo made; what then runs is the graph as it was, so that values stay right.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from stridewise.checks.operators.compare import largest_magnitude
from stridewise.compiled import output_code
from stridewise.compiled.capture import fresh, logged, without_caches
from stridewise.compiled.read import Read, read
from stridewise.compiled.rules.sw505 import difference
from stridewise.compiled.stacks import narrowed, sites_of
from stridewise.compiled.trace_log import renumbered
from stridewise.findings import Site
from stridewise.results.compiled import Graph, Trial

_PERMUTES = ("permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "mT", "T", "adjoint")
_FORMATS = ("contiguous",)
_MOST = 12
_SINGLE, _HALF = 1e-4, 2e-2
"""Shares of a result's largest magnitude that rounding may change, by how wide its dtype is."""
REMOVED, VIEWED = "removed", "a view of the same sizes in its place"


class Call(Struct, frozen=True):
    """A layout call in the graphs of a program."""

    graph: int
    """Which graph, in the order in which they are compiled."""
    node: str
    call: str
    site: Site


class Tried(Struct, frozen=True):
    """What a compilation without some calls gave."""

    calls: tuple[Call, ...]
    """All that there are."""
    read: Read
    failed: str | None


def trials(
    fn: Callable[..., Any], run: Callable[[Callable[..., Any]], Any], base: Read, deadline: float
) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    """What each layout call costs the compiled program, and notes on what was left out.

    `run` calls what it is given as the program would. `base` is what was read with all calls in place.
    """
    everything = _compiled_without(fn, run, lambda call: call.call in _FORMATS)
    explicit = [call for call in everything.calls if call.call in _FORMATS]
    permutes = [call for call in everything.calls if call.call not in _FORMATS]
    wanted: list[tuple[Call, str]] = []
    notes: list[str] = []
    before, after = _figures(base.graphs), _figures(everything.read.graphs)
    if explicit and (everything.failed or after != before):
        wanted += [(call, REMOVED) for call in explicit]
        if everything.failed is None and len(explicit) > 1:
            whole = _trial(explicit[0], REMOVED, base, everything)
            notes.append(
                f"Without any of its {len(explicit)} calls of `contiguous` the program has {difference(whole)}, beside"
                " the backward."
                if any(graph.phase == "backward" for graph in base.graphs)
                else f"Without any of its {len(explicit)} calls of `contiguous` the program has {difference(whole)}."
            )
    if everything.failed or after[1]:  # else nothing is left that a permute could be the reason for
        wanted += [(call, VIEWED) for call in permutes]
    found: list[Trial] = []
    for number, (call, without) in enumerate(wanted):
        if number == _MOST or time.monotonic() > deadline:
            left = len(wanted) - number
            why = "give a longer time_limit" if number < _MOST else f"the first {_MOST} were"
            notes.append(f"{left} of {len(wanted)} layout calls were not compiled without: {why}.")
            break
        tried = _compiled_without(fn, run, lambda each, call=call: each == call)  # type: ignore[misc]
        found.append(_trial(call, without, base, tried))
    return tuple(found), tuple(notes)


def _compiled_without(
    fn: Callable[..., Any], run: Callable[[Callable[..., Any]], Any], chosen: Callable[[Call], bool]
) -> Tried:
    """Compile without the chosen calls."""
    import torch

    editor = _Editor(chosen)
    failed = None
    with without_caches(), logged() as entries:
        try:
            run(torch.compile(fresh(fn), backend=editor.compile))
        except Exception as error:
            failed = _said(error)
    return Tried(tuple(editor.calls), read(renumbered(entries)), editor.failed or failed)


def _said(error: BaseException) -> str:
    inner = error.__cause__ or error
    text = next((line for line in str(inner).splitlines() if line.strip()), "")
    return f"{type(inner).__name__}: {text}"


class _Editor:
    """A backend that compiles an edited copy of each graph, and lets the graph run as it was."""

    def __init__(self, chosen: Callable[[Call], bool]) -> None:
        self.chosen = chosen
        self.calls: list[Call] = []
        self.failed: str | None = None
        self._graphs = 0

    def compile(self, module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo calls with each graph."""
        import torch

        number = self._graphs
        self._graphs += 1
        edited = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
        is_equivalent = False
        for node in list(edited.graph.nodes):
            call = _layout_call(node)
            if call is None:
                continue
            known = Call(number, node.name, call, narrowed(_site(node), call))
            self.calls.append(known)
            if self.chosen(known):
                _take_out(edited.graph, node)
                is_equivalent = call in _FORMATS
        edited.recompile()
        try:
            with contextlib.redirect_stderr(None):
                torch._dynamo.lookup_backend("inductor")(edited, list(inputs))
        except Exception as error:
            self.failed = self.failed or _said(error)
        forward: Callable[..., Any] = module.forward
        return self._compared(forward, edited.forward) if is_equivalent else forward

    def _compared(self, forward: Callable[..., Any], edited: Callable[..., Any]) -> Callable[..., Any]:
        """Runs a graph as it was, and once, on copies, without the calls: what needs them raises, or differs."""
        import torch

        seen = False

        def run(*given: Any) -> Any:
            nonlocal seen
            if seen:
                return forward(*given)
            seen = True
            own = _copied(given)
            state = torch.get_rng_state()
            results = forward(*given)
            after = torch.get_rng_state()
            try:
                torch.set_rng_state(state)
                others = edited(*own)
                if not _are_close((results, given), (others, own)):
                    self.failed = self.failed or "other values"
            except Exception as error:
                self.failed = self.failed or _said(error)
            finally:
                torch.set_rng_state(after)
            return results

        return run


def _copied(given: Any) -> Any:
    """Copies of tensors with their strides; parameters, which no graph writes, stay."""
    import torch
    from torch.utils._pytree import tree_map_only

    def copied(tensor: Any) -> Any:
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        own = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        if own.numel():
            flat = own.as_strided((own.untyped_storage().nbytes() // own.element_size(),), (1,))
            flat.copy_(tensor.detach().as_strided(flat.shape, (1,), tensor.storage_offset()))
        return own.requires_grad_(tensor.requires_grad)

    return tree_map_only(torch.Tensor, copied, given)


def _are_close(one: Any, other: Any) -> bool:
    """Whether two nests of tensors have the same values, but for rounding."""
    import torch
    from torch.utils._pytree import tree_leaves

    for first, second in zip(tree_leaves(one), tree_leaves(other), strict=True):
        if not isinstance(first, torch.Tensor):
            continue
        if first.shape != second.shape:
            return False
        if not (first.is_floating_point() or first.is_complex()):
            if not torch.equal(first, second):
                return False
            continue
        most = largest_magnitude(first)
        share = _HALF if first.dtype.itemsize < 4 else _SINGLE
        if not torch.allclose(first, second, rtol=share, atol=share * most, equal_nan=True):
            return False
    return True


def _layout_call(node: Any) -> str | None:
    """The layout call that a node is, if it can be taken out: of tensors of floats, of sizes that are known."""
    if node.op == "call_method":
        name = str(node.target)
    elif node.op == "call_function":
        name = getattr(node.target, "__name__", "")
        if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], str):
            name = node.args[1]
    else:
        return None
    source = node.args[0] if node.args else None
    before, after = (getattr(each, "meta", {}).get("example_value") for each in (source, node))
    if before is None or after is None or not hasattr(after, "stride") or not after.is_floating_point():
        return None
    if any(not isinstance(size, int) for size in after.shape):
        return None
    if name in _FORMATS:
        return name
    moves = name in _PERMUTES and before.is_contiguous() and not after.is_contiguous()
    return name if moves else None


def _take_out(graph: Any, node: Any) -> None:
    """Let others use what a call takes; of a permute, a view of it with the sizes that the call gives."""
    source = node.args[0]
    if _layout_call(node) not in _FORMATS:
        with graph.inserting_before(node):
            sizes = tuple(node.meta["example_value"].shape)
            source = graph.call_method("reshape", (source, sizes))
            source.meta = dict(node.meta)
            source.meta.pop("example_value", None)
    node.replace_all_uses_with(source)
    graph.erase_node(node)


def _site(node: Any) -> Site:
    trace = node.meta.get("stack_trace") or ""
    found = sites_of(trace)
    return found[-1] if found else Site(expression=str(node.target))


# ---------------------------------------------------------------------------------------------------------- figures


def _forward(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """The graphs of the first call."""
    return tuple(graph for graph in graphs if graph.phase != "backward" and graph.id.endswith("/0"))


def _figures(graphs: Sequence[Graph]) -> tuple[int, int, int]:
    """Kernels, copies and library calls of one call, without its backward."""
    own = _forward(graphs)
    return sum(g.kernels for g in own), sum(g.copies for g in own), sum(g.externs for g in own)


def _moved(graphs: Sequence[Graph]) -> int | None:
    found = [graph.bytes_moved for graph in _forward(graphs)]
    return None if any(each is None for each in found) else sum(each or 0 for each in found)


def _trial(call: Call, without: str, base: Read, tried: Tried) -> Trial:
    (kernels, copies, externs), (own_kernels, own_copies, own_externs) = (
        _figures(base.graphs),
        _figures(tried.read.graphs),
    )
    return Trial(
        call=call.call,
        site=call.site,
        without=without,
        kernels=(kernels, own_kernels),
        copies=(copies, own_copies),
        externs=(externs, own_externs),
        bytes_moved=(_moved(base.graphs), _moved(tried.read.graphs)),
        output_strides_change=list(_output_strides(base)) != list(_output_strides(tried.read)),
        failed=tried.failed,
        new_externs=tuple(sorted(_externs(tried.read.graphs) - _externs(base.graphs))),
    )


def _externs(graphs: Sequence[Graph]) -> set[str]:
    return {launch.name for graph in _forward(graphs) for launch in graph.launches if launch.kind == "extern"}


def _output_strides(given: Read) -> Iterator[tuple[object, ...]]:
    """The strides of what each forward graph returns."""
    for graph in _forward(given.graphs):
        generated = output_code.parse(given.code[f"{graph.id} {graph.phase}"])
        for output in generated.outputs if generated is not None else ():
            known = output.strides or (generated.strides.get(output.buffer) if generated is not None else None)
            yield known.strides if known is not None else ()
