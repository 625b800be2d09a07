"""Where operators ran that no call log knows of: by the Python frames and annotations around them."""

import os
import re
import sys
from functools import lru_cache

import msgspec

from stridewise.analysis.source_tree import SourceTree
from stridewise.findings import Site
from stridewise.recording.filenames import public_place
from stridewise.recording.nvtx import step_kind
from stridewise.recording.trace import Trace

_FRAME = re.compile(r"(.+)\((\d{1,9})\): (.+)", re.DOTALL)
_MODULE = "nn.Module: "
_LONGEST_PATH = 2000
"""Characters of a module's path that are kept: its end tells more."""
_TORCH = re.compile(r"(?:^|[/\\])(?:torch|triton|torchgen|functorch|stridewise)[/\\]")
_WRAPPERS = re.compile(r"torch[/\\](?:overrides|utils[/\\](?:_device|_contextlib)|nn[/\\]modules[/\\]module)\.py$")
"""Files of torch whose functions stand around others and say nothing of them."""
_STANDARD = re.compile(r"(?:^|[/\\])lib[/\\]python3\.\d+[/\\](?!site-packages|dist-packages)")
_GENERATED = re.compile(r"<|(?:^|[/\\])(?:torchinductor_|\.?triton[/\\]cache)|(?:^|[/\\])torch_compile_debug[/\\]")


class Places:
    """Sites for a trace without a call log.

    The profiler's `with_stack` names Python functions with the line on which each begins, so a site is a function,
    not an expression. `nn.Module` frames are numbered by class: `Encoder_0.Layer_3.Linear_1`.
    """

    def __init__(self, trace: Trace, sources: SourceTree | None = None) -> None:
        self.trace = trace
        self._sources = sources
        self._of_op: dict[int, Site | None] = {}
        self._of_span: dict[int, Site | None] = {-1: None}
        self._inside: dict[tuple[int, str], Site | None] = {}
        """Sites by the site around them, which `_of_span` keeps alive, and the frame: equal layers share them."""

    def of_op(self, op: int) -> Site | None:
        """Where an operator was called; None where the trace tells nothing of it."""
        if op < 0:
            return None
        if op not in self._of_op:
            ops = self.trace.ops
            self._of_op[op] = self.at(ops.thread[op], ops.start_ns[op]) or self._of_call_stack(op)
        return self._of_op[op]

    def at(self, thread: int, at_ns: int) -> Site | None:
        """What Python ran on a thread at a moment."""
        frames, known = self.trace.frames, self._of_span
        if thread < 0 or not len(frames):
            return None
        span = frames.innermost(thread, at_ns)
        above = []
        while span not in known:
            above.append(span)
            span = frames.parent(span)
        site = known[span]
        for span in reversed(above):
            frame = frames.text(span)
            key = (id(site), frame)
            if key not in self._inside:
                self._inside[key] = self._with_text(within(site, frame), frame)
            site = known[span] = self._inside[key]
        return site

    def within_node(self, op: int, node: int) -> Site | None:
        """What Python ran between a backward node and an operator in it: recomputed modules, hooks, own functions."""
        ops, frames = self.trace.ops, self.trace.frames
        if op < 0 or not len(frames):
            return None
        span = frames.innermost(ops.thread[op], ops.start_ns[op])
        return self.of_op(op) if span >= 0 and frames.start_ns(span) >= ops.start_ns[node] else None

    def range_at(self, thread: int, at_ns: int) -> str | None:
        """The innermost annotation of the program around a moment."""
        ranges = self.trace.ranges
        if thread < 0 or not len(ranges):
            return None
        span = ranges.innermost(thread, at_ns)
        while span >= 0 and _numbers_steps(ranges.text(span)):
            span = ranges.parent(span)
        return ranges.text(span) if span >= 0 else None

    def _of_call_stack(self, op: int) -> Site | None:
        """The frames that torch wrote to operators themselves before 1.12: these have the line of the call."""
        stacks = (self.trace.ops.args[outer].call_stack for outer in self.trace.ops.around(op))
        stack = next(filter(None, stacks), "")
        site: Site | None = None
        for frame in reversed(stack.split(";")):
            site = self._with_text(within(site, frame), frame)
        return site

    def _with_text(self, site: Site | None, frame: str) -> Site | None:
        """With its line, if the frame is what the site is at: the file's full name is in the frame alone."""
        kind, file, line, _ = _parsed(frame)
        if site is None or kind != "program" or self._sources is None:
            return site
        return msgspec.structs.replace(site, text=self._sources.line(file, line))


def within(site: Site | None, frame: str) -> Site | None:
    """The site inside a frame that lies within another site: the nearest function outside torch and Python's own."""
    kind, file, line, function = _parsed(frame)
    around = site or Site()
    if kind == "module":
        module = f"{around.module}.{function}" if around.module else function
        return msgspec.structs.replace(around, module=module[-_LONGEST_PATH:])
    if kind == "torch":
        return msgspec.structs.replace(around, via=f"{_public(file, line)[0]}:{line} in {function}")
    if kind == "program":
        file, shown = _public(file, line)
        return Site(file=file, line=shown, function=function, module=around.module)
    return site


@lru_cache(1000)
def _numbers_steps(name: str) -> bool:
    """Whether a range is one of many steps, which would make a row of each."""
    return step_kind(name) is not None


@lru_cache(10_000)
def _parsed(frame: str) -> tuple[str, str, int, str]:
    """What a frame is, with its file, line and function: `program`, `torch`, `module`, or nothing to speak of."""
    if frame.startswith(_MODULE):
        return "module", "", 0, frame.removeprefix(_MODULE)
    found = _FRAME.fullmatch(frame)
    if found is None or _WRAPPERS.search(found[1]):
        return "", "", 0, ""
    kind = "torch" if _TORCH.search(found[1]) else "" if _is_library(found[1]) else "program"
    return kind, found[1], int(found[2]), found[3]


def _public(file: str, line: int) -> tuple[str, int | None]:
    return public_place(file, line) if os.path.isabs(file) else (file, line)


def _is_library(file: str) -> bool:
    """Whether a file belongs to Python itself, or was generated."""
    if _GENERATED.match(file) or _GENERATED.search(file) or _STANDARD.search(file):
        return True
    first = re.split(r"[/\\]", file, maxsplit=1)[0]
    return first.removesuffix(".py") in sys.stdlib_module_names  # the profiler takes off what is on `sys.path`
