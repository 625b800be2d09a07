"""What `fix` found, as other programs read it."""

import hashlib
from collections import defaultdict

from stridewise.findings import Finding
from stridewise.report import exchange
from stridewise.report import repair_figures as figures
from stridewise.report.content import Contents, on_disk
from stridewise.report.exchange import Exchange, ExchangeFormat, Fix
from stridewise.report.github import annotation
from stridewise.report.text import one_line
from stridewise.results.repair import Repair, Trial

_NAME = "stridewise fix"


def dumps(repair: Repair, format: ExchangeFormat) -> str:
    """Write it in one of the formats; for GitHub it is about edits, for the others about findings."""
    return _annotations(repair) if format == "github" else exchange.dumps(of_repair(repair), format)


def of_repair(repair: Repair) -> Exchange:
    """Each finding that stays, or that an edit which won mends: such edits are its fixes.

    Regions of a fix count lines and characters, which only the file can tell: it has fixes as long as the file is what
    it was when the trials ran, and is the project's own.
    """
    hashes = {row.file: row.sha256 for row in repair.files if not row.installed}
    fixes: defaultdict[str, list[Fix]] = defaultdict(list)
    for trial in repair.won:
        for fingerprint in trial.findings:
            fixes[fingerprint].append(Fix(f"{trial.what}: {_gain(trial, repair)}", trial.edits))
    return Exchange(
        _NAME,
        _findings(repair),
        figures.headline(repair),
        repair.notes,
        fixes={fingerprint: tuple(found) for fingerprint, found in fixes.items()},
        contents=Contents(lambda file: _content(file, hashes.get(file))),
    )


def _annotations(repair: Repair) -> str:
    """One warning for each edit that wins, then the sentence and the notes."""
    lines = [
        annotation("warning", f"{_NAME}: {one_line(trial.what)}", _gain(trial, repair), trial.site)
        for trial in repair.won
    ]
    lines += [annotation("note", _NAME, text) for text in (figures.headline(repair), *repair.notes)]
    return "".join(lines)


def _findings(repair: Repair) -> tuple[Finding, ...]:
    if not repair.won or repair.left is None:
        return repair.findings
    mended = figures.mended(repair)
    names = {row.fingerprint for row in mended}
    return (*mended, *(row for row in repair.left if row.fingerprint not in names))


def _gain(trial: Trial, repair: Repair) -> str:
    parts = [figures.faster(trial, repair.confidence), figures.gains(trial, repair.step_ns)]
    results = figures.results(trial)
    parts += [f"results {results}" if results else None, *trial.layouts]
    text = ", ".join(filter(None, parts)) + "."
    mended = figures.titles(trial, repair)
    return f"{text}\nMends {', '.join(mended)}." if mended else text


def _content(file: str, sha256: str | None) -> bytes | None:
    content = on_disk(file) if sha256 is not None else None
    return content if content is not None and hashlib.sha256(content).hexdigest() == sha256 else None
