"""What comes of one file: its findings, its fixes if they are wanted, and what of it could not be read."""

import gc
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from stridewise.errors import InputError
from stridewise.findings import Finding
from stridewise.linter.comments import suppress
from stridewise.linter.engine import check_source
from stridewise.linter.files.discover import Found
from stridewise.linter.rule import Rule
from stridewise.linter.running import fixing
from stridewise.linter.running.cache import digest_of
from stridewise.linter.running.fixing import Fixed, Tier, Unsettled
from stridewise.linter.running.notebook import Cells
from stridewise.results.lint import Unread
from stridewise.source.file import SourceFile

if TYPE_CHECKING:
    from stridewise.linter.seen import Seen, SeenFile


class Job(Struct, frozen=True):
    """A file to look at."""

    found: Found
    size: int = 0
    """In bytes, as it was a moment ago."""
    fix: Tier | None = None
    """Which fixes are tried, if any. Nothing is written."""
    content: bytes | None = None
    """In the place of what is on disk."""


class Outcome(Struct, frozen=True):
    """What came of a file."""

    digest: bytes = b""
    """Of the content that was read."""
    lines: int = 0
    findings: tuple[Finding, ...] = ()
    suppressed: int = 0
    unread: tuple[Unread, ...] = ()
    fixed: Fixed | None = None
    """What the fixes make of it; the findings are then those that are left."""
    refused: str | None = None
    """Why its fixes were not made: a clause without a full stop."""
    stale: int = 0
    """How many recorded calls are of lines that read otherwise now."""

    @classmethod
    def failed(cls, job: Job, why: str) -> "Outcome":
        """Of a file that could not be linted, whatever is in it."""
        return cls(unread=(Unread(job.found.name, None, f"{job.found.name} was not linted: {why}."),))


class Checker(Struct, frozen=True):
    """What looks at files, with what a recording saw of them."""

    seen: "Seen | None" = None

    def check(self, job: Job) -> Outcome:
        """What comes of one job. Nothing that is wrong with the file is raised, and no defect of a rule."""
        try:
            source, told = _opened(job)
            looked = self._look(source, job.found)
            outcome = told(looked)
        except InputError as error:
            return Outcome(unread=(_unread(job.found.name, error),))
        except Exception as error:
            return Outcome.failed(job, _why(error))
        if job.fix is None or looked.unread:
            return outcome
        try:
            mended = self._mended(source, looked, job.found, job.fix)
            return outcome if mended is None else told(mended)
        except Unsettled as error:
            return replace(outcome, refused=str(error))
        except Exception as error:
            return replace(outcome, refused=_why(error))

    def _look(self, source: SourceFile, found: Found) -> Outcome:
        rules = found.settings.rules
        seen = self._seen(source, found)
        findings, failures = _findings(source, rules, seen)
        count = 0
        if findings or suppress.has_comments(source.content):
            heard = suppress.apply(source, findings, found.settings)
            findings, count = _in_order((*heard.kept, *heard.unused)), heard.count
        stale = seen.stale if seen is not None else 0
        return Outcome(digest_of(source.content), _lines(source.content), findings, count, failures, stale=stale)

    def _mended(self, source: SourceFile, looked: Outcome, found: Found, tier: Tier) -> Outcome | None:
        last = looked

        def again(changed: SourceFile) -> tuple[Finding, ...]:
            nonlocal last
            last = self._look(changed, found)
            return last.findings

        fixed = fixing.mend(source, looked.findings, again, tier)
        return None if fixed is None else replace(last, fixed=fixed)

    def _seen(self, source: SourceFile, found: Found) -> "SeenFile | None":
        if self.seen is None:
            return None
        return self.seen.of(found.path, found.recorded_name, re.split("\r\n|\r|\n", source.text))


@contextmanager
def collector_paused(*, own_process: bool = False) -> Iterator[Callable[[], object]]:
    """Keep the garbage collector from walking over trees that are all in use; gives what collects for once.

    In a process of its own, what is there already is left out of it for good.
    """
    enabled = gc.isenabled()
    gc.disable()
    if own_process:
        gc.freeze()
    try:
        yield gc.collect
    finally:
        if enabled:
            gc.enable()


def _opened(job: Job) -> tuple[SourceFile, Callable[[Outcome], Outcome]]:
    """What the rules look at, and what makes of what came of it what came of the file."""
    found = job.found
    if found.is_notebook:
        cells = Cells(found.path, found.name, job.content)
        return cells.source, cells.told
    return SourceFile(found.path, found.name, job.content), lambda outcome: outcome


def _findings(
    source: SourceFile, rules: Sequence[Rule], seen: "SeenFile | None"
) -> tuple[tuple[Finding, ...], tuple[Unread, ...]]:
    """What the rules find, and what became of those that failed: the others are heard all the same."""
    try:
        return check_source(source, rules, seen), ()
    except Exception:  # of a rule, whatever it is: which one, the second try tells
        found: list[Finding] = []
        failed: list[Unread] = []
        for rule in rules:
            try:
                found += check_source(source, [rule], seen)
            except Exception as error:
                failed.append(
                    Unread(source.name, None, f"{source.name} was not checked for {rule.code}: {_why(error)}.")
                )
        return _in_order(found), tuple(failed)


def _why(error: Exception) -> str:
    """What an exception means that nobody expected, as a clause."""
    if isinstance(error, (RecursionError, MemoryError)):
        return "it is nested too deeply, or too large"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename.rpartition('stridewise/')[2]}:{frame.lineno}"
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"that failed with {text} ({place}), a defect of stridewise: please report it"


def _unread(name: str, error: InputError) -> Unread:
    text = str(error)
    match = re.match(r":(\d+) ", text.removeprefix(name))
    return Unread(name, int(match[1]) if match and text.startswith(name) else None, text)


def _in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: (finding.site.line or 0, finding.site.column or 0, finding.code)))


def _lines(content: bytes) -> int:
    ends = content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")
    return ends + (not content.endswith((b"\n", b"\r")) and bool(content))
