"""From the code of one graph to what it runs, what it copies, and for whom. No torch."""

from collections.abc import Sequence

from msgspec.structs import replace

from stridewise.compiled import affine
from stridewise.compiled.graph_text import Node
from stridewise.compiled.lines import Draft, Lines, called_by, operator_of
from stridewise.compiled.output_code import Argument
from stridewise.compiled.stacks import site_of
from stridewise.findings import Site
from stridewise.results.compiled import Cause, Chosen, Copied, Graph, Launch, Strides

_COPYING = ("clone", "_to_copy", "contiguous", "copy", "reshape")


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


class _Reader(Lines):
    """What a graph's lines copy, and what they chose."""

    # ---------------------------------------------------------------------------------------------- lines and nodes

    def launch(self, at: int, copied: Sequence[Copied]) -> Launch:
        """A line that runs something."""
        line = self.lines[at]
        own = [each for each in copied if each.line == line.number]
        moves = self.moves_of(line)
        only = bool(moves) and all(moved is not None for moved in moves.values())
        return Launch(line.kind, line.name, line.number, line.code, len(own), only, self.sites(at))

    # ------------------------------------------------------------------------------------------------------- copies

    def copied(self, at: int) -> list[Copied]:
        """What a kernel only copies, one row for each tensor that it writes so."""
        line = self.lines[at]
        moves = {name: moved for name, moved in self.moves_of(line).items() if moved is not None}
        handed = self.handed(line) if moves else {}
        rows = [(name, moved) for name, moved in sorted(moves.items()) if {name, moved.source} <= handed.keys()]
        clones = [node for node in self.nodes[at] if operator_of(node) in _COPYING]
        found = []
        taken: dict[object, list[str]] = {}
        for pointer, moved in rows:
            source, target = handed[moved.source], handed[pointer]
            if self.is_part(target):  # of a concatenation, say, which has to be written in any case
                continue
            consumer, feeds = self.feeds(at, target.buffer)
            written = self.strides_of(target)
            own = [clone for clone in clones if written is not None and _sizes(clone) == written.sizes]
            cause = self._cause(consumer, feeds, own)
            node = self._node_of_copy(at, taken.setdefault(written and written.sizes, []), own, consumer, cause)
            read = self._read_through(node, cause) or self.strides_of(source)
            found.append(
                Copied(
                    kernel=line.name,
                    line=line.number,
                    code=line.code,
                    statement=moved.statement,
                    source=self.producer(at, source.buffer),
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
            name = called_by(self.lines[consumer].name)
            return next((node for node in self.nodes[consumer] if operator_of(node) == name), None)
        return next(iter(self.nodes[at]), None)

    def _read_through(self, node: Node | None, cause: Cause) -> Strides | None:
        """What a clone reads, as the graph has it: behind permutes that the code does not show."""
        if cause != "source" or node is None or not node.arguments:
            return None
        return self.draft.nodes[node.arguments[0]].strides

    def _site_of_copy(self, at: int, node: Node | None, clones: Sequence[Node], consumer: int | None) -> Site | None:
        sites = (*self.sites(at), *(self.sites(consumer) if consumer is not None else ()))
        if node is None or node.place is None:
            found = next(iter(sites), None)
        else:
            alike = [clone for clone in clones if clone.place == node.place]
            found = site_of(node.place, sites, alike.index(node) if node in alike else 0)
        module = self.module_of(consumer) if consumer is not None else None
        if module is None:
            return found
        return replace(found, module=module) if found is not None else Site(module=module)

    # -------------------------------------------------------------------------------------------- layouts that it chose

    def chosen(self, at: int) -> list[Chosen]:
        """The operands of a library's call whose strides are others than those of eager mode."""
        line = self.lines[at]
        if line.kind != "extern":
            return []
        earlier = [self.lines[before].name for before in range(at)].count(line.name)
        alike = [node for node in self.draft.nodes.values() if operator_of(node) == called_by(line.name)]
        own = [node for node in self.nodes[at] if operator_of(node) == called_by(line.name)]
        node = own[0] if len(own) == 1 else alike[earlier] if earlier < len(alike) else None
        if node is None:
            return []
        eager = [self.draft.nodes[name].strides for name in node.arguments if self.draft.nodes[name].strides]
        given = [strides for argument in line.arguments if (strides := self.strides_of(argument)) is not None]
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
                    site=site_of(node.place, self.sites(at)),
                )
            )
        return found

    def _why(self, at: int, argument: Argument) -> str:
        for line in reversed(self.lines[:at]):
            if argument.buffer in self.written(line):
                moves, handed = self.moves_of(line), self.handed(line)
                pure = any(
                    moves[name] is not None and handed[name].buffer == argument.buffer
                    for name in moves
                    if name in handed
                )
                return f"{line.name} copies it" if pure else f"{line.name} writes it so"
        return f"{self.producer(at, argument.buffer)} lies so"


def _sizes(node: Node) -> tuple[int | str, ...] | None:
    return node.strides.sizes if node.strides is not None else None
