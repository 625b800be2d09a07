"""Exported programs: what they do with layouts that they were not made for."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import msgspec

from stridewise.api.checks import Checked
from stridewise.api.codes import wanted_codes
from stridewise.config.reading import is_wanted
from stridewise.results import artefacts as results


class Artefact(Checked, results.Artefact, frozen=True):
    """What an exported program does with the layouts of its inputs; it shows itself."""


def check_export(
    program: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    model: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    timeout: float = 10.0,
    time_limit: float = 60.0,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Artefact:
    """Which input layouts an exported program was made for, and what it does with others: right, refused, or wrong.

    `program` is an `ExportedProgram`, a `torch.jit` module, what `torch._inductor.aoti_load_package` returns, or the
    path of a `.pt2` or TorchScript file. It is executed, and a file may hold any code: in a child process, over layouts
    of the same values, whose results are held against those in the layouts that it was made for. `args` and `kwargs`
    are its arguments; without them those that it keeps, or random numbers of the sizes that it tells. With `model`, the
    eager module or function that it was made from, results are held against that too: what the model does otherwise
    for another layout was fixed when it was exported. `timeout` is of one run and `time_limit` of all, in seconds;
    `tolerance` is a share of a result's largest magnitude, and without it goes by dtype.

    Raises UsageError for what is no exported program, if it fails even in the layouts that it was made for, or if
    nothing tells its arguments.
    """
    select, ignore = wanted_codes(select, ignore)
    from stridewise.checks.artefacts import check

    found = check.check_export(
        program,
        *args,
        kwargs=kwargs,
        model=model,
        tolerance=tolerance,
        timeout=timeout,
        time_limit=time_limit,
        progress=progress,
    )
    return _shown(found, select, ignore)


def check_export_file(
    path: str | os.PathLike[str],
    *,
    sample: str | None = None,
    model: str | None = None,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    **options: Any,
) -> Artefact:
    """The same for a file. `sample` is a function `path.py:name` that returns the arguments, `model` one of the model.

    `sample` returns a tuple, a dict of keyword arguments, or both as a pair; `model` names a module, a class of one
    without arguments, or a function that returns one. Other options are `check_export`'s.
    """
    select, ignore = wanted_codes(select, ignore)
    from stridewise.checks.artefacts import check
    from stridewise.checks.operators import load

    args, kwargs = load.load_arguments(sample) if sample is not None else ((), None)
    eager = load.load_callable(model)[0] if model is not None else None
    found = check.check_export(os.fspath(path), *args, kwargs=kwargs, model=eager, model_target=model, **options)
    return _shown(found, select, ignore)


def _shown(found: results.Artefact, select: Collection[str] | None, ignore: Collection[str] | None) -> Artefact:
    wanted = tuple(finding for finding in found.findings if is_wanted(finding.code, select, ignore))
    return msgspec.structs.replace(Artefact(*msgspec.structs.astuple(found)), findings=wanted)


def guard_artefact(
    program: Callable[..., Any], made_for: results.Artefact | str, *, mode: Literal["convert", "raise"] = "convert"
) -> Callable[..., Any]:
    """A program that gets its inputs in the layouts that it was made for: others are copied to them, or refused.

    `made_for` is what `check_export` found, or the text of its guard. With mode "raise" a ValueError names the input.
    What the program writes to a copied input is written back; a view of it that it returns shares no memory with it.
    """
    from stridewise.checks.artefacts import guard

    return guard.guard_artefact(program, made_for, mode=mode)
