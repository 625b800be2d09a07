"""Artefacts that can be called: loaded from files, or given, with their arguments and the strides they are made for."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stridewise.checks.artefacts import files
from stridewise.checks.artefacts.arguments import (
    Arguments,
    by_path,
    call_text,
    identifier,
    leaves_of,
    nested,
    paths,
    variables_of,
)
from stridewise.checks.artefacts.facts import Facts, Input
from stridewise.checks.artefacts.guarded import strides_for
from stridewise.checks.artefacts.traced import traced_in, traced_of
from stridewise.checks.operators.operands import Bound
from stridewise.errors import UsageError
from stridewise.results.artefacts import ArtefactKind, Checks

if TYPE_CHECKING:
    from torch import Tensor

CHECKS_ASKED = "AOTI_RUNTIME_CHECK_INPUTS"
"""The variable of the environment that makes AOTInductor packages check their inputs, read once by each of them."""
_NO_SAMPLE = "Give its arguments: check_export(program, *args), or --sample path.py:function."


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is to be checked: a file, or a program that is loaded."""

    given: Any
    kind: ArtefactKind
    name: str
    arguments: Arguments | None
    model: str | None = None
    """Target that names the eager model, for programs that are written."""

    @property
    def path(self) -> Path | None:
        """Of a file."""
        return self.given if isinstance(self.given, Path) else None

    @property
    def callable(self) -> Any:
        """A program in memory, as it is called."""
        return self.given.module() if self.kind == "exported program" else self.given


@dataclasses.dataclass
class Opened:
    """An artefact that can be called."""

    subject: Subject
    call: Callable[..., Any]
    names: list[str]
    """Of positional arguments."""
    arguments: Arguments
    strides: dict[int, tuple[int, ...]]
    """That it was made for, by the id of the tensor among its arguments."""
    versions: dict[str, str]
    notes: list[str]
    can_check: bool = False
    """Whether it has a check of strides, which is off unless it is asked for."""
    graph: Any = None
    """The `GraphModule` of an exported program."""

    def facts(self, names: Mapping[int, str]) -> Facts:
        """What is told of it. `names` are those of operands, by the id of their tensor."""
        variables = variables_of(names)
        inputs, untried = [], []
        for path, tensor in paths(self.arguments):
            if id(tensor) in names:
                inputs.append(_input(names[id(tensor)], path, variables[id(tensor)], tensor, self._strides_of(tensor)))
            elif str(tensor.layout) == "torch.strided" and not tensor.is_nested:
                dtype = str(tensor.dtype).removeprefix("torch.")
                made = tuple(tensor.shape), self._strides_of(tensor)
                untried.append(Input(path, path, identifier(path), *made, dtype, largest=0))
        checks: Checks = "no"
        if self.can_check:
            checks = "only if asked" if os.environ.get(CHECKS_ASKED, "0").startswith("0") else "at run time"
        call = call_text(self.arguments, variables)
        told = tuple(self.notes), tuple(self.names), tuple(untried)
        return Facts(self.subject.kind, self.versions, tuple(inputs), checks, call, *told)

    def _strides_of(self, tensor: Tensor) -> tuple[int, ...]:
        return self.strides.get(id(tensor), tuple(tensor.stride()))


def _input(name: str, path: str, variable: str, tensor: Tensor, strides: tuple[int, ...]) -> Input:
    is_integer = not (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel() > 0
    largest = max(0, int(tensor.max())) if is_integer else 0
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Input(name, path, variable, tuple(tensor.shape), strides, dtype, largest)


class Called(Bound):
    """A callable with its arguments, of which the positional ones have the names that are given."""

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], names: Sequence[str]
    ) -> None:
        self._names = names
        super().__init__(fn, args, kwargs)

    def _bound(self, fn: Callable[..., Any]) -> dict[str, Any]:
        names = [*self._names[: len(self.args)]]
        names += [f"input_{at}" for at in range(len(names), len(self.args))]
        return dict(zip(names, self.args, strict=True)) | self.kwargs


def open_subject(subject: Subject, strides: Sequence[tuple[int, ...]] | None = None) -> Opened:
    """Load it; this runs code that the file holds. `strides` are what asking it has told, by its tensors in order.

    Raises UsageError where it can't be loaded, or nothing tells its arguments.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if subject.kind == "exported program":
                return _exported(subject)
            return _packaged(subject, strides) if subject.kind == "AOTInductor package" else _scripted(subject)
        except UsageError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise UsageError(f"{subject.name} can't be loaded: {type(error).__name__}: {text}") from None


def import_loaders(kind: ArtefactKind) -> None:
    """Do once what each child would do to load a kind: imports, and finding out what the CPU can, take seconds."""
    import torch.export

    if kind == "AOTInductor package":
        import torch._inductor.codecache
        import torch._inductor.package

        with contextlib.suppress(Exception):  # the load itself tells what is missing
            torch._inductor.codecache.get_device_information("cpu")


def steady(module: Any) -> Callable[..., Any]:
    """A module whose buffers are after each call what they were before."""
    import torch

    if not isinstance(module, torch.nn.Module):
        return module  # type: ignore[no-any-return]

    def call(*args: Any, **kwargs: Any) -> Any:
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        try:
            return module(*args, **kwargs)
        finally:
            with torch.no_grad():
                for name, buffer in module.named_buffers():
                    if name in before and not torch.equal(buffer, before[name]):
                        buffer.copy_(before[name])

    return call


# ---------------------------------------------------------------------------------------------------------- by kind


def _exported(subject: Subject) -> Opened:
    import torch

    program = subject.given if subject.path is None else torch.export.load(subject.given)
    args, kwargs = subject.arguments or program.example_inputs or _made(program)
    order = [key for key in _keywords(program) if key in kwargs]
    kwargs = {key: kwargs[key] for key in (*order, *(key for key in kwargs if key not in order))}
    made = _made_for(program)
    strides = {}
    for path, leaf in by_path((args, kwargs)):
        value = made.get(path)
        if isinstance(leaf, torch.Tensor) and isinstance(value, torch.Tensor) and leaf.dim() == value.dim():
            strides[id(leaf)] = _for_sizes(tuple(leaf.shape), value)
    graph = program.module()
    names = [name for name in _parameters(graph) if name not in kwargs]
    versions = files.versions_of(subject.given, subject.kind) if subject.path is not None else {}
    return Opened(subject, steady(graph), names, (tuple(args), dict(kwargs)), strides, versions, [], graph=graph)


def _packaged(subject: Subject, asked: Sequence[tuple[int, ...]] | None) -> Opened:
    import torch

    versions: dict[str, str] = {}
    baked: tuple[files.Baked, ...] = ()
    program = subject.given
    if subject.path is not None:
        versions, baked = files.versions_of(subject.given, subject.kind), files.baked_of(subject.given)
        if (device := versions.get("device_key", "cpu")) != "cpu":
            raise UsageError(f"{subject.name} was compiled for {device}.", expected="Expected: one for the CPU.")
        program = _load_package(subject.given)
    _run_on_one_thread()
    arguments = subject.arguments or _of_wrapper(program, baked)
    leaves = [leaf for leaf in leaves_of(arguments) if isinstance(leaf, torch.Tensor)]
    told = asked or [_of_checks(one, leaf) for one, leaf in zip(baked, leaves, strict=False)]
    strides = {id(leaf): found for leaf, found in zip(leaves, told, strict=False) if found and len(found) == leaf.dim()}
    notes = [] if strides else ["It does not tell the strides that it was made for: they are taken from the sample."]
    return Opened(subject, program, [], arguments, strides, versions, notes, can_check=bool(strides))


def _scripted(subject: Subject) -> Opened:
    import torch

    traced: dict[str, Any] = {}
    versions = {}
    program = subject.given
    if subject.path is not None:
        versions, traced = files.versions_of(subject.given, subject.kind), traced_in(subject.given)
        program = torch.jit.load(str(subject.given), map_location="cpu")
    else:
        traced = traced_of(program)
    schema = getattr(getattr(program, "forward", program), "schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    if isinstance(program, torch.jit.ScriptModule):
        names = names[1:]  # itself, whatever its source calls it
    inputs = tuple(traced.get("forward") or ())
    if subject.arguments is None and not inputs:
        raise UsageError(f"{subject.name} does not tell its arguments.", expected=_NO_SAMPLE)
    args, kwargs = subject.arguments or (inputs, {})
    strides = {}
    made = dict(paths(((), dict(zip(names, inputs, strict=False)))))
    for path, leaf in paths(((), {**dict(zip(names, args, strict=False)), **kwargs})):
        if path in made and leaf.shape == made[path].shape:
            strides[id(leaf)] = tuple(made[path].stride())
    return Opened(subject, steady(program), names, (args, kwargs), strides, versions, [])


# --------------------------------------------------------------------------------------------- of exported programs


def _inputs(program: Any) -> Iterator[Any]:
    """The placeholders of what a caller gives."""
    given = [spec.arg for spec in program.graph_signature.input_specs]
    nodes = (node for node in program.graph.nodes if node.op == "placeholder")
    for node, spec, _ in zip(nodes, program.graph_signature.input_specs, given, strict=False):
        if spec.kind.name == "USER_INPUT":
            yield node


def _made_for(program: Any) -> dict[str, Any]:
    """What it was exported for, by the path of each argument: keys of dicts may come in another order."""
    values = [node.meta.get("val") for node in _inputs(program)]
    spec = program.call_spec.in_spec
    if spec.num_leaves != len(values):
        return {}
    numbers = dict(by_path(nested(list(range(len(values))), spec)))
    return {path: values[number] for path, number in numbers.items()}


def _made(program: Any) -> Arguments:
    """Arguments of the sizes that it was exported for: random numbers, and zeros for integers."""
    import torch

    source = torch.Generator().manual_seed(0)
    leaves = [_filled(node.meta.get("val"), source) for node in _inputs(program)]
    return nested(leaves, program.call_spec.in_spec)


def _filled(value: Any, source: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    sizes = tuple(int(size) for size in value.shape)
    if value.is_floating_point():
        return torch.randn(sizes, generator=source).to(value.dtype)
    return torch.zeros(sizes, dtype=value.dtype)


def _for_sizes(sizes: tuple[int, ...], made: Tensor) -> tuple[int, ...]:
    """The strides of a placeholder; where its sizes may change, dense ones in the same order of dimensions."""
    return strides_for(sizes, tuple(map(_hint, made.shape)), tuple(map(_hint, made.stride())))


def _hint(size: Any) -> int:
    """What a size or stride that may change was for the example; `int` would fix it. Private API: `SymInt.node`."""
    hint = getattr(getattr(size, "node", None), "hint", None)
    return int(size if hint is None else hint)


def _keywords(program: Any) -> list[str]:
    spec = program.call_spec.in_spec
    children = list(getattr(spec, "children_specs", None) or spec.children())
    return list(children[1].context or ()) if len(children) == 2 else []


def _parameters(graph: Any) -> list[str]:
    import inspect

    return list(inspect.signature(graph.forward).parameters)


# -------------------------------------------------------------------------------------------------------- of packages


def _load_package(path: Path) -> Any:
    import torch

    name = files.model_of(path)
    if name == "model":
        return torch._inductor.aoti_load_package(str(path))
    from torch._inductor import package

    return package.load_package(str(path), name)  # type: ignore[attr-defined]


def _run_on_one_thread() -> None:
    """Let OpenMP start no threads, though a package may be compiled for some.

    A fork has none of the threads that ran before it, and OpenMP would wait for them for ever.
    """
    with contextlib.suppress(OSError):
        mapped = Path("/proc/self/maps").read_text(errors="replace").splitlines()
        files_of = {line.split(maxsplit=5)[-1] for line in mapped if "omp" in line}
        for file in sorted(files_of):
            if re.match(r"lib(g|i)?omp[-.\w]*\.so", os.path.basename(file)):
                with contextlib.suppress(OSError, AttributeError):
                    ctypes.CDLL(file).omp_set_max_active_levels(0)


def _of_wrapper(program: Any, baked: Sequence[files.Baked]) -> Arguments:
    """Arguments of the sizes and dtypes that a package's wrapper checks."""
    import torch

    source = torch.Generator().manual_seed(0)
    leaves: list[Any] = []
    for one in baked:
        dtype = getattr(torch, (one.dtype or "").lower(), None)
        count = 1 + max((*one.strides, *one.sizes), default=-1)
        if not isinstance(dtype, torch.dtype) or len(one.sizes) != count:
            raise UsageError("Nothing tells the sizes of the package's inputs: some may change.", expected=_NO_SAMPLE)
        sizes = [one.sizes[dim] for dim in range(count)]
        random = torch.randn(sizes, generator=source) if dtype.is_floating_point else torch.zeros(sizes)
        leaves.append(random.to(dtype))
    try:
        return nested(leaves, program.loader.get_call_spec()[0])
    except Exception:  # other arguments than tensors, or another version's tree
        raise UsageError("Nothing tells the arguments of the package.", expected=_NO_SAMPLE) from None


def _of_checks(one: files.Baked, leaf: Tensor) -> tuple[int, ...]:
    """The strides that a wrapper checks; empty if it does not for every dimension."""
    return tuple(one.strides[dim] for dim in range(leaf.dim())) if set(one.strides) == set(range(leaf.dim())) else ()
