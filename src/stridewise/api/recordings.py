"""Recordings, and what they say."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from stridewise import report, results
from stridewise.analysis import analyze_trace, annotate_trace
from stridewise.analysis.notes import INSIDE_COMPILED
from stridewise.api.codes import wanted_codes
from stridewise.api.compiled import Compiled, watched
from stridewise.api.shown import Shown, written
from stridewise.config import project_root
from stridewise.errors import UsageError
from stridewise.recording.handle import Recording

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.recorder.live import Recorder
    from stridewise.recording.arrow import ArrowTables


MIN_SHARE = 0.001
"""Of a step: findings below it fold into one line."""


class Report(Shown, results.Report, frozen=True):
    """A report that shows itself: as text where it is printed, as JSON where that is asked for."""

    def _render(self, out: TextIO) -> None:
        report.render(self, "text", out)

    def to_json(self, *, tables: Collection[report.Table] = ()) -> str:
        """The report as `stridewise trace --format json` prints it, with the tables that are asked for."""
        return written(lambda out: report.render(self, "json", out, tables=tables))


def record(*, library_copies: bool = False, max_ops: int = 200_000) -> Recorder:
    """Record what the body of a `with` block does with tensors; it yields the Recording, to use after the block.

    `library_copies` also records the copies inside oneDNN, whose verbose output slows the run. After about `max_ops`
    operators recording ends and the program goes on. Raises NestedRecording inside another recording or profiler.
    Nothing of the program is changed: its results, exceptions, output and memory are as without.
    """
    from stridewise.recorder import live

    return live.record(library_copies=library_copies, max_ops=max_ops)


def step() -> None:
    """Say that a step of the program ends here. Does nothing while nothing is recorded.

    It overrides the steps that stridewise would find by itself: those of an optimizer, else of the model's calls.
    """
    from stridewise.recorder import live

    live.step()


def load(path: str | os.PathLike[str]) -> Recording:
    """Read a recording or a trace from a file. Raises InputError if it can't be read as one."""
    return Recording.load(path)


def analyze(
    source: Recording | str | os.PathLike[str],
    *,
    min_share: float = MIN_SHARE,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    kernel_patterns: Mapping[str, str] | None = None,
    source_root: str | os.PathLike[str] | None = None,
    paths: bool = False,
    timeline: bool = True,
) -> Report:
    """What a recording, or the file or URL of one, says. Needs no torch.

    A file is a recording, a trace of torch.profiler, an SQLite export of Nsight Systems, or a log of oneDNN. `select`
    and `ignore` are codes or their beginnings. `kernel_patterns` are regular expressions for names of kernels that
    change layout, each with its cause (`stridewise.results.Cause`). Source lines that the recording does not hold are
    read from Python files below `source_root`: the project, unless set. `paths` fills `Report.paths`, which says what
    implementation ran each operator; without `timeline`, which takes two fifths of the time, the page of a report has
    no map of the step. Raises InputError if a file can't be read.
    """
    select, ignore = wanted_codes(select, ignore)
    if not isinstance(source, (Recording, str, os.PathLike)):
        raise UsageError(f"analyze() was given {type(source).__name__}.", expected="Expected: a recording, or a file.")
    recording = source if isinstance(source, Recording) else Recording.load(source)
    found = analyze_trace(
        recording.trace,
        min_share=min_share,
        select=select,
        ignore=ignore,
        kernel_patterns=kernel_patterns,
        source_root=Path(source_root) if source_root is not None else project_root(),
        paths=paths,
        timeline=timeline,
    )
    return Report(*msgspec.structs.astuple(found))


def annotate(
    source: Recording | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    kernel_patterns: Mapping[str, str] | None = None,
    source_root: str | os.PathLike[str] | None = None,
) -> None:
    """Write a recording or trace to a file, with its layout copies and their origins marked, to open in Perfetto.

    The marks stand under a process of their own. Metadata that tells of the machine stay out. Raises InputError if the
    source is no trace of the profiler, or the file can't be written.
    """
    recording = source if isinstance(source, Recording) else Recording.load(source)
    marks = annotate_trace(
        recording.trace,
        min_share=MIN_SHARE,
        kernel_patterns=kernel_patterns,
        source_root=Path(source_root) if source_root is not None else project_root(),
    )
    recording.save(path, marks)


def _tables(recording: Recording) -> ArrowTables:
    from stridewise.analysis.arrow import tables

    return tables(recording.trace, min_share=MIN_SHARE, source_root=project_root())


Recording.tables = _tables


def run_script(
    argv: list[str],
    *,
    module: bool = False,
    steps: int = 3,
    warmup: int = 2,
    module_step: str | None = None,
    save: Path | None = None,
    library_copies: bool = False,
    max_ops: int = 200_000,
    min_share: float = MIN_SHARE,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    kernel_patterns: Mapping[str, str] | None = None,
    paths: bool = False,
    timeline: bool = True,
    compiled: bool = False,
) -> results.ScriptOutcome:
    """Run a script with its arguments as `python` would, in this process, and report on a few of its steps.

    With `module` the first of `argv` is a module's name, as after `python -m`. Recording begins when the script has
    imported torch and ends when `warmup` and then `steps` steps are over; `module_step` is the class, or the path in
    the model, of the module whose calls are the steps. `save` is written when recording ends. With `compiled` what
    torch.compile does in the whole run is told too; nothing is taken from its caches then. The script's output, its
    traceback and its exit code are its own. Raises UsageError or InputError where there is nothing to run.
    """
    select, ignore = wanted_codes(select, ignore)
    from stridewise.recorder import script

    options = script.Options(
        steps=steps,
        warmup=warmup,
        module_step=module_step,
        save=save,
        library_copies=library_copies,
        max_ops=max_ops,
    )
    told: Compiled | None = None
    if compiled:
        with watched(select, ignore) as tell:
            ran = script.run(argv, module=module, options=options)
            told = tell()
    else:
        ran = script.run(argv, module=module, options=options)
    report = None
    if ran.recording is not None:
        report = analyze(
            ran.recording,
            min_share=min_share,
            select=select,
            ignore=ignore,
            kernel_patterns=kernel_patterns,
            paths=paths,
            timeline=timeline,
        )
        notes = tuple(note for note in report.notes if told is None or not note.endswith(INSIDE_COMPILED))
        report = msgspec.structs.replace(report, compiled=told, notes=notes)
    return results.ScriptOutcome(report, ran.exit_code, "\n".join(ran.messages) or None, told, ran.saved)


def diagnose(
    model: Callable[..., Any],
    *args: Any,
    train: bool = False,
    loss: Callable[[Any], Tensor] | None = None,
    library_copies: bool = False,
    paths: bool = False,
    **kwargs: Any,
) -> Report:
    """What layout costs `model(*args, **kwargs)`: one call to warm up, three recorded, and the report of those.

    With `train` each call is followed by a backward from `loss(output)`, or from the model's own loss or the mean
    softplus of its output. Random states, buffers, gradients and training flags are as before afterwards. Raises
    UsageError where a backward has nothing to start from, and whatever the model raises.
    """
    from stridewise.recorder.once import record_calls

    recording = record_calls(model, args, kwargs, train=train, loss=loss, library_copies=library_copies)
    return analyze(recording, paths=paths)


def demo(*, paths: bool = False) -> Report:
    """Record three steps of a small model's training, and report."""
    from stridewise.demo.model import train
    from stridewise.recorder import live

    recorder = live.Recorder()
    recorder.warmup = 2
    recorder.start()
    try:
        train(steps=6)
    finally:
        recorder.stop()
    return analyze(recorder.recording, paths=paths)
