"""From the code of one graph to what it runs, what it copies, and for whom. No torch."""

from collections.abc import Sequence

from msgspec.structs import replace

from stridewise.compiled import affine
from stridewise.compiled.graph_text import Node
from stridewise.compiled.kernel_source import Moved
from stridewise.compiled.lines import COPYING, VIEWS, Draft, Lines, called_by, operator_of
from stridewise.compiled.output_code import Argument, Line
from stridewise.compiled.stacks import site_of
from stridewise.findings import Site
from stridewise.results.compiled import Cause, Chosen, Copied, Graph, Launch, Strides


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
        found = []
        taken: set[str] = set()
        for pointer, moved in rows:
            source, target = handed[moved.source], handed[pointer]
            if self.is_part(target):  # of a concatenation, say, which has to be written in any case
                continue
            consumer, feeds = self.feeds(at, target.buffer)
            written = self.strides_of(target)
            read = self._read_as(line, source, written, moved)
            clone = self._clone(at, source, target, read, consumer, taken)
            if clone is not None:
                taken.add(clone.name)
                read = read or self._read_through(clone, self.held(at, source.buffer))
            read = read or self.strides_of(source)
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
                    cause="source" if clone is not None else self._cause(consumer, feeds),
                    site=self._site_of_copy(at, clone, consumer),
                )
            )
        return found

    def _cause(self, consumer: int | None, feeds: str | None) -> Cause:
        """Why there is a copy that the program did not ask for."""
        if consumer is None:  # a result has the strides that it has in eager mode
            return "required" if feeds == "output" else "other"
        return "required" if self.lines[consumer].kind == "extern" else "other"

    def _read_as(self, line: Line, source: Argument, written: Strides | None, moved: Moved) -> Strides | None:
        """How a kernel's index reads what it writes so; None where that can't be told."""
        if written is None:
            return None
        strides = affine.read_through(written, moved.read, moved.written, self.names_in(line))
        own = self.strides_of(source)
        dtype = own.dtype if own is not None else None
        return Strides(written.sizes, strides, dtype) if strides is not None else None

    def _clone(
        self, at: int, source: Argument, target: Argument, read: Strides | None, consumer: int | None, taken: set[str]
    ) -> Node | None:
        """The node of the graph that a copy is, if it is one that copies.

        What takes the copy tells: behind the views of its operand is such a node, or none. Else it is one that copies
        the same tensor, from such strides to such strides; of several of a kernel that are alike in this, one that is
        not `taken` by another copy.
        """
        written = self.strides_of(target)
        if written is None:
            return None
        is_last = consumer is None or self.lines[consumer].kind == "extern"
        operand = self.operand(consumer, target.buffer) if is_last else None
        if operand is not None:
            behind = self.behind_views(operand)
            return behind if _gives(behind, written) else None
        is_known = self._key(at) in self.draft.origins
        alike = [node for node in (self.nodes[at] if is_known else self.draft.nodes.values()) if _gives(node, written)]
        held = self.held(at, source.buffer)
        if held is not None:
            alike = [node for node in alike if self.behind_views(node, VIEWS | COPYING) == held]
        alike = [node for node in alike if read is not None and self._reads(node, read)] or alike
        alike = [node for node in alike if node.strides and not affine.differ(node.strides, written)] or alike
        if not is_known:
            return alike[0] if len(alike) == 1 else None
        return next((node for node in alike if node.name not in taken), alike[-1] if alike else None)

    def _reads(self, clone: Node, read: Strides) -> bool:
        own = self.draft.nodes[clone.arguments[0]].strides if clone.arguments else None
        return own is not None and affine.same_sizes(own, read) and not affine.differ(own, read)

    def _read_through(self, clone: Node, held: Node | None) -> Strides | None:
        """What a clone reads, as the graph has it: behind views alone of what the kernel is given."""
        if held is None or not clone.arguments:
            return None
        own = self.draft.nodes[clone.arguments[0]]
        return own.strides if self.behind_views(own) == held else None

    def _is_of_call(self, clone: Node, consumer: int) -> bool:
        """Whether a clone is a part of the call that takes it: `@` expands its operands and clones that."""
        call = self.call(consumer)
        source = self.draft.nodes[clone.arguments[0]] if clone.arguments else clone
        return call is not None and clone.place == call.place == source.place and operator_of(source) == "expand"

    def _site_of_copy(self, at: int, clone: Node | None, consumer: int | None) -> Site | None:
        """Where the program asks for a copy; else where the call is that takes it."""
        node = clone
        if node is None:
            node = self.call(consumer) if consumer is not None else next(iter(self.nodes[at]), None)
        sites = (*self.sites(at), *(self.sites(consumer) if consumer is not None else ()))
        if node is None or node.place is None:
            found = next(iter(sites), None)
        elif clone is not None and consumer is not None and self._is_of_call(clone, consumer):
            found = site_of(node.place, self.sites(consumer))
        else:
            alike = [each for each in self.nodes[at] if operator_of(each) in COPYING and each.place == node.place]
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


def _gives(node: Node, written: Strides) -> bool:
    """Whether a node copies, to these sizes; the compiler lays out its result as it likes."""
    return operator_of(node) in COPYING and node.strides is not None and affine.same_sizes(node.strides, written)
