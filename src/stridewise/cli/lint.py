"""`stridewise lint`."""

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from stridewise.cli import completion
from stridewise.cli.options import OutputOption, QuietOption
from stridewise.cli.output import destination, progress_bar, terminal, writable
from stridewise.cli.show import is_brief, show_brief
from stridewise.cli.step_summary import append_summary
from stridewise.config import MOST, LintConfig, parse_codes, parse_ignores, parse_patterns, project_root
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.linter.running.run import Options
    from stridewise.results.lint import LintRun

_RULES = "Which rules"
_FILES = "Which files"
_FIXES = "Fixes"
_SHOW = "What to show"
_SPEED = "How fast"
_STDIN = "-"
_NO_NAME = "<stdin>"
_PATIENCE_S = 2.0
"""Before a bar is worth a look."""


class LintFormat(StrEnum):
    """What `--format` takes; the names are those of `stridewise.report.Format`."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"
    junit = "junit"
    markdown = "markdown"
    html = "html"


def _codes_option(name: str, help: str) -> Any:
    return typer.Option(
        name, metavar="CODES", autocompletion=completion.source_codes, help=help, rich_help_panel=_RULES
    )


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH…]", help="Files and folders (the current folder, unless given); - is standard input."
        ),
    ] = None,
    select: Annotated[
        list[str] | None,
        _codes_option("--select", "Run these rules only, on by default or not: SW301,SW304, or SW3 for all."),
    ] = None,
    ignore: Annotated[list[str] | None, _codes_option("--ignore", "Leave these rules out.")] = None,
    extend_select: Annotated[
        list[str] | None, _codes_option("--extend-select", "Run these rules too, besides those that run anyway.")
    ] = None,
    extend_ignore: Annotated[
        list[str] | None, _codes_option("--extend-ignore", "Leave these out too, besides what pyproject.toml says.")
    ] = None,
    per_file_ignores: Annotated[
        list[str] | None,
        typer.Option(
            "--per-file-ignores",
            metavar="PATTERN:CODE",
            help="Leave out a rule in files that fit a pattern: 'tests/*:SW301,legacy.py:SW3'.",
            rich_help_panel=_RULES,
        ),
    ] = None,
    recording: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="RECORDING",
            help="Use what a recording of the program saw: how tensors lay, and what copies cost. Only for recordings"
            " of the sources as they are.",
            rich_help_panel=_RULES,
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            metavar="PATTERN",
            help="Pass over files and folders that fit it, in the place of .venv, build and other usual ones.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    extend_exclude: Annotated[
        list[str] | None,
        typer.Option("--extend-exclude", metavar="PATTERN", help="Pass over these too.", rich_help_panel=_FILES),
    ] = None,
    force_exclude: Annotated[
        bool,
        typer.Option(
            "--force-exclude",
            help="Pass over excluded files even if they are given by name, as pre-commit does.",
            rich_help_panel=_FILES,
        ),
    ] = False,
    respect_gitignore: Annotated[
        bool,
        typer.Option(
            "--respect-gitignore/--no-respect-gitignore",
            help="Pass over what .gitignore names.",
            rich_help_panel=_FILES,
        ),
    ] = True,
    stdin_filename: Annotated[
        str | None,
        typer.Option(
            "--stdin-filename",
            metavar="NAME",
            help="Lint standard input as if it were this file; for editors. With --fix the fixed text is written to"
            " standard output, and the report to standard error.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Make the safe fixes in your files. Values and aliasing stay what they were; so do errors, but for"
            " those that every run raised.",
            rich_help_panel=_FIXES,
        ),
    ] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option(
            "--unsafe-fixes",
            help="With --fix or --diff: the fixes too that may change what the program does.",
            rich_help_panel=_FIXES,
        ),
    ] = False,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="Show what --fix would change, and write nothing; exit with 1 if there is anything.",
            rich_help_panel=_FIXES,
        ),
    ] = False,
    statistics: Annotated[
        bool,
        typer.Option("--statistics", help="Show how often each rule fires, and no findings.", rich_help_panel=_SHOW),
    ] = False,
    quiet: QuietOption = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with 0 even if there are findings.", rich_help_panel=_SHOW)
    ] = False,
    format: Annotated[
        LintFormat,
        typer.Option(
            "--format",
            help="text for people, json for programs, sarif for code scanning, github for annotations in Actions,"
            " junit for test reports of CI, markdown for pages of CI, html for a page to open in a browser.",
            rich_help_panel=_SHOW,
        ),
    ] = LintFormat.text,
    output: OutputOption = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            max=MOST,
            metavar="N",
            help="Use so many processes (as many as there are cores, unless set).",
            rich_help_panel=_SPEED,
        ),
    ] = None,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Look at every file again, and keep nothing.", rich_help_panel=_SPEED),
    ] = False,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            "--cache-dir",
            metavar="FOLDER",
            envvar="STRIDEWISE_CACHE_DIR",
            help="The folder of the cache (.stridewise_cache in the project, unless set).",
            rich_help_panel=_SPEED,
        ),
    ] = None,
) -> None:
    """Find layout faults in source, without running it.

    stridewise lint src tests looks at the .py and .ipynb files in these folders; stridewise rule lists the rules,
    and tells of each why. Neither torch nor the project itself is imported.

    A line with # stridewise: ignore[SW304] or # noqa: SW304 is left out, and so is what [tool.stridewise.lint] in
    pyproject.toml says: select, ignore, per-file-ignores, exclude. Files are kept track of by what they hold: those
    that did not change are not looked at again.

    Exits with 1 if there is an error or a warning (after --fix: if one is left), with 2 for a mistake in the call and
    if a file could not be read, or its fixes not written; the other files are linted all the same.
    """
    tier: Any = None if not (fix or diff) else "unsafe" if unsafe_fixes else "safe"
    if unsafe_fixes and tier is None:
        raise UsageError("--unsafe-fixes says which fixes are made: give it with --fix or --diff")
    if statistics and format not in (LintFormat.text, LintFormat.json):
        raise UsageError(f"--statistics are text or json, and --format {format.value} is given")
    from_stdin = _is_stdin(paths or [], stdin_filename)
    overrides = LintConfig(
        select=parse_codes(select or ()),
        extend_select=parse_codes(extend_select or ()),
        ignore=parse_codes(ignore or ()),
        extend_ignore=parse_codes(extend_ignore or ()),
        per_file_ignores=parse_ignores(per_file_ignores or ()),
        exclude=None if exclude is None else parse_patterns(exclude),
        extend_exclude=parse_patterns(extend_exclude or ()),
    )
    from stridewise.linter.files.discover import SUFFIXES

    if output is not None and output.suffix in SUFFIXES and output.is_file():
        raise UsageError(f"--output {output} is a source file, which the report would take the place of")
    if cache_dir == Path():
        raise UsageError("--cache-dir is the current folder: give the name of one for the cache alone")
    output = writable(output, format)

    from stridewise.linter.running.parallel import cores
    from stridewise.linter.running.run import Options, lint_paths

    seen, recorded = _seen(recording)
    cached = not no_cache and (recording is None or recorded is not None)
    options = Options(
        fix=tier,
        diff=diff,
        processes=jobs or cores(),
        cache=(cache_dir or project_root() / ".stridewise_cache") if cached else None,
        seen=seen,
        recording=recorded or "",
    )
    shown: Any = {"format": format.value, "statistics": statistics}
    if from_stdin:
        run = _lint_stdin(
            *(stdin_filename, overrides, options, output, quiet),
            respect_gitignore=respect_gitignore,
            force_exclude=force_exclude,
            **shown,
        )
    else:
        with _progress(quiet=quiet) as progress:
            run = lint_paths(
                paths or (),
                overrides,
                options,
                respect_gitignore=respect_gitignore,
                force_exclude=force_exclude,
                progress=progress,
            )
        if diff and not (run.diff or run.refused) and format is LintFormat.text:
            print(f"stridewise: {_nothing_to_change(run)}", file=sys.stderr)
            if output is None:
                _complain(run)
                raise typer.Exit(_code(run, diff=diff, exit_zero=exit_zero))
        _show(run, output, quiet, **shown)
    raise typer.Exit(_code(run, diff=diff, exit_zero=exit_zero))


def _code(run: "LintRun", *, diff: bool, exit_zero: bool) -> int:
    if run.unread or (run.refused and not diff):
        return 2
    return 0 if exit_zero else int(bool(run.diff or run.refused) if diff else not run.ok)


def _show(
    run: "LintRun",
    output: Path | None,
    quiet: bool,
    *,
    format: Any,
    statistics: bool,
    read: Callable[[str], bytes | None] | None = None,
) -> None:
    """Write the report, and on stderr what went wrong where the report does not say it to a person."""
    from stridewise.report import lint as lint_report

    quiet = is_brief(format, output, quiet=quiet)
    if quiet and not statistics:
        show_brief(run)
    elif not quiet:
        with destination(output) as out:
            lint_report.render(run, out, format=format, statistics=statistics, read=read)
        append_summary(format, lambda out: lint_report.render(run, out, format="markdown", read=read))
    if quiet or output is not None or format != "text":
        _complain(run)


def _nothing_to_change(run: "LintRun") -> str:
    """What --diff says in the place of a diff."""
    fixable = sum(bool(finding.edits) and finding.edits[0].safety == "unsafe" for finding in run.findings)
    if not run.findings:
        return "there is nothing to fix"
    if not fixable:
        return f"no finding has a fix that can be made ({len(run.findings)} without)"
    return f"no finding has a safe fix; --unsafe-fixes would fix {fixable} of {len(run.findings)}"


def _complain(run: "LintRun") -> None:
    from stridewise.report.text import one_line

    lines = [each.reason for each in run.unread]
    lines += [f"{each.file} was not fixed: {each.reason}" for each in run.refused]
    for line in lines:
        print(f"stridewise: {one_line(line)}", file=sys.stderr)


# ------------------------------------------------------------------------------------------------------ standard input


def _is_stdin(paths: Sequence[str], name: str | None) -> bool:
    if name is not None and any(path != _STDIN for path in paths):
        other = next(path for path in paths if path != _STDIN)
        raise UsageError(f"--stdin-filename is for standard input, and {other} is given too: give one of them")
    if _STDIN in paths and len(paths) > 1:
        raise UsageError("- is standard input, and other paths are given too: call once for each")
    return name is not None or _STDIN in paths


def _lint_stdin(
    name: str | None,
    overrides: LintConfig,
    options: "Options",
    output: Path | None,
    quiet: bool,
    *,
    respect_gitignore: bool,
    force_exclude: bool,
    format: Any,
    statistics: bool,
) -> "LintRun":
    from stridewise.linter.files.discover import found_by_name
    from stridewise.linter.running.run import lint_text
    from stridewise.results.lint import LintRun

    if sys.stdin is None:
        raise UsageError("standard input is closed: give a path")
    content = sys.stdin.buffer.read()
    file = found_by_name(name or _NO_NAME, overrides, respect_gitignore=respect_gitignore, force_exclude=force_exclude)
    run, after = (LintRun((), 0, 0), content) if file is None else lint_text(content, file, options)

    def read(asked: str) -> bytes | None:
        return after if file is not None and asked == file.name else None

    if options.fix is None or options.diff:
        _show(run, output, quiet, format=format, statistics=statistics, read=read)
        return run
    with destination(None) as out:
        out.flush()
        cast(io.TextIOWrapper, out).buffer.write(after)
    if output is not None:
        _show(run, output, quiet, format=format, statistics=statistics, read=read)
    elif not quiet:
        from stridewise.report import lint as lint_report

        lint_report.render(run, sys.stderr, format=format, statistics=statistics, read=read)
    return run


# --------------------------------------------------------------------------------------------------------------- others


def _seen(recording: str | None) -> tuple[Any, str | None]:
    """What a recording saw, and a name for its content; None for what is no local file."""
    if recording is None:
        return None, None
    from stridewise.api import seen_in

    file = Path(recording)
    seen = seen_in(recording)
    return seen, sha256(file.read_bytes()).hexdigest() if file.is_file() else None


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal, after a while; nothing anywhere else."""
    console = terminal(quiet=quiet)
    if console is None:
        yield None
        return
    start = time.monotonic()
    bar: Any = None

    def show(done: int, files: int) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - start > _PATIENCE_S:
            bar = progress_bar(console)
            bar.add_task("Linting files", total=None)
            bar.start()
        if bar is not None:
            bar.update(0, completed=done, total=files)

    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(lint)
