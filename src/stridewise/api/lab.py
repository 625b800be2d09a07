"""The lab: claims about memory layout, measured here."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from stridewise.api.shown import Shown, written
from stridewise.errors import InputError, UsageError
from stridewise.results import SCHEMA_VERSION
from stridewise.results import lab as results

if TYPE_CHECKING:
    from stridewise.lab.experiment import Experiment

Progress = Callable[[int, int, str], None]
"""Is told, before each experiment, its number from 0, how many there are, and its title."""

_MOST_BYTES = 100_000_000


class Lab(Shown, results.Lab, frozen=True):
    """What a run of the lab found; it shows itself."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import lab

        lab.render(self, out)

    def to_json(self) -> str:
        """The result as `stridewise lab --json` prints it: what `read_lab` reads."""
        from stridewise.report import json

        return json.dumps(self)


class LabComparison(Shown, results.LabComparison, frozen=True):
    """Runs of the lab on several machines, side by side."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import lab_comparison

        lab_comparison.render(self, out)

    def to_json(self) -> str:
        """The result as JSON."""
        from stridewise.report import lab_comparison

        return written(lambda out: lab_comparison.render(self, out, format="json"))


def run_lab(
    names: Sequence[str] = (),
    *,
    device: str = "cpu",
    quick: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Lab:
    """Run the lab's experiments in this process: all of them, or those that `names` names.

    A name is that of an experiment, a claim (`C58`) or a section (`3`, `3.2`). All take some minutes, with `quick`
    less than one. `device` is `cpu` or `cuda`. torch gets `threads` threads; unless given, a quick run takes one, and a
    full one as many as torch has. Nothing else should run meanwhile. A run that KeyboardInterrupt ends
    gives what it has, with a note. torch's settings are as before afterwards. Raises UsageError for a name or a device
    that is not there and for what is no number of threads, under a mode of torch such as `FakeTensorMode`, and where
    something else is being recorded.
    """
    from stridewise.lab import catalogue, devices, session

    if progress is not None and not callable(progress):
        raise UsageError(f"progress takes a function of a number, a count and a title: not {progress!r}.")

    def tell(number: int, count: int, experiment: Experiment) -> None:
        if progress is not None:
            progress(number, count, experiment.title)

    where = devices.device(device)
    found = session.run(catalogue.selected(names), where, quick=quick, threads=threads, progress=tell)
    return Lab(*msgspec.structs.astuple(found))


def experiments(names: Sequence[str] = ()) -> Sequence[Experiment]:
    """The lab's experiments, or those that `names` names, in the article's order; none is run."""
    from stridewise.lab import catalogue

    return catalogue.selected(names)


def read_lab(path: str | os.PathLike[str]) -> Lab:
    """A run of the lab that `stridewise lab --json` wrote. Raises InputError for a file that is none."""
    from stridewise.lab import consistent

    path = _path(path)
    advice = "`stridewise lab --json --output FILE` writes one."
    try:
        if not path.is_file():
            why = "it is no file" if path.exists() else "there is no such file"
            raise InputError(f"{path} cannot be read: {why}")
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is no result of the lab: it is too large.", advice=advice)
        found = msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8), type=Lab)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InputError(f"{path} is no result of the lab: {error}", advice=advice) from None
    if found.schema_version != SCHEMA_VERSION:
        theirs = f"{path} follows version {found.schema_version} of the schema"
        raise InputError(f"{theirs}; this stridewise reads {SCHEMA_VERSION}.")
    fault = consistent.fault(found)
    if fault is not None:
        raise InputError(f"{path} is no result of the lab: {fault}")
    return found


def compare_labs(paths: Sequence[str | os.PathLike[str]]) -> LabComparison:
    """Results of several machines side by side, each named after its file.

    Raises InputError for a file that is none, and UsageError for one that is given twice, or if none is given.
    """
    from stridewise.lab import beside

    if not isinstance(paths, (list, tuple)):
        raise UsageError(f"compare_labs takes a list of files: not {str(paths)!r}.")
    if not paths:
        raise UsageError("compare_labs takes the files of one run or more: none is given.")
    files = [_path(path) for path in paths]
    if len({os.path.realpath(file) for file in files}) < len(files):
        raise UsageError("One of these files is given twice.")
    names = [_name(file, files) for file in files]
    if len(set(names)) < len(names):
        names = list(map(str, files))
    found = beside.side_by_side({name: read_lab(file) for name, file in zip(names, files, strict=True)})
    return LabComparison(*msgspec.structs.astuple(found))


def _path(given: object) -> Path:
    """Raises UsageError for what names no file."""
    name = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(name, str):
        raise UsageError(f"A file of the lab is named by a path: not {given!r}.")
    if "\0" in name:
        raise InputError(f"{name} cannot be read: there is no such file")
    return Path(name)


def _name(path: Path, files: Sequence[Path]) -> str:
    """The file's name, or its path where another file has the same."""
    return path.stem if [other.stem for other in files].count(path.stem) == 1 else str(path)
