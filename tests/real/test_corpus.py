"""Lint's precision: what the default rules find in four libraries was read and judged, finding by finding.

The libraries come with `make corpus`, in the versions of `corpus/requirements.txt`. A finding that is not in
`corpus/judged.tsv`, or a row there without its finding, fails: read it in the source, and judge it.
"""

import csv
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

import stridewise
from stridewise.results import LintRun

HERE = Path(__file__).parent / "corpus"
CORPUS = Path(__file__).parents[2] / ".corpus" / "src"
PACKAGES = ("diffusers", "timm", "torchvision", "transformers")
MOST_FALSE = 0.05

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="there is no corpus: run `make corpus`")


class Judged(NamedTuple):
    """One row of the list."""

    code: str
    file: str
    line: int
    expression: str
    verdict: str
    reason: str


@pytest.fixture(scope="module")
def run() -> LintRun:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(CORPUS)
        return stridewise.lint(*PACKAGES, respect_gitignore=False)


def judged() -> list[Judged]:
    with (HERE / "judged.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [Judged(code, path, int(line), *rest) for code, path, line, *rest in rows[1:]]


def test_every_file_was_read(run: LintRun) -> None:
    assert run.unread == ()
    assert run.files > 4_000


def test_every_finding_was_judged(run: LintRun) -> None:
    found = Counter((finding.code, finding.site.file, finding.site.line) for finding in run.findings)
    known = Counter((row.code, row.file, row.line) for row in judged())
    assert sorted((found - known).elements()) == []
    assert sorted((known - found).elements()) == []


def test_few_are_false() -> None:
    rows = judged()
    assert {row.verdict for row in rows} <= {"true", "false"}
    assert all(row.reason for row in rows)
    false = [row for row in rows if row.verdict == "false"]
    assert len(false) < MOST_FALSE * len(rows)


def test_how_many_of_each(run: LintRun, snapshot: object) -> None:
    counts = Counter((Path(finding.site.file or "").parts[0], finding.code) for finding in run.findings)
    assert {f"{package} {code}": counts[package, code] for package, code in sorted(counts)} == snapshot


@pytest.mark.parametrize(
    ("code", "file", "expression"),
    [
        ("SW301", "transformers/models/gpt_bigcode/modeling_gpt_bigcode.py", "encoder_attention_mask.unsqueeze(1)"),
        ("SW310", "transformers/models/yoso/modeling_yoso.py", "is_contiguous"),
        ("SW310", "transformers/models/prophetnet/modeling_prophetnet.py", "is_contiguous"),
    ],
)
def test_faults_that_are_known(run: LintRun, code: str, file: str, expression: str) -> None:
    found = [finding.site for finding in run.findings if finding.code == code and finding.site.file == file]
    assert any(expression in (site.expression or "") for site in found)
