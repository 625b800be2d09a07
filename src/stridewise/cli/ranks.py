"""`stridewise run` on every rank of a job: each keeps its recording in a folder, and rank 0 reports on all of them."""

import re
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec import Struct

from stridewise.cli.fleet import FORMATS, write_fleet
from stridewise.cli.options import Format
from stridewise.cli.output import writable
from stridewise.config import Config
from stridewise.errors import StridewiseError, UsageError
from stridewise.recorder.job import Job, find_job, recording_name

if TYPE_CHECKING:
    from stridewise.recorder.termination import Termination
    from stridewise.recording.handle import Recording

PATIENCE_S = 10.0
"""How long rank 0 waits at its end for the recordings of other ranks."""
_HURRY_S = 3.0
"""The same when the launcher has asked it to end, and will soon end it."""
_RECORDING = re.compile(r"rank\d+\.json\.gz")


class Place(Struct, frozen=True):
    """Where this process keeps its recording, and which rank of how many it is."""

    file: Path | None
    folder: Path | None
    """Of the job's recordings, if there are several."""
    job: Job

    @property
    def reports(self) -> bool:
        """Whether this rank is the one that reports: what all of them print would be mixed up."""
        return self.job.rank == 0

    @property
    def prefix(self) -> str:
        """Begins what a rank says on stderr."""
        return f"stridewise: rank {self.job.rank}: " if self.job.ranks > 1 else "stridewise: "


def find_place(save: str | None) -> Place:
    """What `--save` means here: a file, or a folder in which every rank has one. Files of an earlier run go.

    Raises UsageError where nothing can be written, or where all ranks would write one file: what all of them would say
    rank 0 says alone, and the others exit.
    """
    job = find_job()
    alone = Job(0, 1) if job is None else job
    try:
        return Place(None, None, alone) if save is None else _place(save, job, alone)
    except UsageError:
        if alone.rank == 0:
            raise
        raise typer.Exit(2) from None


def _place(save: str, job: Job | None, alone: Job) -> Place:
    path = Path(save)
    if not (save.endswith("/") or path.is_dir()):
        if alone.ranks == 1:
            return Place(writable(path), None, alone)
        if path.suffix in (".json", ".gz") or path.is_file():
            raise UsageError(
                f"--save {save} is one file, and there are {alone.ranks} ranks",
                advice=f"give a folder, where each has its own: --save {path.parent / 'recordings'}/",
            )
    folder = path.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from None
    file = writable(folder / ("recording.json.gz" if job is None else alone.recording_name))
    if job is not None:
        _remove_old(folder, job)
    return Place(file, folder if alone.ranks > 1 else None, alone)


def _remove_old(folder: Path, job: Job) -> None:
    """A rank that dies must not be stood for by what an earlier run left: each removes its own, and rank 0 the rest.

    No other rank can have come as far as to write its recording when rank 0 gets here, before the script.
    """
    found = [folder / job.recording_name] if job.rank else list(folder.iterdir())
    for path in found:
        if _RECORDING.fullmatch(path.name):
            with suppress(FileNotFoundError):  # its own rank was here first
                path.unlink()


def require_fleet_format(format: Format, tables: Collection[str]) -> None:
    """Raise UsageError, before the script runs, for what the report on all ranks can't show."""
    if format.value not in FORMATS or tables:
        option = f"--format {format.value}" if format.value not in FORMATS else f"--{min(tables)}"
        raise UsageError(
            f"{option} takes one recording, and here the report is of all ranks",
            advice="leave it out, and look at one of them afterwards: stridewise trace FOLDER/rank0.json.gz",
        )


def report_on_all(place: Place, config: Config, format: Format, output: Path | None, *, quiet: bool) -> bool:
    """As rank 0, wait a while for the recordings of the others and report on all that there are.

    Gives False if there is no other's, or none can be read: then this rank has only itself to report on.
    """
    from stridewise import api

    assert place.folder is not None
    files = {rank: place.folder / recording_name(rank) for rank in range(place.job.ranks)}
    missing = _await(files, lambda: _HURRY_S if _is_to_end() else PATIENCE_S)
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        print(
            f"stridewise: no recording of rank {shown} of {place.job.ranks}: it died, still runs, or writes elsewhere."
            f" Once it is there: stridewise trace {place.folder}",
            file=sys.stderr,
        )
    if not set(files) - {0, *missing}:
        return False
    try:
        fleet = api.analyze_fleet(
            files.values(),  # those that are missing too: it says so
            min_share=config.min_share,
            select=config.select or None,
            ignore=config.ignore or None,
            kernel_patterns=config.kernel_patterns,
            budget=config.budget,
        )
        write_fleet(fleet, format, output, quiet=quiet)
    except StridewiseError as error:  # the script has run: its code counts
        print(f"stridewise: {error}", file=sys.stderr)
        return False
    return True


def catch_termination(place: Place, report: "Callable[[Recording | None], object]") -> "Termination":
    """Keep what was recorded should the launcher end this rank because another one died; rank 0 reports then too.

    `report` is given the recording of this rank, None if there is none.
    """
    from stridewise.recorder import script
    from stridewise.recorder.termination import Termination

    def act() -> None:
        running, recording = script.current, None
        if running is not None:
            running.end(broken_off=True)
            recording = running.finish()
        if place.reports:
            report(recording)
        elif place.job.rank == 1:  # one of those that are left, should it be rank 0 that died
            print(f"{place.prefix}ended by SIGTERM; its recording is in {place.folder}", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()

    script.termination = caught = Termination(act)
    caught.install()
    return caught


def _await(files: dict[int, Path], patience_s: Callable[[], float]) -> list[int]:
    """The ranks whose files have not come within so many seconds."""
    began = time.monotonic()
    while True:
        missing = [rank for rank, path in files.items() if not path.exists()]
        if not missing or time.monotonic() - began >= patience_s():
            return missing
        time.sleep(0.05)


def _is_to_end() -> bool:
    from stridewise.recorder import script

    return script.termination is not None and (script.termination.pending or script.termination.ending)
