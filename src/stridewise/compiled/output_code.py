"""The code that inductor generates for a graph: its kernels, and what its `call` runs in order. No torch.

It is Python, and the only place that shows real layouts: the graph's own metadata say what eager mode would have.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from stridewise.results.compiled import Strides

_ALLOCATES = re.compile(r"^empty_strided(?:_\w+)?$")
_BENCHMARKS = {"get_args", "benchmark_compiled_module"}
_QUIET = {"print", "run_intermediate_hooks", "get_raw_stream", "stream_guard"}
_VIEWS = {"reinterpret_tensor", "alloc_from_pool", "as_strided"}
_KERNEL_MAKERS = {"cpp_pybinding", "cpp", "triton", "cuda", "halide", "pallas", "cutedsl"}


class Argument(Struct, frozen=True):
    """A tensor that a line hands over."""

    buffer: str
    """Name of the tensor whose memory it is."""
    strides: Strides | None
    """As it is handed over."""


class Line(Struct, frozen=True):
    """A line of `call` that runs something."""

    kind: Literal["kernel", "extern"]
    name: str
    number: int
    """From 1."""
    code: str
    arguments: tuple[Argument, ...]
    """The tensors among its arguments, in order."""
    results: tuple[str, ...]
    """The buffers that an extern call makes, or writes."""
    values: tuple[str, ...]
    """All that it is given by position, as it stands there: dynamic sizes too."""
    comment: str
    """The comment lines above it: source nodes, original ATen operators."""


class KernelSource(Struct, frozen=True):
    """A generated kernel."""

    name: str
    language: Literal["C++", "Triton", "other"]
    source: str
    parameters: tuple[str, ...]
    """`in_ptr0`, `out_ptr0`, …: what its arguments are called inside."""
    written: frozenset[str]
    """Those that it may write."""


class Generated(Struct, frozen=True):
    """What a file of output code says."""

    kernels: dict[str, KernelSource]
    lines: tuple[Line, ...]
    inputs: tuple[str, ...]
    strides: dict[str, Strides]
    """Of inputs and buffers, as they are allocated or checked."""
    outputs: tuple[Argument, ...]
    reused: dict[str, str]
    """Buffers that take the memory of others: by name, whose."""


def parse(code: str) -> Generated | None:
    """Read a file of output code; None for what is no Python, as the C++ wrapper makes it."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return None
    kernels = {kernel.name: kernel for kernel in _kernels(tree)}
    reader = _Reader(kernels, code.splitlines())
    for function in _functions(tree):
        reader.read(function)
    return reader.result()


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions that run the graph, in order: partitions first, as they are defined."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and re.match(r"^(call|partition_\d+)$", node.name):
            yield node


# -------------------------------------------------------------------------------------------------------- kernels


def _kernels(tree: ast.Module) -> Iterator[KernelSource]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        maker = call.func.attr
        if maker not in _KERNEL_MAKERS or _dotted(call.func.value) != "async_compile":
            continue
        texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if texts:
            yield _kernel(node.targets[0].id, maker, max(texts, key=len), call)


def _kernel(name: str, maker: str, source: str, call: ast.Call) -> KernelSource:
    if maker in ("cpp_pybinding", "cpp"):
        found = re.search(r"\bkernel\w*\((.*?)\)\s*\{", source, re.DOTALL)
        parameters = [part.strip() for part in found[1].split(",")] if found else []
        names = tuple(part.split()[-1].lstrip("*&") for part in parameters if part)
        written = frozenset(
            name for name, part in zip(names, parameters, strict=True) if "*" in part and "const" not in part
        )
        return KernelSource(name, "C++", source, names, written)
    if maker == "triton":
        found = re.search(r"^def \w+\((.*?)\):", source, re.MULTILINE | re.DOTALL)
        names = tuple(part.split(":")[0].strip() for part in found[1].split(",")) if found else ()
        return KernelSource(name, "Triton", source, names, frozenset(n for n in names if "out_ptr" in n))
    return KernelSource(name, "other", source, (), frozenset())


# --------------------------------------------------------------------------------------------------------- the call


class _Reader:
    """Goes through `call` line by line, with the layouts that names have."""

    def __init__(self, kernels: dict[str, KernelSource], text: list[str]) -> None:
        self.kernels = kernels
        self.text = text
        self.lines: list[Line] = []
        self.inputs: tuple[str, ...] = ()
        self.strides: dict[str, Strides] = {}
        self.views: dict[str, Argument] = {}
        """Names that are other names' memory."""
        self.reused: dict[str, str] = {}
        self.outputs: tuple[Argument, ...] = ()

    def read(self, function: ast.FunctionDef) -> None:
        """Read one function."""
        self._statements(function.body, is_call=function.name == "call")

    def result(self) -> Generated:
        """What was read."""
        return Generated(self.kernels, tuple(self.lines), self.inputs, self.strides, self.outputs, self.reused)

    def _statements(self, body: Sequence[ast.stmt], *, is_call: bool) -> None:
        for statement in body:
            if isinstance(statement, ast.With | ast.For | ast.If | ast.Try):
                self._statements(statement.body, is_call=is_call)
            elif isinstance(statement, ast.Return) and statement.value is not None and is_call:
                self.outputs = tuple(self._arguments([statement.value]))
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value, statement, is_call=is_call)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._run(statement.value, (), statement)

    def _assign(self, target: ast.expr, value: ast.expr, statement: ast.stmt, *, is_call: bool) -> None:
        names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
        if isinstance(value, ast.Name) and value.id == "args":
            if is_call or not self.inputs:
                self.inputs = tuple(names)
            return
        if len(names) == 1 and (view := self._view(value)) is not None:
            self.views[names[0]] = view
            self.reused[names[0]] = view.buffer
            if view.strides is not None:
                self.strides[names[0]] = view.strides
            return
        if isinstance(value, ast.Call):
            function = _dotted(value.func)
            if _ALLOCATES.match(function.rpartition(".")[2]):
                if (made := _strides(value.args)) is not None and names:
                    self.strides[names[0]] = made
                return
            self._run(value, tuple(names), statement)

    def _view(self, value: ast.expr) -> Argument | None:
        """What a name without a new tensor stands for."""
        if isinstance(value, ast.Name):
            return Argument(value.id, self.strides.get(value.id))
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            return Argument(value.value.id, None)
        if isinstance(value, ast.Call) and _dotted(value.func).rpartition(".")[2] in _VIEWS:
            inner = next(iter(self._arguments(value.args[:1])), None)
            return inner and Argument(inner.buffer, _strides(value.args[1:3]))
        return None

    def _run(self, call: ast.Call, results: tuple[str, ...], statement: ast.stmt) -> None:
        name = _dotted(call.func)
        last = name.rpartition(".")[2]
        if last.startswith("assert_"):  # its strides, where it names them: assert_size_stride, assert_tensor_metadata
            tensor = call.args[0] if call.args else None
            if isinstance(tensor, ast.Name) and (made := _strides(call.args[1:3])) is not None:
                self.strides[tensor.id] = made
            return
        if last in _QUIET or name.startswith(("del ", "torch.cuda.", "torch._C.", "raise_")) or not name:
            return
        launched = name.removesuffix(".run")
        kernel = self.kernels.get(launched)
        arguments = tuple(self._arguments([*call.args, *(each.value for each in call.keywords)]))
        if kernel is None and not arguments and not results:
            return
        if kernel is None and re.match(r"^(partition_\d+|call|runner\.\w+)$", name):
            return
        out = [each.value for each in call.keywords if each.arg in ("out", "out_")]
        written = tuple(node.id for value in out for node in ast.walk(value) if isinstance(node, ast.Name))
        self.lines.append(
            Line(
                "extern" if kernel is None else "kernel",
                name if kernel is None else launched,
                statement.lineno,
                ast.get_source_segment("\n".join(self.text), statement) or self.text[statement.lineno - 1].strip(),
                arguments,
                (*results, *written),
                tuple(ast.unparse(each).replace(" * ", "*") for each in call.args),
                self._comment(statement.lineno),
            )
        )

    def _comment(self, number: int) -> str:
        """The comment lines above a line; a line that fetches a stream may stand between."""
        lines = []
        at = number - 2
        while at >= 0 and (text := self.text[at].strip()).startswith(("#", "stream")):
            if text.startswith("#"):
                lines.append(text.lstrip("# "))
            at -= 1
        return "\n".join(reversed(lines))

    def _arguments(self, values: Sequence[ast.expr]) -> Iterator[Argument]:
        """The tensors in some expressions: names that are known, and views of them that are made in place."""
        for value in values:
            if isinstance(value, ast.Name):
                known = value.id in self.strides or value.id in self.inputs or value.id in self.views
                if known or re.match(r"^(buf|arg|primals|tangents|getitem)\w*$", value.id):
                    yield Argument(value.id, self.strides.get(value.id))
            elif isinstance(value, ast.Call) and (view := self._view(value)) is not None:
                yield view
            elif isinstance(value, ast.Tuple | ast.List):
                yield from self._arguments(value.elts)
            elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
                yield Argument(value.value.id, None)


def _strides(values: Sequence[ast.expr]) -> Strides | None:
    """Sizes, strides and a dtype, as two tuples and an attribute of torch stand in a call."""
    if len(values) < 2 or not all(isinstance(value, ast.Tuple | ast.List) for value in values[:2]):
        return None
    sizes, strides = (
        tuple(map(_number, value.elts)) for value in values[:2] if isinstance(value, ast.Tuple | ast.List)
    )
    if len(sizes) != len(strides):
        return None
    dtype = _dotted(values[2]).removeprefix("torch.") if len(values) > 2 else None
    return Strides(sizes, strides, dtype or None)


def _number(value: ast.expr) -> int | str:
    if isinstance(value, ast.Constant) and isinstance(value.value, int):
        return value.value
    return ast.unparse(value).replace(" * ", "*")


def _dotted(value: ast.expr) -> str:
    """`torch.ops.aten.sort.default`; empty for what is no name."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute):
        inner = _dotted(value.value)
        return f"{inner}.{value.attr}" if inner else ""
    return ""
