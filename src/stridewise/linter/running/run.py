"""One run of the source rules: over files, or over one text that an editor hands in."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from stridewise.config import LintConfig
from stridewise.linter.files.discover import Found, discover
from stridewise.linter.running.cache import Cache, Known, digest_of, key_of
from stridewise.linter.running.checking import Checker, Job, Outcome
from stridewise.linter.running.fixing import Fixed, Tier, is_fixable
from stridewise.linter.running.parallel import check_all
from stridewise.results.lint import LintRun, Mended, Refused, Unread
from stridewise.source.file import SourceFile
from stridewise.source.patch import Document, Rewrite, Skipped, is_exact, replace, unified

if TYPE_CHECKING:
    from stridewise.linter.seen import Seen

Progress = Callable[[int, int], object]
"""Called with the number of files that are linted, and of all."""


class Options(Struct, frozen=True):
    """How a run is made, whatever it finds."""

    fix: Tier | None = None
    """Which fixes to make, if any."""
    diff: bool = False
    """Show what the fixes change, and write nothing."""
    processes: int = 1
    """How many at most, where there is enough to do."""
    cache: Path | None = None
    """The folder of the cache; None for none."""
    seen: "Seen | None" = None
    """What a recording saw."""
    recording: str = ""
    """A name for the content of that recording."""


_NO_OVERRIDES = LintConfig()
_PLAIN = Options()


def lint_paths(
    paths: Sequence[str | os.PathLike[str]] = (),
    overrides: LintConfig = _NO_OVERRIDES,
    options: Options = _PLAIN,
    *,
    respect_gitignore: bool = True,
    force_exclude: bool = False,
    progress: Progress | None = None,
) -> LintRun:
    """Lint the files that some paths (else the current folder) stand for, and fix them if that is asked for.

    What is wrong with one file is told in the result, and the others are linted. Raises UsageError for a path that is
    not there and for unknown codes, InputError for a pyproject.toml that can't be read.
    """
    files, unread = discover(paths, overrides, respect_gitignore=respect_gitignore, force_exclude=force_exclude)
    cache = Cache(options.cache)
    run = _Run(files, options, cache, progress)
    run.check()
    if options.fix is not None:
        run.fix(options.fix, _Writable(paths or (".",)))
    cache.save()
    return run.result(unread)


def lint_text(content: bytes, file: Found, options: Options = _PLAIN) -> tuple[LintRun, bytes]:
    """Lint what an editor has of a file. Gives also the text with the fixes, if they are asked for, else as it is."""
    outcome = Checker(options.seen).check(Job(file, len(content), options.fix, content))
    fixed, refused = outcome.fixed, outcome.refused
    if fixed is not None and options.diff and not is_exact(_change(file, fixed)):
        refused, fixed = _not_shown(file, fixed), None
        outcome = Checker(options.seen).check(Job(file, len(content), None, content))
    after = fixed.after if fixed is not None else content
    result = _result(
        [(file, outcome)],
        fixed=[] if fixed is None else [Mended(file.name, fixed.fixes)],
        refused=[] if refused is None else [Refused(file.name, refused)],
        diff=unified([_change(file, fixed)], Path.cwd()) if fixed is not None and options.diff else "",
        options=options,
    )
    return result, content if options.diff else after


class _Run:
    """The state of a run: what came of each file so far."""

    def __init__(self, files: Sequence[Found], options: Options, cache: Cache, progress: Progress | None) -> None:
        self._files = files
        self._options = options
        self._cache = cache
        self._progress = progress or (lambda done, total: None)
        self._checker = Checker(options.seen)
        self._sizes: dict[Path, int] = {}
        self._outcomes: dict[Path, Outcome] = {}
        self._fixed: list[Mended] = []
        self._refused: list[Refused] = []
        self._changes: list[Rewrite] = []

    def check(self) -> None:
        """Lint every file that is not known as it is."""
        jobs = [job for job in map(self._unknown, self._files) if job is not None]
        done = len(self._files) - len(jobs)
        with closing(check_all(self._checker, jobs, self._options.processes)) as answers:
            for job, outcome in answers:
                self._keep(job.found, outcome)
                done += 1
                self._progress(done, len(self._files))

    def fix(self, tier: Tier, writable: "_Writable") -> None:
        """Fix what is found, and write it unless a diff is wanted."""
        jobs = [
            Job(file, self._sizes[file.path], tier)
            for file in self._files
            if any(is_fixable(finding, tier) for finding in self._outcomes[file.path].findings)
        ]
        with closing(check_all(self._checker, jobs, self._options.processes)) as answers:
            for job, outcome in answers:
                self._fix_one(job.found, outcome, writable)

    def result(self, unread: Iterable[Unread]) -> LintRun:
        """All of it."""
        self._changes.sort(key=lambda change: change.file.name)
        return _result(
            [(file, self._outcomes[file.path]) for file in self._files],
            unread=unread,
            fixed=self._fixed,
            refused=self._refused,
            diff=unified(self._changes, Path.cwd()),
            options=self._options,
        )

    def _fix_one(self, file: Found, outcome: Outcome, writable: "_Writable") -> None:
        reason = outcome.refused
        if outcome.fixed is not None:
            reason = self._put(file, outcome.fixed, writable)
        if reason is not None:
            self._refused.append(Refused(file.name, reason))
        elif outcome.fixed is None or self._options.diff:
            self._outcomes[file.path] = outcome  # what the disk holds may not be what it is about
        else:
            self._keep(file, outcome)

    def _unknown(self, file: Found) -> Job | None:
        """A job for a file, unless what it holds was linted before."""
        try:
            if self._options.cache is None:
                self._sizes[file.path] = file.path.stat().st_size
                return Job(file, self._sizes[file.path])
            content = file.path.read_bytes()
        except OSError:  # the job says what it is
            return Job(file)
        self._sizes[file.path] = len(content)
        digest = digest_of(content)
        known = self._cache.get(self._key(file), digest)
        if known is None:
            return Job(file, len(content))
        self._outcomes[file.path] = Outcome(digest, known.lines, known.findings, known.suppressed, stale=known.stale)
        return None

    def _keep(self, file: Found, outcome: Outcome) -> None:
        self._outcomes[file.path] = outcome
        if self._options.cache is not None and not outcome.unread:
            known = Known(outcome.lines, outcome.findings, outcome.suppressed, outcome.stale)
            self._cache.put(self._key(file), outcome.digest, known)

    def _key(self, file: Found) -> str:
        settings = file.settings
        facts = (*sorted(settings.ignored), str(settings.unused))
        if self._options.seen is not None:
            facts += (self._options.recording, file.recorded_name)
        return key_of(file.name, settings.codes, *facts)

    def _put(self, file: Found, fixed: Fixed, writable: "_Writable") -> str | None:
        """Write the fixes of a file, or keep them for the diff; gives why not."""
        try:
            real = file.path.resolve()
            if not writable(real):
                return f"it is a link to {real}, which lies outside of the given paths"
            if self._options.diff:
                change = _change(file, fixed)
                if not is_exact(change):
                    return _not_shown(file, fixed)
                self._changes.append(change)
            else:
                replace(file.path, fixed.before, fixed.after, may_write=writable, since="it was linted")
        except Skipped as skipped:
            return str(skipped)
        except OSError as error:
            return f"it could not be written: {error.strerror or error}"
        except RuntimeError:  # what Python before 3.13 raises for links that lead in a circle
            return "its links lead in a circle"
        self._fixed.append(Mended(file.name, fixed.fixes))
        return None


class _Writable:
    """Whether a file, with all links followed, is one that the given paths stand for."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._roots = {Path(path).resolve() for path in paths}

    def __call__(self, real: Path) -> bool:
        return real in self._roots or any(parent in self._roots for parent in real.parents)


def _result(
    outcomes: Sequence[tuple[Found, Outcome]],
    *,
    options: Options,
    unread: Iterable[Unread] = (),
    fixed: Sequence[Mended] = (),
    refused: Sequence[Refused] = (),
    diff: str = "",
) -> LintRun:
    return LintRun(
        findings=tuple(finding for _, outcome in outcomes for finding in outcome.findings),
        files=sum(outcome.digest != b"" for _, outcome in outcomes),
        lines=sum(outcome.lines for _, outcome in outcomes),
        unread=tuple(
            sorted((*unread, *_unread(outcomes)), key=lambda each: (each.file, each.cell or 0, each.line or 0))
        ),
        suppressed=sum(outcome.suppressed for _, outcome in outcomes),
        fixed=tuple(sorted(fixed, key=lambda each: each.file)),
        refused=tuple(sorted(refused, key=lambda each: each.file)),
        diff=diff,
        written=bool(fixed) and not options.diff,
        share_of=options.seen.share_of if options.seen is not None else None,
        notes=tuple(_notes(outcomes, options.seen)) if options.seen is not None else (),
    )


def _notes(outcomes: Sequence[tuple[Found, Outcome]], seen: "Seen") -> Iterator[str]:
    """What of a recording was of no use."""
    if not any(seen.name_of(file.path, file.recorded_name) for file, _ in outcomes):
        names = ", ".join(sorted(seen.files)[:3]) or "no file at all"
        yield f"Nothing of the recording was used: it saw none of these files, but {names}."
    stale = sum(outcome.stale for _, outcome in outcomes)
    if stale:
        yield f"{stale} calls of the recording were not used: their lines read otherwise now."


def _unread(outcomes: Iterable[tuple[Found, Outcome]]) -> Iterator[Unread]:
    for _, outcome in outcomes:
        yield from outcome.unread


def _change(file: Found, fixed: Fixed) -> Rewrite:
    # The path itself: the name is for people, and reads otherwise where a path is no text.
    current = Path.cwd()
    path = file.path.relative_to(current) if file.path.is_relative_to(current) else file.path
    return Rewrite(Document(file.path, str(path), fixed.before, on_disk=True), fixed.after)


def _not_shown(file: Found, fixed: Fixed) -> str:
    encoding = SourceFile(file.path, file.name, fixed.before).encoding
    return f"its encoding, {encoding}, can't be shown in a diff; --fix writes it"
