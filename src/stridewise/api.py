"""The functions that people call. They return values and print nothing."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import msgspec

from stridewise import layout, report, results
from stridewise.analysis import analyze_trace, annotate_trace
from stridewise.config import Budget, parse_budget, parse_share, project_root
from stridewise.errors import InputError, StridewiseError, UsageError
from stridewise.recording.handle import Recording

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.linter.running.run import Progress as LintProgress
    from stridewise.linter.seen import Seen
    from stridewise.recorder.live import Recorder
    from stridewise.repair.options import Options as TrialOptions
    from stridewise.repair.outcome import Outcome
    from stridewise.source.patch import Written

MIN_SHARE = 0.001
"""Of a step: findings below it fold into one line."""


class _Shown:
    """A result that shows itself as text where it is printed."""

    __slots__ = ()

    def _render(self, out: TextIO) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return _written(self._render).rstrip("\n")

    __repr__ = __str__


def _written(render: Callable[[TextIO], None]) -> str:
    out = io.StringIO()
    render(out)
    return out.getvalue()


class Report(_Shown, results.Report, frozen=True):
    """A report that shows itself: as text where it is printed, as JSON where that is asked for."""

    def _render(self, out: TextIO) -> None:
        report.render(self, "text", out)

    def to_json(self, *, tables: Collection[report.Table] = ()) -> str:
        """The report as `stridewise trace --format json` prints it, with the tables that are asked for."""
        return _written(lambda out: report.render(self, "json", out, tables=tables))


def record(*, library_copies: bool = False, max_ops: int = 200_000) -> Recorder:
    """Record what the body of a `with` block does with tensors; see `stridewise.recorder.live.record`."""
    from stridewise.recorder import live

    return live.record(library_copies=library_copies, max_ops=max_ops)


def step() -> None:
    """Say that a step of the program ends here. Does nothing while nothing is recorded."""
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
) -> Report:
    """What a recording, or the file or URL of one, says. Needs no torch.

    A file is a recording, a trace of torch.profiler, an SQLite export of Nsight Systems, or a log of oneDNN. `select`
    and `ignore` are codes or their beginnings. `kernel_patterns` are regular expressions for names of kernels that
    change layout, each with its cause (`stridewise.results.Cause`). Source lines that the recording does not hold are
    read from Python files below `source_root`: the project, unless set. `paths` fills `Report.paths`, which says what
    implementation ran each operator. Raises InputError if a file can't be read.
    """
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
) -> results.ScriptOutcome:
    """Run a script with its arguments as `python` would, in this process, and report on a few of its steps.

    With `module` the first of `argv` is a module's name, as after `python -m`. Recording begins when the script has
    imported torch and ends when `warmup` and then `steps` steps are over; `module_step` is the class, or the path in
    the model, of the module whose calls are the steps. `save` is written when recording ends. The script's output, its
    traceback and its exit code are its own. Raises UsageError or InputError where there is nothing to run.
    """
    from stridewise.recorder import script

    options = script.Options(
        steps=steps,
        warmup=warmup,
        module_step=module_step,
        save=save,
        library_copies=library_copies,
        max_ops=max_ops,
    )
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
        )
    return results.ScriptOutcome(report, ran.exit_code, "\n".join(ran.messages) or None)


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


def explain(tensor: Tensor | Sequence[int], strides: Collection[int] | None = None, offset: int = 0) -> str:
    """What layout a tensor has, and why, in a line or two; or, in its place, what sizes and strides would have.

    For a tensor without strides it says what it has instead. Raises UsageError where there is no such layout.
    """
    if isinstance(tensor, (tuple, list)):
        return explain_layout(tensor, strides, offset)
    from stridewise.recorder.tensors import layout_of

    given = cast("Tensor", tensor)
    described = layout_of(given)
    return described if isinstance(described, str) else layout.explain(described, given.element_size())


def explain_layout(sizes: Collection[int], strides: Collection[int] | None = None, offset: int = 0) -> str:
    """The same for sizes, strides and storage offset, in elements; without strides they are the contiguous ones.

    Raises UsageError where there is no such layout.
    """
    try:
        given = layout.contiguous_strides(tuple(sizes)) if strides is None else tuple(strides)
        return layout.explain(layout.Layout(tuple(sizes), given, offset))
    except layout.LayoutError as error:
        raise UsageError(f"There is no such layout: {error}.") from None


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


class Repair(_Shown, results.Repair, frozen=True, dict=True):
    """What was tried, and the diff of what won. It shows itself; `apply` and `write` put the winners into effect."""

    @classmethod
    def _of(cls, outcome: Outcome) -> Repair:
        repair = cls(*msgspec.structs.astuple(outcome.repair))
        vars(repair)["_outcome"] = outcome  # no field: it holds live objects
        return repair

    def _render(self, out: TextIO) -> None:
        from stridewise.report import repair

        repair.render(self, out, format="text")

    def to_json(self) -> str:
        """The repair as `stridewise fix --format json` prints it."""
        from stridewise.report import repair

        return _written(lambda out: repair.render(self, out, format="json"))

    def write(self, patch_dir: str | os.PathLike[str] = ".") -> tuple[Written, ...]:
        """Write the winners into the project's files; gives what became of each file.

        Only a file that still reads as it did when the trials ran is written, whole or not at all. A file of an
        installed package never is: it gets a patch in `patch_dir`.
        """
        from stridewise.source import patch

        outcome = self._outcome
        return patch.write(outcome.changes, outcome.files, patch_dir=Path(patch_dir))

    def apply(self) -> None:
        """Put the winners in place in this process, until it ends: no file is touched. Twice is once.

        Raises UsageError where that can't be done, as when the model's inputs have to be converted.
        """
        self._outcome.apply()

    @property
    def _outcome(self) -> Outcome:
        return cast("Outcome", vars(self)["_outcome"])


def fix(
    model: Callable[..., Any],
    *args: Any,
    train: bool = False,
    loss: Callable[[Any], Tensor] | None = None,
    only: Collection[str] = (),
    time_limit: float = 60.0,
    tolerance: float | None = None,
    library_copies: bool = False,
    min_share: float = MIN_SHARE,
    progress: Callable[[results.Progress], object] | None = None,
    **kwargs: Any,
) -> Repair:
    """Try edits of what `model(*args, **kwargs)` runs, and keep those that make it faster and give the same results.

    With `train` a step has a backward from `loss(output)`, or from the model's own loss or the mean softplus of its
    output. A function without arguments is a step by itself, with whatever backward and optimizer it has. `only` names
    kinds of edits (`kinds()`); `time_limit` is in seconds; `tolerance` is a share of a result's largest magnitude, and
    without it goes by dtype. Afterwards the program is as it was before. Ctrl-C ends the trials, and what was tried
    until then is given. Raises UsageError for what can't be tried, and whatever the program raises.
    """
    from stridewise.repair.trial import start

    options = _trial_options(only, time_limit, tolerance, library_copies, min_share)
    given = None if train or args or kwargs or start.is_module(model) else model
    outcome = (
        start.try_step(given, options, progress)
        if given is not None
        else start.try_model(model, args, kwargs, options, progress, train=train, loss=loss)
    )
    return Repair._of(outcome)


def fix_target(
    target: str,
    *,
    train: bool = False,
    only: Collection[str] = (),
    time_limit: float = 60.0,
    tolerance: float | None = None,
    library_copies: bool = False,
    min_share: float = MIN_SHARE,
    progress: Callable[[results.Progress], object] | None = None,
) -> Repair:
    """The same for `path.py:name` or `package.module:name`, a function.

    It returns `(model, args)`, `(model, args, kwargs)`, or a step to call; one that returns none of these is a step
    itself. Raises UsageError where there is no such function.
    """
    from stridewise.repair.trial import start

    options = _trial_options(only, time_limit, tolerance, library_copies, min_share)
    return Repair._of(start.try_target(target, options, progress, train=train))


def fix_script(
    argv: list[str],
    *,
    module: bool = False,
    stop: bool = False,
    only: Collection[str] = (),
    time_limit: float = 60.0,
    tolerance: float | None = None,
    library_copies: bool = False,
    min_share: float = MIN_SHARE,
    progress: Callable[[results.Progress], object] | None = None,
) -> tuple[Repair | None, int, str | None]:
    """The same for a script with its arguments, while it runs: its own steps are timed, with and without an edit.

    Only edits that keep results are tried. With `stop` the script ends with the trials; else it goes on to its end.
    Gives the repair, None if nothing was tried, the script's exit code, and what there is to say besides.
    """
    from stridewise.repair.trial import start

    options = _trial_options(only, time_limit, tolerance, library_copies, min_share)
    outcome, code, message = start.try_script(argv, options, progress, module=module, stop=stop)
    return (None if outcome is None else Repair._of(outcome)), code, message


def kinds() -> tuple[str, ...]:
    """The kinds of edits that `fix` tries, by name."""
    from stridewise.repair.kinds import all_kinds

    return tuple(kind.name for kind in all_kinds())


def _trial_options(
    only: Collection[str], time_limit: float, tolerance: float | None, library_copies: bool, min_share: float
) -> TrialOptions:
    from stridewise.repair.kinds import chosen
    from stridewise.repair.options import Options

    if not 0 < time_limit < math.inf:
        raise UsageError(f"fix() was given a time limit of {time_limit!r}.", expected="Expected: seconds, more than 0.")
    wanted = (only,) if isinstance(only, str) else tuple(only)
    return Options(chosen(wanted), wanted, time_limit, tolerance, library_copies, min_share)


class LintRun(_Shown, results.LintRun, frozen=True):
    """What the source rules say; it shows itself: as text where it is printed, as JSON where that is asked for."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import lint

        lint.render(self, out, format="text")

    def to_json(self) -> str:
        """The run as `stridewise lint --format json` prints it."""
        from stridewise.report import lint

        return _written(lambda out: lint.render(self, out, format="json"))


def lint(
    *paths: str | os.PathLike[str],
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    extend_select: Collection[str] | None = None,
    extend_ignore: Collection[str] | None = None,
    per_file_ignores: Mapping[str, Collection[str]] | None = None,
    exclude: Collection[str] | None = None,
    extend_exclude: Collection[str] | None = None,
    respect_gitignore: bool = True,
    force_exclude: bool = False,
    fix: bool = False,
    unsafe_fixes: bool = False,
    diff: bool = False,
    recording: Recording | str | os.PathLike[str] | None = None,
    jobs: int = 1,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: LintProgress | None = None,
) -> LintRun:
    """Layout faults in the source of files and folders, without running it. Needs no torch.

    Without paths the current folder is looked at. What is not given is as `[tool.stridewise.lint]` of each file's
    project says. `select` and the like are codes or their beginnings; `exclude` and the keys of `per_file_ignores` are
    patterns of files. `fix` writes the safe fixes into the files, with `unsafe_fixes` the others too; with `diff` they
    are only in the result's `diff`. `recording` is of the same sources: what it saw of them sharpens the rules, and
    gives findings their cost. More `jobs` are processes of their own, which import nothing of the caller's.
    `cache_dir` is a folder in which to keep what is known of files that don't change. `progress` is called with the
    number of files that are linted, and of all.

    What is wrong with a file is in `unread`, and the others are linted. Raises UsageError for a path that is not there
    and for unknown codes, and InputError for a pyproject.toml or a recording that can't be read.
    """
    from stridewise.config import LintConfig, parse_codes
    from stridewise.linter.running.run import Options, lint_paths

    def codes(given: Collection[str] | None) -> tuple[str, ...]:
        return parse_codes([given] if isinstance(given, str) else given or ())

    def patterns(given: Collection[str]) -> tuple[str, ...]:
        return (given,) if isinstance(given, str) else tuple(given)

    if jobs < 1:
        raise UsageError(f"lint() was given {jobs!r} jobs.", expected="Expected: a whole number from 1 on.")
    if unsafe_fixes and not (fix or diff):
        raise UsageError("lint() was given unsafe_fixes alone.", expected="Expected: with fix or diff.")
    overrides = LintConfig(
        select=codes(select),
        extend_select=codes(extend_select),
        ignore=codes(ignore),
        extend_ignore=codes(extend_ignore),
        per_file_ignores=tuple((pattern, codes(given)) for pattern, given in (per_file_ignores or {}).items()),
        exclude=None if exclude is None else patterns(exclude),
        extend_exclude=patterns(extend_exclude or ()),
    )
    options = Options(
        fix=None if not (fix or diff) else "unsafe" if unsafe_fixes else "safe",
        diff=diff,
        processes=jobs,
        # What a recording saw is no part of the cache: it may not come from a file that has a content to go by.
        cache=Path(cache_dir) if cache_dir is not None and recording is None else None,
        seen=None if recording is None else seen_in(recording),
    )
    found = lint_paths(
        paths,
        overrides,
        options,
        respect_gitignore=respect_gitignore,
        force_exclude=force_exclude,
        progress=progress,
    )
    return LintRun(*msgspec.structs.astuple(found))


def seen_in(recording: Recording | str | os.PathLike[str]) -> Seen:
    """What a recording saw at the expressions of the source, for `lint`. Raises InputError if it can't be read."""
    from stridewise.analysis.case import Case
    from stridewise.linter.seen import seen_calls

    loaded = recording if isinstance(recording, Recording) else Recording.load(recording)
    return seen_calls(Case(loaded.trace))


class Diff(_Shown, results.Diff, frozen=True):
    """A comparison that shows itself: as text where it is printed, as JSON where that is asked for."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import diff

        diff.render(self, out, format="text")

    def to_json(self) -> str:
        """The comparison as `stridewise diff --format json` prints it."""
        from stridewise.report import diff

        return _written(lambda out: diff.render(self, out, format="json"))


def diff(
    old: results.Report | Recording | str | os.PathLike[str],
    new: results.Report | Recording | str | os.PathLike[str],
    *,
    tolerance: float | str = 0.0,
    min_share: float = MIN_SHARE,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
) -> Diff:
    """What got worse, and what better, from one recording to another. Needs no torch.

    Each is a report, a recording, or a file: of a recording, of a trace, or of a report as JSON. `.ok` says whether
    copies and bytes a step grew by no more than `tolerance`, a share of what they were, and no hazard came up. Time is
    not judged. `select` and `ignore` are codes or their beginnings: what their findings cost is then what is compared.
    Raises InputError if a file can't be read as any of these.
    """
    from stridewise.analysis.diff import compare

    tolerance = parse_share(tolerance) if isinstance(tolerance, str) else tolerance
    if not 0 <= tolerance < math.inf:
        raise UsageError(f"diff() was given a tolerance of {tolerance!r}.", expected="Expected: a share such as 0.05.")
    before, after = _report_of(old), _report_of(new)
    found = compare(before, after, tolerance=tolerance, min_share=min_share, select=select, ignore=ignore)
    return Diff(*msgspec.structs.astuple(found))


def _report_of(source: results.Report | Recording | str | os.PathLike[str]) -> results.Report:
    if isinstance(source, results.Report):
        return source
    if isinstance(source, Recording):
        return analyze(source)
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(
            f"diff() was given {type(source).__name__}.", expected="Expected: a report, a recording, or a file."
        )
    from stridewise.report import saved

    try:
        return saved.load(source) or analyze(source)
    except InputError as error:  # what else it says is about traces only
        raise InputError(error.given) from None


class Fleet(_Shown, results.Fleet, frozen=True):
    """What many files say; it shows itself: as text where it is printed, as JSON where that is asked for."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import fleet

        fleet.render(self, out, format="text")

    def to_json(self) -> str:
        """The fleet as `stridewise trace --format json` prints it."""
        from stridewise.report import fleet

        return _written(lambda out: fleet.render(self, out, format="json"))


def analyze_fleet(
    files: Iterable[str | os.PathLike[str]],
    *,
    cluster: Any = None,
    workers: int | None = None,
    min_share: float = MIN_SHARE,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    kernel_patterns: Mapping[str, str] | None = None,
    source_root: str | os.PathLike[str] | None = None,
    budget: Budget | str = "",
    progress: Callable[[int, int], object] | None = None,
) -> Fleet:
    """What the files of many ranks say, each and together. Needs no torch.

    `files` are files, folders, globs, and URLs that fsspec opens. `cluster` is the address of a Dask scheduler, whose
    workers then read the files, or a `distributed.Client`; connect only to a cluster that you trust. Without one, many
    files are read in as many processes of this machine as `workers` says, else as it has cores; 1 is this process.
    `progress` is called with the number of files that are read, and of all. The other options are `analyze`'s; `budget`
    is held against each file.

    A file that can't be read is in `failures`. Raises InputError if none can be read, and UsageError if there is none,
    or the cluster can't be reached or is lost.
    """
    from stridewise import fleet
    from stridewise.analysis.fleet import assemble_fleet
    from stridewise.analysis.kernel_names import project_pattern

    given = [files] if isinstance(files, (str, os.PathLike)) else files
    found = fleet.expand(given)
    for pattern, cause in (kernel_patterns or {}).items():
        project_pattern(pattern, cause)
    options = fleet.Options(
        min_share=min_share,
        select=_code_list(select),
        ignore=_code_list(ignore),
        kernel_patterns=dict(kernel_patterns or {}),
        source_root=os.fspath(source_root or project_root()),
        budget=str(budget if isinstance(budget, Budget) else parse_budget(budget)),
    )
    summary, notes = fleet.read_fleet(
        found,
        options,
        cluster=cluster,
        workers=workers,
        progress=None if progress is None else lambda read: progress(read, len(found)),
    )
    if not summary.rows:
        raise _nothing_read(summary.failures)
    whole = assemble_fleet(summary, min_share=min_share, notes=notes)
    return Fleet(*msgspec.structs.astuple(whole))


def _code_list(codes: Collection[str] | None) -> tuple[str, ...] | None:
    return (codes,) if isinstance(codes, str) else tuple(codes) if codes else None


def _nothing_read(failures: Sequence[results.FleetFailure]) -> StridewiseError:
    if not failures:
        return UsageError("No files were given.")
    first = failures[0]
    if len(failures) == 1:
        return InputError(first.message)
    return InputError(f"None of {len(failures)} files could be read.", expected=f"The first: {first.message}")
