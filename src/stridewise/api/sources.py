"""Source rules."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from stridewise import results
from stridewise.api.shown import Shown, written
from stridewise.errors import UsageError
from stridewise.recording.handle import Recording

if TYPE_CHECKING:
    from stridewise.linter.running.run import Progress as LintProgress
    from stridewise.linter.seen import Seen


class LintRun(Shown, results.LintRun, frozen=True):
    """What the source rules say; it shows itself: as text where it is printed, as JSON where that is asked for."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import lint

        lint.render(self, out, format="text")

    def to_json(self) -> str:
        """The run as `stridewise lint --format json` prints it."""
        from stridewise.report import lint

        return written(lambda out: lint.render(self, out, format="json"))


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
