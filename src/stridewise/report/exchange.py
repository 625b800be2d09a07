"""What any command found, as other programs read it: code scanning, annotations in CI, test reports."""

from collections.abc import Mapping
from importlib import import_module
from typing import Literal, Protocol, cast

from msgspec import Struct, field

from stridewise.findings import NOT_MEASURED, Edit, Finding
from stridewise.report.content import Contents
from stridewise.report.headline import headline
from stridewise.results import Report, numbers
from stridewise.results.lint import Unread

ExchangeFormat = Literal["sarif", "github", "junit", "markdown"]
_MOST_PAYERS = 6


class Fix(Struct, frozen=True):
    """Edits that are made together."""

    text: str
    """What they do, or how they are made."""
    edits: tuple[Edit, ...]
    offered: bool = True
    """False where a person should write it, as it may change what the program does."""


class Exchange(Struct, frozen=True):
    """What the formats for programs need to know of a result."""

    name: str
    """The command, as in `stridewise lint`."""
    findings: tuple[Finding, ...]
    headline: str
    notes: tuple[str, ...] = ()
    share_of: str | None = None
    """What shares of costs are of."""
    unread: tuple[Unread, ...] = ()
    fixes: Mapping[str, tuple[Fix, ...]] = field(default_factory=dict)
    """By fingerprints of findings."""
    contents: Contents = field(default_factory=Contents)
    """What the offsets of edits lie in."""

    def sentences(self, finding: Finding, *, whole: bool = False) -> tuple[str, ...]:
        """What there is to say of a finding; `whole` with who pays for it, and how it is fixed."""
        cost = "" if finding.cost == NOT_MEASURED else f"Cost: {numbers.cost(finding.cost)}"
        if finding.cost.share is not None and self.share_of is not None:
            cost += f", {numbers.share(finding.cost.share)} of {self.share_of}"
        paid = [f"Paid at {payer.site.where}: {numbers.cost(payer.cost)}." for payer in finding.payers[:_MOST_PAYERS]]
        fixes = [f"Fix: {fix.text}" for fix in self.fixes.get(finding.fingerprint, ())]
        if not whole:
            paid = fixes = []
        return tuple(filter(None, (finding.message, cost and f"{cost}.", *paid, finding.advice, *fixes)))


class Renderer(Protocol):
    """What the module of each such format holds."""

    def dumps(self, result: Exchange) -> str:
        """The whole text."""


def dumps(result: Exchange, format: ExchangeFormat) -> str:
    """Write a result in one of the formats; only that one's module is imported."""
    return cast(Renderer, import_module(f"stridewise.report.{format}")).dumps(result)


def of_report(report: Report) -> Exchange:
    """What a recording's report has for programs; its tables have no place in it."""
    findings = (*report.findings, *(report.compiled.findings if report.compiled is not None else ()))
    return Exchange("stridewise", findings, headline(report), report.notes, report.totals.share_of)
