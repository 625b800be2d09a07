"""What `--quiet` leaves of a report: a line for each thing to act on, as compilers write them, and nothing else.

`model.py:42:13: SW103 the message`: editors and scripts know this form. Columns are characters, counted from 1.
"""

from collections.abc import Iterable
from typing import TextIO

from stridewise.findings import Finding, Site
from stridewise.report.console import write_plain
from stridewise.report.source import character_region
from stridewise.report.text import one_line
from stridewise.results import Compiled, Diff, Fleet, LintRun, Repair, Report
from stridewise.results.artefacts import Artefact
from stridewise.results.checks import Conformance, LoaderReport, Preflight

Brief = Artefact | Compiled | Conformance | Diff | Fleet | LintRun | LoaderReport | Preflight | Repair | Report


def render(result: Brief, out: TextIO) -> None:
    """Write a line for each error and warning; nothing for a result that is fine.

    Of a diff, what grew beyond the tolerance; of a repair, each edit that wins.
    """
    write_plain("".join(f"{line}\n" for line in _lines(result)), out)


def _lines(result: Brief) -> Iterable[str]:
    if isinstance(result, Repair):
        from stridewise.report import repair_figures as figures

        return [
            _line(trial.site, trial.candidate, f"{trial.what}: {figures.faster(trial, result.confidence)}")
            for trial in result.won
        ]
    if isinstance(result, Diff):
        from stridewise.report import diff

        return [_line(site, code, message) for site, code, message in diff.worse(result)]
    if isinstance(result, Fleet):
        rows = [row for row in result.findings if row.severity != "note"]
        return [_line(row.site, row.code, f"{row.message} ({row.files} of {len(result.rows)} files)") for row in rows]
    findings: tuple[Finding, ...] = result.findings
    if isinstance(result, LintRun) and result.diff and not result.written:
        return [f"{one_line(row.file)}: would fix {one_line(', '.join(row.fixes))}" for row in result.fixed]
    if isinstance(result, Report) and result.compiled is not None:
        findings += result.compiled.findings
    return [_line(row.site, row.code, row.message) for row in findings if row.severity != "note"]


def _line(site: Site | None, code: str, message: str) -> str:
    place = one_line(site.where) if site is not None else ""
    region = character_region(site) if site is not None else None
    if region is not None:
        place += f":{region[0]}"
    return f"{place}: {one_line(code)} {one_line(message)}" if place else f"{one_line(code)} {one_line(message)}"
