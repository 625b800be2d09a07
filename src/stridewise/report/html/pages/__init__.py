"""Which page a result is."""

from functools import singledispatch

from stridewise.report.content import Contents
from stridewise.report.html.model import Charts, Page
from stridewise.report.html.pages import check, comparison, compiled, fleet, lab, lint, machine, recording, repair
from stridewise.results import Compiled, Diff, Doctor, Fleet, Lab, LabComparison, LintRun, Repair, Report
from stridewise.results.artefacts import Artefact
from stridewise.results.checks import Conformance, LoaderReport, Preflight


@singledispatch
def page_of(result: object, contents: Contents) -> Page:
    """What the page of a result holds; `contents` are the files that its edits are of.

    Raises TypeError for what is no result.
    """
    raise TypeError(f"{type(result).__name__} is no result of stridewise")


def charts_of(result: object, page: Page) -> Charts:
    """What the script of a result's page draws: nothing but for recordings."""
    return recording.charts(result, page) if isinstance(result, Report) else Charts()


page_of.register(Report, recording.page)
page_of.register(Compiled, compiled.page)
page_of.register(LintRun, lint.page)
page_of.register(Repair, repair.page)
page_of.register(Diff, comparison.page)
page_of.register(Fleet, fleet.page)
page_of.register(Conformance, check.conformance)
page_of.register(Preflight, check.preflight)
page_of.register(LoaderReport, check.loader)
page_of.register(Artefact, check.artefact)
page_of.register(Doctor, machine.page)
page_of.register(Lab, lab.page)
page_of.register(LabComparison, lab.beside)
