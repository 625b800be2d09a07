"""What `fix` found, for code scanning (SARIF 2.1.0) and as annotations of GitHub Actions."""

import hashlib
import io
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import Any

from stridewise.findings import Edit, Finding
from stridewise.report import repair_figures as figures
from stridewise.report import sarif as sarif_report
from stridewise.report.github import annotation
from stridewise.report.text import one_line
from stridewise.results.repair import Repair, Trial


def github(repair: Repair) -> str:
    """One warning for each edit that wins, then the sentence and the notes."""
    lines = [
        annotation("warning", f"stridewise fix: {one_line(trial.what)}", _gain(trial, repair), trial.site)
        for trial in repair.won
    ]
    lines += [annotation("note", "stridewise fix", text) for text in (figures.headline(repair), *repair.notes)]
    return "".join(lines)


def sarif(repair: Repair) -> str:
    """A result for each finding that stays, or that an edit which won mends: such edits are its fixes.

    Regions of a fix count lines and characters, which only the file can tell: it has fixes as long as the file is what
    it was when the trials ran, and is the project's own.
    """
    hashes = {row.file: row.sha256 for row in repair.files if not row.installed}
    fixes: defaultdict[str, list[Any]] = defaultdict(list)
    for trial in repair.won:
        changes = _changes(trial, hashes)
        for fingerprint in trial.findings if changes else ():
            text = sarif_report.message(f"{trial.what}: {_gain(trial, repair)}")
            fixes[fingerprint].append({"description": {"text": text}, "artifactChanges": changes})
    notifications = (figures.headline(repair), *repair.notes)
    return sarif_report.document(_findings(repair), notifications, fixes=fixes)


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


def _changes(trial: Trial, hashes: dict[str, str]) -> list[Any] | None:
    """The edits of a trial by file; None if one of its files isn't what it was."""
    files: defaultdict[str, list[Edit]] = defaultdict(list)
    for edit in trial.edits:
        files[edit.file].append(edit)
    changes = []
    for file, edits in files.items():
        content = _content(file, hashes.get(file))
        if content is None:
            return None
        replacements = [
            {"deletedRegion": _region(content, edit.span), "insertedContent": {"text": edit.replacement}}
            for edit in edits
        ]
        changes.append({"artifactLocation": sarif_report.artifact(file), "replacements": replacements})
    return changes


def _content(file: str, sha256: str | None) -> bytes | None:
    if sha256 is None:
        return None
    try:
        content = Path(file).read_bytes()
    except (OSError, ValueError):
        return None
    return content if hashlib.sha256(content).hexdigest() == sha256 else None


def _region(content: bytes, span: tuple[int, int]) -> dict[str, int]:
    """A span of bytes as SARIF counts: lines and characters from 1, the end exclusive."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    region = {}
    for name, offset in zip(("start", "end"), span, strict=True):
        before = content[:offset].decode(encoding)
        before = before.replace("\r\n", "\n").replace("\r", "\n")
        region[f"{name}Line"] = before.count("\n") + 1
        region[f"{name}Column"] = len(before) - before.rfind("\n")
    return region
