"""What torch.compile made of a program: graphs, their kernels and library calls, and the copies between them."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from stridewise.findings import Finding, Site
from stridewise.results.schema import SCHEMA_VERSION

Phase = Literal["inference", "forward", "backward"]
Cause = Literal["required", "source", "other"]
"""Why a generated kernel copies: a library call takes the tensor in another layout only, or the layout optimization
wants it so (`required`); a call in the source asks for it (`source`)."""
Change = Literal["reorder", "pack", "unpack", "materialize", "none"]
"""`none`: a copy of the same layout, which nobody would miss."""
ArmName = Literal["eager", "compiled", "layout optimization off", "layout optimization forced on"]


class Strides(Struct, frozen=True):
    """Sizes and strides as the generated code has them: numbers, or for dynamic shapes expressions such as `s0`."""

    sizes: tuple[int | str, ...]
    strides: tuple[int | str, ...]
    dtype: str | None = None

    def __str__(self) -> str:
        return f"{_tuple(self.sizes)} with strides {_tuple(self.strides)}"


class Launch(Struct, frozen=True):
    """A line of a graph's code that runs something: a generated kernel, or a function of a library."""

    kind: Literal["kernel", "extern"]
    name: str
    """`cpp_fused_relu_0`, `extern_kernels.convolution`, `aten.sort.default`."""
    line: int
    """In the graph's output code, from 1."""
    code: str
    """That line."""
    copies: int
    """Of what a generated kernel writes, how many tensors are only copies of others."""
    only_copies: bool
    """It computes nothing."""
    sites: tuple[Site, ...]
    """The expressions of the program that it came from, the innermost call of each first."""


class Copied(Struct, frozen=True):
    """A tensor that a generated kernel only copies."""

    kernel: str
    line: int
    """Of the launch, in the graph's output code."""
    code: str
    statement: str | None
    """In the kernel's source: the statement that writes the copy."""
    source: str
    """What is copied: `` input `x` ``, `` parameter `conv.weight` ``, `extern_kernels.convolution`."""
    read: Strides | None
    written: Strides | None
    change: Change | None
    """None if it can't be told from the code."""
    bytes_moved: int | None
    """Bytes read and written in one call of the graph; None where sizes are dynamic."""
    feeds: str | None
    """The library call that takes the copy, `output`, or the kernel that does."""
    feeds_extern: bool
    cause: Cause
    site: Site | None


class Chosen(Struct, frozen=True):
    """An operand of a library call whose strides are not those that it has in eager mode."""

    extern: str
    line: int
    operand: str
    eager: Strides
    compiled: Strides
    why: str
    site: Site | None


class Graph(Struct, frozen=True):
    """One graph that was compiled."""

    id: str
    """`0/0`: the frame, and which compilation of it."""
    phase: Phase
    function: Site
    """The function of the program whose frame it is, or the resumed rest of one."""
    kernels: int
    """Launches of generated kernels in one call."""
    externs: int
    """Library calls in one call."""
    copies: int
    """Tensors that kernels only copy."""
    bytes_moved: int | None
    """By these."""
    launches: tuple[Launch, ...]
    copied: tuple[Copied, ...]
    chosen: tuple[Chosen, ...]
    breaks: int
    """Graph breaks in this frame."""
    language: str | None
    """Of the generated kernels: `C++`, `Triton`; None if there are none."""

    @property
    def frame(self) -> str:
        """Of its id the frame: one call runs one of the compilations of a frame."""
        return self.id.partition("/")[0]


class Recompile(Struct, frozen=True):
    """A function was compiled again because a guard failed."""

    id: str
    function: Site
    reason: str
    about_strides: bool
    tensor: str | None
    """The input whose stride it was."""


class Break(Struct, frozen=True):
    """A place where a graph ends, because the compiler can't follow."""

    id: str
    reason: str
    site: Site
    layout_call: str | None
    """What the program asks there of a tensor's layout, such as `is_contiguous`."""


class Output(Struct, frozen=True):
    """A result, in eager mode and compiled."""

    name: str
    """`output`, `output[0].logits`, `` gradient of `x` ``."""
    eager: Strides
    compiled: Strides
    same: bool
    """But for the strides of dimensions of size 1 and 0."""


class Arm(Struct, frozen=True):
    """One way to run the program, against eager mode in the same process, in turn."""

    name: ArmName
    ratio: float | None
    """Of its time to that of the first arm; None if it was not timed."""
    low: float | None
    high: float | None
    """The bounds that hold it with 95 % confidence."""
    kernels: int | None
    externs: int | None
    copies: int | None
    peak_bytes: int | None
    """The most memory that one call allocates at a time, of a device on that device."""
    failed: str | None = None
    """What it raised, or why it has no time."""

    @property
    def is_untimed(self) -> bool:
        """There was no time left for it."""
        return self.failed is None and self.ratio is None


class Trial(Struct, frozen=True):
    """A layout call of the source, compiled with and without it."""

    call: str
    """`contiguous`, `permute`, …"""
    site: Site
    without: str
    """What stood in its place: `removed`, or for a permute `a view of the same sizes in its place`."""
    kernels: tuple[int, int]
    """With and without."""
    copies: tuple[int, int]
    externs: tuple[int, int]
    bytes_moved: tuple[int | None, int | None]
    output_strides_change: bool
    failed: str | None = None
    """Without it, the graph raises this, or gives other values: it is needed."""
    new_externs: tuple[str, ...] = ()
    """Library functions that are called only without it."""


class Compiled(Struct, frozen=True):
    """What torch.compile did to the layouts of a program."""

    findings: tuple[Finding, ...]
    graphs: tuple[Graph, ...]
    recompiles: tuple[Recompile, ...]
    breaks: tuple[Break, ...]
    outputs: tuple[Output, ...]
    arms: tuple[Arm, ...]
    trials: tuple[Trial, ...]
    missing: tuple[str, ...]
    """What this version of torch does not tell, and what that leaves out."""
    notes: tuple[str, ...]
    environment: dict[str, str]
    code: dict[str, str] = {}
    """The generated code of each graph, by `id phase`."""
    schema_version: int = SCHEMA_VERSION

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)


def of_one_call(graphs: Iterable[Graph]) -> tuple[Graph, ...]:
    """The graphs that one call runs at most: of each frame and phase the compilation that copies most."""
    most: dict[tuple[str, str], Graph] = {}
    for graph in graphs:
        known = most.setdefault((graph.frame, graph.phase), graph)
        if (graph.copies, graph.bytes_moved or 0) > (known.copies, known.bytes_moved or 0):
            most[graph.frame, graph.phase] = graph
    return tuple(most.values())


def _tuple(numbers: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, numbers))}{',' if len(numbers) == 1 else ''})"
