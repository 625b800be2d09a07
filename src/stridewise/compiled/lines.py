"""The lines of one graph's code: the nodes that each computes, what it takes, gives and copies. No torch."""

import re
from collections.abc import Mapping
from math import prod

from msgspec import Struct

from stridewise.compiled import affine, kernel_source
from stridewise.compiled.graph_text import Node
from stridewise.compiled.kernel_source import Moved
from stridewise.compiled.output_code import Argument, Generated, Line
from stridewise.compiled.stacks import site_of, sites_of
from stridewise.findings import Site
from stridewise.results.compiled import Phase, Strides

_LONGEST = 60


class Draft(Struct, frozen=True):
    """What the compiler logged of one graph."""

    id: str
    phase: Phase
    code: str
    generated: Generated
    nodes: dict[str, Node]
    origins: dict[str, tuple[str, ...]]
    """Of each launch, `name:number`: the graph's nodes. Empty where this version of torch does not log them."""
    traces: dict[str, tuple[str, ...]]
    """Of each launch: stack traces."""
    inputs: dict[str, str]
    """What the inputs are called in the program, by their names in the code."""


class Lines:
    """Relates the lines of one graph's code to each other and to its nodes. `at` is the number of a line, from 0."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.generated = draft.generated
        self.lines = draft.generated.lines
        self.nodes = [self._nodes_of(at) for at in range(len(self.lines))]
        self._moves: dict[str, dict[str, Moved | None]] = {}

    def _key(self, at: int) -> str:
        """What the compiler's logs call a launch: its name, and which one it is of all in order."""
        handle = re.search(r"\[Provenance debug handles\] (\S+)", self.lines[at].comment)
        return handle[1] if handle is not None else f"{self.lines[at].name}:{at + 1}"

    def _nodes_of(self, at: int) -> tuple[Node, ...]:
        """The nodes that a line computes; none where that is in doubt."""
        nodes, line = self.draft.nodes, self.lines[at]
        names = self.draft.origins.get(self._key(at))
        if names is not None:
            order = {name: place for place, name in enumerate(nodes)}
            return tuple(nodes[name] for name in sorted(set(names) & order.keys(), key=order.__getitem__))
        by_operator: dict[str, list[Node]] = {}
        for node in nodes.values():
            by_operator.setdefault(operator_of(node), []).append(node)
        if line.kind == "extern":  # the first call of a function is the first node of its operator
            own = by_operator.get(called_by(line.name), [])
            calls = [number for number, each in enumerate(self.lines) if each.name == line.name]
            return (own[calls.index(at)],) if len(own) == len(calls) else ()
        own = [found[0] for op, found in by_operator.items() if op and len(found) == 1 and _is_named(op, line.name)]
        return tuple(own)

    def sites(self, at: int) -> tuple[Site, ...]:
        """The expressions that a line comes from."""
        traces = self.draft.traces.get(self._key(at), ())
        exact = [site for trace in traces if (site := next(reversed(sites_of(trace)), None)) is not None]
        if exact:
            return tuple(dict.fromkeys(exact))
        found = [site_of(node.place) for node in self.nodes[at]]
        return tuple(dict.fromkeys(site for site in found if site is not None))

    def moves_of(self, line: Line) -> dict[str, Moved | None]:
        """Of each pointer that a kernel writes, what it copies there."""
        kernel = self.generated.kernels.get(line.name) if line.kind == "kernel" else None
        if kernel is None:
            return {}
        if kernel.name not in self._moves:
            found = kernel_source.moves(kernel.source)
            self._moves[kernel.name] = {name: found.get(name) for name in (kernel.written or found)}
        return self._moves[kernel.name]

    def handed(self, line: Line) -> dict[str, Argument]:
        """What each pointer of a kernel is."""
        kernel = self.generated.kernels[line.name]
        pointers = [name for name in kernel.parameters if "ptr" in name]
        return dict(zip(pointers, line.arguments, strict=False)) if len(pointers) <= len(line.arguments) else {}

    def is_part(self, argument: Argument) -> bool:
        """Whether a tensor is a part of the memory that was allocated for a larger one."""
        whole = affine.as_layout(self.generated.strides.get(argument.buffer))
        parent = self.generated.reused.get(argument.buffer, argument.buffer)
        root, part = affine.as_layout(self.generated.strides.get(parent)), affine.as_layout(argument.strides)
        own = part if part is not None else whole
        return own is not None and root is not None and prod(own.sizes) < prod(root.sizes)

    def strides_of(self, argument: Argument) -> Strides | None:
        """Of a tensor that is handed over, with the dtype of what its memory was made for."""
        found = argument.strides or self.generated.strides.get(argument.buffer)
        if found is None or found.dtype is not None:
            return found
        root = argument.buffer
        seen: set[str] = set()
        while root not in seen:
            seen.add(root)
            own = self.generated.strides.get(root)
            dtype = (own and own.dtype) or self._dtype_of_input(root)
            if dtype is not None:
                return Strides(found.sizes, found.strides, dtype)
            root = self.generated.reused.get(root, root)
        writer = next((line for line in self.lines if argument.buffer in line.results), None)
        known = [self.strides_of(each) for each in writer.arguments[:1]] if writer is not None else []
        return Strides(found.sizes, found.strides, known[0].dtype) if known and known[0] is not None else found

    def _dtype_of_input(self, name: str) -> str | None:
        node = self.draft.nodes.get(name)
        return node.strides.dtype if node is not None and node.strides is not None else None

    def module_of(self, at: int) -> str | None:
        """The module whose parameter a library's call takes."""
        for argument in self.lines[at].arguments:
            source = self._source(at, argument.buffer)
            if source.startswith("parameter `") and "." in source:
                return source.removeprefix("parameter `").rpartition(".")[0]
        return None

    def _source(self, at: int, buffer: str) -> str:
        """What the program calls what a line takes, through copies of it."""
        for before in range(at - 1, -1, -1):
            line = self.lines[before]
            if buffer not in self.written(line):
                continue
            handed = self.handed(line)
            for pointer, moved in self.moves_of(line).items():
                if (
                    moved is not None
                    and handed.get(pointer, Argument("", None)).buffer == buffer
                    and moved.source in handed
                ):
                    return self._source(before, handed[moved.source].buffer)
            return self._result_of(before)
        return self.producer(at, buffer)

    def producer(self, at: int, buffer: str) -> str:
        """Where the memory that a line reads was written, in words."""
        seen: set[str] = set()
        while buffer not in seen:
            seen.add(buffer)
            if buffer in self.generated.inputs:
                return self.draft.inputs.get(buffer) or _unnamed(buffer)
            for number in reversed(range(at)):
                if buffer in self.lines[number].results or buffer in self.written(self.lines[number]):
                    return self._result_of(number)
            buffer = self.generated.reused.get(buffer, buffer)
        line = self.lines[at]
        if buffer in self.written(line):
            handed = self.handed(line)
            for pointer, moved in self.moves_of(line).items():
                is_it = pointer in handed and handed[pointer].buffer == buffer
                if is_it and moved is not None and handed.get(moved.source, handed[pointer]).buffer != buffer:
                    return self.producer(at, handed[moved.source].buffer)
            return f"a tensor that it computes (`{buffer}`)"
        return f"`{buffer}`"

    def _result_of(self, at: int) -> str:
        """What a line makes, by the expression that it comes from, if that is one."""
        line = self.lines[at]
        expressions = {site.expression for site in self.sites(at) if site.expression and site.column is not None}
        name = line.name.removeprefix("torch.ops.")
        if len(expressions) == 1:
            return f"the result of `{shortened(expressions.pop())}`"
        return f"a result of `{shortened(name)}`"

    def written(self, line: Line) -> set[str]:
        """The buffers that a kernel writes."""
        if line.kind != "kernel":
            return set()
        kernel = self.generated.kernels[line.name]
        return {arg.buffer for name, arg in self.handed(line).items() if name in kernel.written}

    def feeds(self, at: int, buffer: str) -> tuple[int | None, str | None]:
        """Which line takes what a line wrote, and how to call it: a library's call rather than a kernel."""
        names = {buffer}
        takers: list[int] = []
        for number in range(at + 1, len(self.lines)):
            line = self.lines[number]
            names |= {new for new, old in self.generated.reused.items() if old in names and new not in names}
            if any(argument.buffer in names for argument in line.arguments) and not names & set(line.results):
                takers.append(number)
        best = next((taker for taker in takers if self.lines[taker].kind == "extern"), next(iter(takers), None))
        if best is not None:
            return best, self.lines[best].name
        return None, "output" if any(output.buffer in names for output in self.generated.outputs) else None


def shortened(text: str) -> str:
    """A name or an expression that fits into a sentence."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _unnamed(buffer: str) -> str:
    """An input of a graph that the program has no name for."""
    if buffer.startswith("tangents_"):
        return f"the gradient that comes in (`{buffer}`)"
    return (
        f"input `{buffer}`" if buffer.startswith(("arg", "primals")) else f"a tensor that the forward kept (`{buffer}`)"
    )


def operator_of(node: Node) -> str:
    """`clone` of `torch.ops.aten.clone.default`."""
    parts = node.target.split(".")
    return parts[3] if node.target.startswith("torch.ops.") and len(parts) > 3 else ""


def _is_named(operator: str, kernel: str) -> bool:
    """Whether a kernel's name has an operator in it: `cpp_fused_add_clone_0` has `clone`."""
    return re.search(rf"_{re.escape(operator)}(_|$)", kernel) is not None


def called_by(name: str) -> str:
    """The operator that a library's call is: `convolution` of `extern_kernels.convolution`."""
    parts = name.split(".")
    if name.startswith("torch.ops.") and len(parts) > 3:
        return parts[3]
    if parts[0] in ("aten", "_quantized", "inductor_ops") and len(parts) > 1:
        return parts[1]
    return parts[-1]


def phase_of(code: str) -> Phase:
    """Whether a graph is a forward, its backward, or neither; from the name that its code begins with."""
    found = re.search(r"# AOT ID: \['?\"?\d+_(\w+)", code)
    phases: Mapping[str, Phase] = {"forward": "forward", "backward": "backward"}
    return phases.get(found[1], "inference") if found else "inference"
