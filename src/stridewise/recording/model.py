"""The call log: what the recorder writes beside the trace. No torch.

A recording is a Chrome trace as torch's profiler writes it, with one more top-level key, `stridewise`: the
call log. It is put there after the profiler has written the file: its own `add_metadata_json` loses what comes after
the stop, and breaks the file on torch 2.6 if the value holds quotes.
"""

import msgspec
from msgspec import Raw, Struct

from stridewise.findings import Site
from stridewise.layout import Layout

LOG_KEY = "stridewise"
LOG_VERSION = 1

MARK = "stridewise:"
"""Prefix of the recorder's own annotations in a trace: `stridewise:12` is call 12. The reader never counts them."""
MODULE_MARK = MARK + "module:"
BEGIN_MARK = MARK + "begin"
"""The recording was started on purpose at the start of a step."""
STEP_MARK = MARK + "step"
"""The program said that a step ends here."""
LAST_MARK = MARK + "last"
"""The recording was ended on purpose at the end of a step: what follows the last `step()` belongs to that step."""
OPTIMIZER_MARK = MARK + "optimizer:"
"""`step()` of the optimizer with this number has ended."""

END_MARK = MARK + "end"
"""The log was full: what the profiler saw after this, until it could be stopped, is not part of the recording."""

COMPILED = "compiled region"
"""The function name that a call of a `torch.compile`d callable has."""
SCRIPTED = "TorchScript::"
"""How the function names of calls of scripted and traced functions and methods begin."""


class LayoutRow(Struct, frozen=True, array_like=True, gc=False):
    """A strided tensor's layout, dtype and device."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    device: str

    @property
    def layout(self) -> Layout:
        """The layout alone, as the algebra takes it."""
        return Layout(self.sizes, self.strides, self.offset)


class TensorRef(Struct, frozen=True, array_like=True, gc=False):
    """A tensor as it was when a call saw it. The numbers name things; -1 is unknown."""

    object: int
    layout: int
    storage: int
    version: int


class SiteRow(Struct, frozen=True, array_like=True):
    """An expression, or (a `via`) a line inside torch."""

    file: str
    function: str
    line: int | None
    end_line: int | None
    column: int | None
    end_column: int | None
    expression: str | None
    text: str | None

    def to_site(self, via: str | None = None) -> Site:
        """The same as findings have it."""
        return Site(
            file=self.file,
            line=self.line,
            column=self.column,
            end_line=self.end_line,
            end_column=self.end_column,
            function=self.function,
            expression=self.expression,
            via=via,
            text=self.text,
        )


class CallRow(Struct, array_like=True):
    """One call that the program made of a function of torch."""

    index: int
    site: int
    via: int
    function: int
    module_call: int
    inputs: list[int]
    outputs: list[int]
    autocast: int = -1
    """The innermost region of autocast that it was made in; -1: in none."""


class AutocastRow(Struct, frozen=True, array_like=True):
    """One entry of a region of autocast, and the state of autocast in it."""

    parent: int
    """The region that it was entered in; -1: in none."""
    site: int
    via: int
    device: str
    dtype: str
    enabled: bool
    cache: bool
    """Casts of weights are kept until the outermost region ends."""
    before: bool = False
    """It was entered before the recording began."""


class ModuleCallRow(Struct, array_like=True):
    """One call of an `nn.Module`: the tensors in its arguments and results, each with its path."""

    index: int
    module: int
    parent: int
    inputs: list[tuple[str, int]]
    outputs: list[tuple[str, int]]


class CallLog(Struct):
    """What the recorder wrote beside the trace. Rows refer to each other by position."""

    version: int = LOG_VERSION
    sites: list[SiteRow] = []
    functions: list[str] = []
    modules: list[tuple[str, str]] = []
    """Path and type."""
    layouts: list[LayoutRow] = []
    refs: list[TensorRef] = []
    names: dict[int, str] = {}
    """What a tensor object is to the model: ``parameter `fc.weight` ``."""
    calls: list[CallRow] = []
    module_calls: list[ModuleCallRow] = []
    autocast: list[AutocastRow] | None = None
    """In the order in which they were entered; None: not recorded, as by earlier versions."""
    library_log: str | None = None
    """oneDNN's verbose lines, if they were asked for."""
    library_ranges: list[tuple[int, int, int]] = []
    """Which bytes of it were written during which call: call, first, end."""
    notes: list[str] = []
    environment: dict[str, str] = {}
    warmup: int = 0
    """How many of the first steps only warm the program up: they are recorded, but are not steps of the report."""
    limit: int | None = None
    """How many of the steps after those were asked for."""
    module_step: str | None = None
    """A module's path or class, if its calls are to tell steps apart."""
    weightless: list[int] = []
    """The root modules without parameters: transforms, losses. Their calls are steps only if no other's are."""
    of_torch: list[int] | None = None
    """Modules whose classes are torch's own; None: not recorded, as by earlier versions."""
    cut: bool = False
    """It ended where the program did not want it to: the last step may not be whole."""
    apart: list[int] = []
    """Threads, as the trace numbers them, whose work is no part of the recording."""

    def check(self) -> None:
        """Raise IndexError if a row refers to one that is not there."""
        tables = [len(self.sites), len(self.functions), len(self.refs), len(self.layouts), len(self.modules)]
        sites, functions, refs, layouts, modules = tables
        module_calls, regions = len(self.module_calls), len(self.autocast or ())
        good = all(-1 <= ref.layout < layouts for ref in self.refs) and self.warmup >= 0 and (self.limit or 1) > 0
        for at in self.layouts:
            good &= len(at.sizes) == len(at.strides) and min((0, at.offset, *at.sizes, *at.strides)) >= 0
        for row in self.calls:
            good &= max(row.site, row.via) < sites and 0 <= row.function < functions and row.module_call < module_calls
            good &= min(row.site, row.via, row.module_call, row.autocast) >= -1 and row.autocast < regions
            good &= all(0 <= ref < refs for ref in row.inputs) and all(0 <= ref < refs for ref in row.outputs)
        for position, call in enumerate(self.module_calls):
            good &= 0 <= call.module < modules and -1 <= call.parent < position  # so that parents form no circle
            good &= all(0 <= ref < refs for _, ref in call.inputs) and all(0 <= ref < refs for _, ref in call.outputs)
        for position, region in enumerate(self.autocast or ()):
            good &= -1 <= region.parent < position and min(region.site, region.via) >= -1
            good &= max(region.site, region.via) < sites
        if not good:
            raise IndexError("its call log refers to rows that are not there")


def with_log(trace: bytes, log: CallLog) -> bytes:
    """The trace's text with the log as one more top-level key."""
    body = trace.rstrip()
    if not body.endswith(b"}"):
        raise ValueError("the profiler's trace is no JSON object")
    return b'%s,"%s":%s}' % (body[:-1].rstrip(), LOG_KEY.encode(), msgspec.json.encode(log))


class _Version(Struct):
    version: int


def decode_log(text: Raw) -> CallLog:
    """The log from the trace's text. Raises ValueError if it is none, or of a later version."""
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version > LOG_VERSION:
            raise ValueError(f"its call log has version {version}, and this stridewise reads up to {LOG_VERSION}")
        return msgspec.json.decode(text, type=CallLog)
    except msgspec.DecodeError as error:
        raise ValueError(f"its call log can't be decoded ({error})") from None
