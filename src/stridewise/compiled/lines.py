"""The lines of one graph's code: the nodes that each computes, what it takes, gives and copies. No torch."""

import re
from collections.abc import Collection, Mapping
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
COPYING = frozenset({"clone", "_to_copy", "contiguous", "copy"})
"""Operators that copy. `reshape` is none of them: in these graphs it is a view."""
VIEWS = frozenset(
    {"alias", "as_strided", "detach", "diagonal", "expand", "permute", "reshape", "select", "slice", "split"}
    | {"squeeze", "t", "transpose", "unfold", "unsqueeze", "view", "_unsafe_view", "convert_element_type"}
)
"""Operators behind which values are those that went in, some of them, or once more, but for a conversion."""


class Draft(Struct, frozen=True):
    """What the compiler logged of one graph."""

    id: str
    phase: Phase
    code: str
    generated: Generated
    nodes: dict[str, Node]
    results: tuple[str, ...]
    """The nodes that the graph returns."""
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
        calls = self._calls()
        self.nodes = [(calls[at],) if at in calls else self._nodes_of(at) for at in range(len(self.lines))]
        self._moves: dict[str, dict[str, Moved | None]] = {}

    def _key(self, at: int) -> str:
        """What the compiler's logs call a launch: its name, and which one it is of all in order."""
        handle = re.search(r"\[Provenance debug handles\] (\S+)", self.lines[at].comment)
        return handle[1] if handle is not None else f"{self.lines[at].name}:{at + 1}"

    def _calls(self) -> dict[int, Node]:
        """The nodes of library calls whose nodes are not logged: of an operator the first that takes such operands.

        The compiler changes the order of calls. Where there are more nodes of an operator than calls all are in doubt.
        """
        names = {line.name for line in self.lines if line.kind == "extern"}
        found: dict[int, Node] = {}
        for name in names:
            own = [node for node in self.draft.nodes.values() if operator_of(node) == called_by(name)]
            calls = [at for at, line in enumerate(self.lines) if line.name == name]
            if len(own) != len(calls):
                continue
            for at in calls:
                node = next((node for node in own if self._takes(node, self.lines[at])), None)
                if node is not None:
                    own.remove(node)
                    if self._key(at) not in self.draft.origins:
                        found[at] = node
        return found

    def _takes(self, node: Node, line: Line) -> bool:
        """Whether a node's operands can be those of a call: of such sizes, and the same inputs of the graph."""
        for argument, operand in zip(line.arguments, self._operands(node), strict=False):
            own, given = operand.strides, self.strides_of(argument)
            if own is not None and given is not None and not affine.same_sizes(own, given):
                return False
            is_input = argument.buffer in self.generated.inputs
            if is_input and self.behind_views(operand, VIEWS | COPYING).name != argument.buffer:
                return False
        return True

    def _operands(self, node: Node) -> list[Node]:
        """The tensors among a node's arguments."""
        return [found for name in node.arguments if (found := self.draft.nodes[name]).strides is not None]

    def _nodes_of(self, at: int) -> tuple[Node, ...]:
        """The nodes that a line computes; none where that is in doubt."""
        nodes, line = self.draft.nodes, self.lines[at]
        names = self.draft.origins.get(self._key(at))
        if names is not None:
            order = {name: place for place, name in enumerate(nodes)}
            return tuple(nodes[name] for name in sorted(set(names) & order.keys(), key=order.__getitem__))
        if line.kind == "extern":
            return ()
        by_operator: dict[str, list[Node]] = {}
        for node in nodes.values():
            by_operator.setdefault(operator_of(node), []).append(node)
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

    def names_in(self, line: Line) -> dict[str, str]:
        """What names in a kernel's indices stand for: dynamic sizes, and variables for several dimensions at once."""
        kernel = self.generated.kernels[line.name]
        given = dict(zip(kernel.parameters, line.values, strict=False)) if kernel.parameters else {}
        sizes = {name: value for name, value in given.items() if name.startswith("ks")}
        return {**kernel_source.flat_variables(kernel.source), **sizes}

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
        names = self._aliases(buffer)
        takers: list[int] = []
        for number in range(at + 1, len(self.lines)):
            line = self.lines[number]
            if names & self._read_by(line):
                takers.append(number)
            if names & (self.written(line) | set(line.results)):  # another tensor from here on
                break
        best = next((taker for taker in takers if self.lines[taker].kind == "extern"), next(iter(takers), None))
        if best is not None:
            return best, self.lines[best].name
        return None, "output" if any(output.buffer in names for output in self.generated.outputs) else None

    def _read_by(self, line: Line) -> set[str]:
        """The buffers that a line reads."""
        if line.kind == "extern":
            return {argument.buffer for argument in line.arguments} - set(line.results)
        handed = self.handed(line).items()
        return {argument.buffer for pointer, argument in handed if not pointer.startswith("out_ptr")}

    def _aliases(self, buffer: str) -> set[str]:
        """The names of a buffer's memory, of which later ones are other tensors where it is used again."""
        names = {buffer}
        while more := {new for new, old in self.generated.reused.items() if old in names} - names:
            names |= more
        return names

    # ------------------------------------------------------------------------------------------------ buffers and nodes

    def operand(self, consumer: int | None, buffer: str) -> Node | None:
        """The node in the graph that a library's call, or without one the program's caller, gets in a buffer."""
        if consumer is None:
            given = [each for each in self.generated.outputs if self.strides_of(each) is not None]
            nodes = [self.draft.nodes.get(name) for name in self.draft.results]
            taken = [node for node in nodes if node is not None and node.strides is not None]
            if len(taken) != len(given):  # numbers among them are left out on both sides
                return None
        else:
            given = list(self.lines[consumer].arguments)
            call = self.call(consumer)
            taken = self._operands(call) if call is not None else []
        names = self._aliases(buffer)
        for argument, node in zip(given, taken, strict=False):
            if argument.buffer in names:
                sizes = self.strides_of(argument)
                is_it = node.strides is None or sizes is None or affine.same_sizes(node.strides, sizes)
                return node if is_it else None
        return None

    def call(self, at: int) -> Node | None:
        """The node that a library's call is."""
        name = called_by(self.lines[at].name)
        return next((node for node in self.nodes[at] if operator_of(node) == name), None)

    def behind_views(self, node: Node, through: Collection[str] = VIEWS) -> Node:
        """The node whose values a node is another view of."""
        while operator_of(node) in through and node.arguments:
            node = self.draft.nodes[node.arguments[0]]
        return node

    def held(self, at: int, buffer: str) -> Node | None:
        """The node whose value a buffer has before a line; None for what a kernel made."""
        if buffer in self.generated.inputs:
            return self.draft.nodes.get(buffer)
        for number in reversed(range(at)):
            if buffer in self.lines[number].results:
                return self.call(number)
            if buffer in self.written(self.lines[number]):
                return None
        older = self.generated.reused.get(buffer)
        return self.held(at, older) if older is not None else None


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
