"""The functions that people call. They return values and print nothing."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stridewise import layout, report, results
from stridewise.analysis import analyze_trace
from stridewise.errors import UsageError
from stridewise.recording.handle import Recording

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.recording.live import Recorder

MIN_SHARE = 0.001
"""Of a step: findings below it fold into one line."""


class Report(results.Report, frozen=True):
    """A report that shows itself: as text where it is printed, as JSON where that is asked for."""

    def __str__(self) -> str:
        out = io.StringIO()
        report.render(self, "text", out)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__

    def to_json(self, *, copies: bool = False, modules: bool = False) -> str:
        """The report as `stridewise trace --format json` prints it."""
        out = io.StringIO()
        report.render(self, "json", out, copies=copies, modules=modules)
        return out.getvalue()


def record(*, library_copies: bool = False, max_ops: int = 200_000) -> Recorder:
    """Record what the body of a `with` block does with tensors; see `stridewise.recording.live.record`."""
    from stridewise.recording import live

    return live.record(library_copies=library_copies, max_ops=max_ops)


def step() -> None:
    """Say that a step of the program ends here. Does nothing while nothing is recorded."""
    from stridewise.recording import live

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
) -> Report:
    """What a recording, or the file of one, says. Needs no torch.

    `select` and `ignore` are codes or their beginnings. Raises InputError if a file can't be read as a recording.
    """
    if not isinstance(source, (Recording, str, os.PathLike)):
        raise UsageError(f"analyze() was given {type(source).__name__}.", expected="Expected: a recording, or a file.")
    recording = source if isinstance(source, Recording) else Recording.load(source)
    found = analyze_trace(recording.trace, min_share=min_share, select=select, ignore=ignore)
    return Report(**{field: getattr(found, field) for field in found.__struct_fields__})


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
) -> results.ScriptOutcome:
    """Run a script with its arguments as `python` would, in this process, and report on a few of its steps.

    With `module` the first of `argv` is a module's name, as after `python -m`. Recording begins when the script has
    imported torch and ends when `warmup` and then `steps` steps are over; `module_step` is the class, or the path in
    the model, of the module whose calls are the steps. `save` is written when recording ends. The script's output, its
    traceback and its exit code are its own. Raises UsageError or InputError where there is nothing to run.
    """
    from stridewise.recording import script

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
        report = analyze(ran.recording, min_share=min_share, select=select, ignore=ignore)
    return results.ScriptOutcome(report, ran.exit_code, "\n".join(ran.messages) or None)


def diagnose(
    model: Callable[..., Any],
    *args: Any,
    train: bool = False,
    loss: Callable[[Any], Tensor] | None = None,
    library_copies: bool = False,
    **kwargs: Any,
) -> Report:
    """What layout costs `model(*args, **kwargs)`: one call to warm up, three recorded, and the report of those.

    With `train` each call is followed by a backward from `loss(output)`, or from the model's own loss or the mean
    square of its output. Random states, buffers, gradients and training flags are as before afterwards. Raises
    UsageError where a backward has nothing to start from, and whatever the model raises.
    """
    from stridewise.recording.once import record_calls

    return analyze(record_calls(model, args, kwargs, train=train, loss=loss, library_copies=library_copies))


def explain(tensor: Tensor | Sequence[int], strides: Collection[int] | None = None, offset: int = 0) -> str:
    """What layout a tensor has, and why, in a line or two; or, in its place, what sizes and strides would have.

    For a tensor without strides it says what it has instead. Raises UsageError where there is no such layout.
    """
    if isinstance(tensor, (tuple, list)):
        return explain_layout(tensor, strides, offset)
    from stridewise.recording.tensors import layout_of

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


def demo() -> Report:
    """Record three steps of a small model's training, and report."""
    from stridewise.demo.model import train
    from stridewise.recording import live

    recorder = live.Recorder()
    recorder.warmup = 2
    recorder.start()
    try:
        train(steps=6)
    finally:
        recorder.stop()
    return analyze(recorder.recording)
