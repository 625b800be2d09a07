"""What a watched run leaves in a folder: reports of the steps that were recorded, and the recordings."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TextIO

from stridewise import report as reporting
from stridewise import results
from stridewise.recorder.job import Job
from stridewise.recording.handle import Recording

FORMATS = ("html", "json")


class StepFiles:
    """Writes `stridewise-step-000123.html` and `.json`, and the recording as `.json.gz`.

    In a job of many ranks the reports are rank 0's, and the recordings of all lie in a folder for each step, as
    `stridewise trace` takes it: `stridewise-step-000123/rank0.json.gz`, … Of more than `keep` steps the oldest go.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        formats: Collection[str],
        recordings: bool | None,
        keep: int | None,
        job: Job | None,
    ) -> None:
        self.folder = Path(folder)
        wanted = (formats,) if isinstance(formats, str) else tuple(formats)
        self._job = job
        self._many = job is not None and job.ranks > 1
        self.formats = wanted if job is None or job.rank == 0 else ()
        self._recordings = self._many if recordings is None else recordings
        self._keep = keep
        self._written: deque[list[Path]] = deque()

    def write(self, report: results.Report, recording: Recording, step: int) -> None:
        """Write the files of a step, each whole or not at all. Raises OSError or InputError where that can't be."""
        base = self.folder / f"stridewise-step-{step:06d}"
        written = []
        self.folder.mkdir(parents=True, exist_ok=True)
        for format in self.formats:
            path = base.with_name(f"{base.name}.{format}")
            _write(path, _renderer(report, format))
            written.append(path)
        if self._recordings:
            path = base.with_name(f"{base.name}.json.gz")
            if self._job is not None and self._many:
                base.mkdir(exist_ok=True)
                path = base / self._job.recording_name
            recording.save(path)
            written.append(path)
        self._remember(written)

    def _remember(self, written: list[Path]) -> None:
        """Only what this run wrote is ever removed, and what it wrote again is not old."""
        self._written = deque([path for path in old if path not in written] for old in self._written)
        self._written.append(written)
        while self._keep is not None and len(self._written) > self._keep:
            for path in self._written.popleft():
                path.unlink(missing_ok=True)
                if path.parent != self.folder and not any(path.parent.iterdir()):
                    shutil.rmtree(path.parent, ignore_errors=True)


def _renderer(report: results.Report, format: str) -> Callable[[TextIO], None]:
    if format == "html":
        from stridewise.report import html

        return lambda out: html.render(report, out)
    return lambda out: reporting.render(report, "json", out)


def _write(path: Path, render: Callable[[TextIO], None]) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("w", encoding="utf-8", errors="backslashreplace") as out:
            render(out)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
