"""From the code of one graph to what it runs, what it copies, and for whom. No torch."""

import re
from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from stridewise.compiled import affine, kernel_source
from stridewise.compiled.graph_text import Node
from stridewise.compiled.kernel_source import Moved
from stridewise.compiled.output_code import Argument, Generated, Line
from stridewise.compiled.stacks import site_of, sites_of
from stridewise.findings import Site
from stridewise.results.compiled import Cause, Chosen, Copied, Graph, Launch, Phase, Strides

_LONGEST = 60
_COPYING = ("clone", "_to_copy", "contiguous", "copy", "reshape")


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


def graph_of(draft: Draft, function: Site, breaks: int) -> Graph:
    """What there is to say of a graph."""
    reader = _Reader(draft)
    copied = [each for at in range(len(draft.generated.lines)) for each in reader.copied(at)]
    launches = tuple(reader.launch(at, copied) for at in range(len(draft.generated.lines)))
    moved = [each.bytes_moved for each in copied]
    languages = {kernel.language for kernel in draft.generated.kernels.values()} - {"other"}
    return Graph(
        id=draft.id,
        phase=draft.phase,
        function=function,
        kernels=sum(launch.kind == "kernel" for launch in launches),
        externs=sum(launch.kind == "extern" for launch in launches),
        copies=len(copied),
        bytes_moved=None if any(each is None for each in moved) else sum(each or 0 for each in moved),
        launches=launches,
        copied=tuple(copied),
        chosen=tuple(row for at in range(len(draft.generated.lines)) for row in reader.chosen(at)),
        breaks=breaks,
        language=" and ".join(sorted(languages)) or None,
    )


class _Reader:
    """Relates the lines of one graph's code to each other and to its nodes."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.generated = draft.generated
        self.lines = draft.generated.lines
        self._nodes = [self._nodes_of(at) for at in range(len(self.lines))]
        self._moves: dict[str, dict[str, Moved | None]] = {}

    # ---------------------------------------------------------------------------------------------- lines and nodes

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
            by_operator.setdefault(_operator(node), []).append(node)
        if line.kind == "extern":  # the first call of a function is the first node of its operator
            own = by_operator.get(_called(line.name), [])
            calls = [number for number, each in enumerate(self.lines) if each.name == line.name]
            return (own[calls.index(at)],) if len(own) == len(calls) else ()
        own = [found[0] for op, found in by_operator.items() if op and len(found) == 1 and _is_named(op, line.name)]
        return tuple(own)

    def _sites(self, at: int) -> tuple[Site, ...]:
        """The expressions that a line comes from."""
        traces = self.draft.traces.get(self._key(at), ())
        exact = [site for trace in traces if (site := next(reversed(sites_of(trace)), None)) is not None]
        if exact:
            return tuple(dict.fromkeys(exact))
        found = [site_of(node.place) for node in self._nodes[at]]
        return tuple(dict.fromkeys(site for site in found if site is not None))

    def launch(self, at: int, copied: Sequence[Copied]) -> Launch:
        """A line that runs something."""
        line = self.lines[at]
        own = [each for each in copied if each.line == line.number]
        moves = self._moves_of(line)
        only = bool(moves) and all(moved is not None for moved in moves.values())
        return Launch(line.kind, line.name, line.number, line.code, len(own), only, self._sites(at))

    # ------------------------------------------------------------------------------------------------------- copies

    def _moves_of(self, line: Line) -> dict[str, Moved | None]:
        """Of each pointer that a kernel writes, what it copies there."""
        kernel = self.generated.kernels.get(line.name) if line.kind == "kernel" else None
        if kernel is None:
            return {}
        if kernel.name not in self._moves:
            found = kernel_source.moves(kernel.source)
            self._moves[kernel.name] = {name: found.get(name) for name in (kernel.written or found)}
        return self._moves[kernel.name]

    def _handed(self, line: Line) -> dict[str, Argument]:
        """What each pointer of a kernel is."""
        kernel = self.generated.kernels[line.name]
        pointers = [name for name in kernel.parameters if "ptr" in name]
        return dict(zip(pointers, line.arguments, strict=False)) if len(pointers) <= len(line.arguments) else {}

    def copied(self, at: int) -> list[Copied]:
        """What a kernel only copies, one row for each tensor that it writes so."""
        line = self.lines[at]
        moves = {name: moved for name, moved in self._moves_of(line).items() if moved is not None}
        handed = self._handed(line) if moves else {}
        rows = [(name, moved) for name, moved in sorted(moves.items()) if {name, moved.source} <= handed.keys()]
        clones = [node for node in self._nodes[at] if _operator(node) in _COPYING]
        found = []
        taken: dict[object, list[str]] = {}
        for pointer, moved in rows:
            source, target = handed[moved.source], handed[pointer]
            if self._is_part(target):  # of a concatenation, say, which has to be written in any case
                continue
            consumer, feeds = self._feeds(at, target.buffer)
            written = self._strides(target)
            own = [clone for clone in clones if written is not None and _sizes(clone) == written.sizes]
            cause = self._cause(consumer, feeds, own)
            node = self._node_of_copy(at, taken.setdefault(written and written.sizes, []), own, consumer, cause)
            read = self._read_through(node, cause) or self._strides(source)
            found.append(
                Copied(
                    kernel=line.name,
                    line=line.number,
                    code=line.code,
                    statement=moved.statement,
                    source=self._producer(at, source.buffer),
                    read=read,
                    written=written,
                    change=affine.change(read, written, moved.read, moved.written),
                    bytes_moved=affine.moved_bytes(read, written),
                    feeds=feeds,
                    feeds_extern=consumer is not None and self.lines[consumer].kind == "extern",
                    cause=cause,
                    site=self._site_of_copy(at, node, own, consumer),
                )
            )
        return found

    def _is_part(self, argument: Argument) -> bool:
        """Whether a tensor is a part of the memory that was allocated for a larger one."""
        whole = affine.as_layout(self.generated.strides.get(argument.buffer))
        parent = self.generated.reused.get(argument.buffer, argument.buffer)
        root, part = affine.as_layout(self.generated.strides.get(parent)), affine.as_layout(argument.strides)
        own = part if part is not None else whole
        return own is not None and root is not None and prod(own.sizes) < prod(root.sizes)

    def _strides(self, argument: Argument) -> Strides | None:
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
        known = [self._strides(each) for each in writer.arguments[:1]] if writer is not None else []
        return Strides(found.sizes, found.strides, known[0].dtype) if known and known[0] is not None else found

    def _dtype_of_input(self, name: str) -> str | None:
        node = self.draft.nodes.get(name)
        return node.strides.dtype if node is not None and node.strides is not None else None

    def _cause(self, consumer: int | None, feeds: str | None, clones: Sequence[Node]) -> Cause:
        if clones:
            return "source"
        if consumer is None:  # a result has the strides that it has in eager mode
            return "required" if feeds == "output" else "other"
        return "required" if self.lines[consumer].kind == "extern" else "other"

    def _node_of_copy(
        self, at: int, taken: list[str], clones: Sequence[Node], consumer: int | None, cause: Cause
    ) -> Node | None:
        """The node that a copy is for: the clone, of several of its sizes the next one, or the operator that takes it.

        `taken` are the clones of these sizes that other copies of the kernel are for.
        """
        if cause == "source":
            node = next((clone for clone in clones if clone.name not in taken), clones[-1])
            taken.append(node.name)
            return node
        if consumer is not None:
            name = _called(self.lines[consumer].name)
            return next((node for node in self._nodes[consumer] if _operator(node) == name), None)
        return next(iter(self._nodes[at]), None)

    def _read_through(self, node: Node | None, cause: Cause) -> Strides | None:
        """What a clone reads, as the graph has it: behind permutes that the code does not show."""
        if cause != "source" or node is None or not node.arguments:
            return None
        return self.draft.nodes[node.arguments[0]].strides

    def _site_of_copy(self, at: int, node: Node | None, clones: Sequence[Node], consumer: int | None) -> Site | None:
        sites = (*self._sites(at), *(self._sites(consumer) if consumer is not None else ()))
        if node is None or node.place is None:
            found = next(iter(sites), None)
        else:
            alike = [clone for clone in clones if clone.place == node.place]
            found = site_of(node.place, sites, alike.index(node) if node in alike else 0)
        module = self._module(consumer) if consumer is not None else None
        if module is None:
            return found
        return replace(found, module=module) if found is not None else Site(module=module)

    def _module(self, at: int) -> str | None:
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
            if buffer not in self._written(line):
                continue
            handed = self._handed(line)
            for pointer, moved in self._moves_of(line).items():
                if (
                    moved is not None
                    and handed.get(pointer, Argument("", None)).buffer == buffer
                    and moved.source in handed
                ):
                    return self._source(before, handed[moved.source].buffer)
            return self._result_of(before)
        return self._producer(at, buffer)

    def _producer(self, at: int, buffer: str) -> str:
        """Where the memory that a line reads was written, in words."""
        seen: set[str] = set()
        while buffer not in seen:
            seen.add(buffer)
            if buffer in self.generated.inputs:
                return self.draft.inputs.get(buffer) or _unnamed(buffer)
            for number in reversed(range(at)):
                if buffer in self.lines[number].results or buffer in self._written(self.lines[number]):
                    return self._result_of(number)
            buffer = self.generated.reused.get(buffer, buffer)
        line = self.lines[at]
        if buffer in self._written(line):
            handed = self._handed(line)
            for pointer, moved in self._moves_of(line).items():
                is_it = pointer in handed and handed[pointer].buffer == buffer
                if is_it and moved is not None and handed.get(moved.source, handed[pointer]).buffer != buffer:
                    return self._producer(at, handed[moved.source].buffer)
            return f"a tensor that it computes (`{buffer}`)"
        return f"`{buffer}`"

    def _result_of(self, at: int) -> str:
        """What a line makes, by the expression that it comes from, if that is one."""
        line = self.lines[at]
        expressions = {site.expression for site in self._sites(at) if site.expression and site.column is not None}
        name = line.name.removeprefix("torch.ops.")
        if line.kind == "kernel" and len(expressions) != 1:
            return f"a result of `{_short(name)}`"
        return (
            f"the result of `{_short(next(iter(expressions)))}`" if len(expressions) == 1 else f"a result of `{name}`"
        )

    def _written(self, line: Line) -> set[str]:
        """The buffers that a kernel writes."""
        if line.kind != "kernel":
            return set()
        kernel = self.generated.kernels[line.name]
        return {arg.buffer for name, arg in self._handed(line).items() if name in kernel.written}

    def _feeds(self, at: int, buffer: str) -> tuple[int | None, str | None]:
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

    # -------------------------------------------------------------------------------------------- layouts that it chose

    def chosen(self, at: int) -> list[Chosen]:
        """The operands of a library's call whose strides are others than those of eager mode."""
        line = self.lines[at]
        if line.kind != "extern":
            return []
        earlier = [self.lines[before].name for before in range(at)].count(line.name)
        alike = [node for node in self.draft.nodes.values() if _operator(node) == _called(line.name)]
        own = [node for node in self._nodes[at] if _operator(node) == _called(line.name)]
        node = own[0] if len(own) == 1 else alike[earlier] if earlier < len(alike) else None
        if node is None:
            return []
        eager = [self.draft.nodes[name].strides for name in node.arguments if self.draft.nodes[name].strides]
        given = [strides for argument in line.arguments if (strides := self._strides(argument)) is not None]
        found = []
        for number, (argument, before, after) in enumerate(zip(line.arguments, eager, given, strict=False)):
            if before is None or before.sizes != after.sizes or not affine.differ(before, after):
                continue
            found.append(
                Chosen(
                    extern=line.name,
                    line=line.number,
                    operand=f"operand {number}",
                    eager=before,
                    compiled=after,
                    why=self._why(at, argument),
                    site=site_of(node.place, self._sites(at)),
                )
            )
        return found

    def _why(self, at: int, argument: Argument) -> str:
        for line in reversed(self.lines[:at]):
            if argument.buffer in self._written(line):
                moves, handed = self._moves_of(line), self._handed(line)
                pure = any(
                    moves[name] is not None and handed[name].buffer == argument.buffer
                    for name in moves
                    if name in handed
                )
                return f"{line.name} copies it" if pure else f"{line.name} writes it so"
        return f"{self._producer(at, argument.buffer)} lies so"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _unnamed(buffer: str) -> str:
    """An input of a graph that the program has no name for."""
    if buffer.startswith("tangents_"):
        return f"the gradient that comes in (`{buffer}`)"
    return (
        f"input `{buffer}`" if buffer.startswith(("arg", "primals")) else f"a tensor that the forward kept (`{buffer}`)"
    )


def _sizes(node: Node) -> tuple[int | str, ...] | None:
    return node.strides.sizes if node.strides is not None else None


def _operator(node: Node) -> str:
    """`clone` of `torch.ops.aten.clone.default`."""
    parts = node.target.split(".")
    return parts[3] if node.target.startswith("torch.ops.") and len(parts) > 3 else ""


def _is_named(operator: str, kernel: str) -> bool:
    """Whether a kernel's name has an operator in it: `cpp_fused_add_clone_0` has `clone`."""
    return re.search(rf"_{re.escape(operator)}(_|$)", kernel) is not None


def _called(name: str) -> str:
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
