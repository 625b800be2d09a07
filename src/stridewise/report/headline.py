"""A report in one sentence."""

from collections.abc import Sequence

from stridewise.findings import Cost, Finding
from stridewise.report.text import one_line
from stridewise.results import Report, numbers

FINE = "Layout is fine"
"""How the sentence of a healthy program begins."""

NOTICEABLE = 0.01
"""From this share of a step on, layout is not called fine, whether or not a finding is shown."""


def headline(report: Report) -> str:
    """Say what layout costs and why; for a healthy program, what the measured share is."""
    if not report.left_out:
        return _sentence(report)
    shown = len(report.findings)
    some = f"{shown} of {shown + report.left_out}"
    return f"{_sentence(report)} Of the findings those that were selected are shown: {some}."


def _sentence(report: Report) -> str:
    errors = sum(finding.severity == "error" for finding in report.findings)
    costs = _costs(report)
    if errors:
        wrong = f"Layout makes results wrong in {numbers.count(errors, 'place')}"
        return f"{wrong}. {costs}." if report.totals.copies else f"{wrong}."
    if not report.ok:
        slow = _kept_from_faster(report)
        if slow and report.totals.copies == 0:
            return f"Layout keeps {slow} from a faster path."
        return f"{costs}{_where(report)}{f'; it keeps {slow} from a faster path' if slow else ''}."
    return _without_findings(report)


def period(report: Report) -> str:
    """Name what the figures are for: `a step`, or all of the recording where no steps were found."""
    return "a step" if report.totals.steps_found else "this run"


def share_of(report: Report) -> str:
    """Name what shares are of: `a step`, or `a step's kernel-busy time`."""
    totals = report.totals
    return period(report) if totals.share_of == "step time" else f"{period(report)}'s {totals.share_of}"


def folded(report: Report) -> str:
    """What the findings that are too small to list cost together; nothing if there are none."""
    row = report.folded
    if not row.findings:
        return ""
    more = "more " if report.listed else ""
    each, together = (" each", ", together") if row.findings > 1 else ("", ":")
    below = f" below {numbers.share(row.min_share)} of {share_of(report)}{each}" if row.min_share else ""
    return f"{numbers.count(row.findings, f'{more}finding')}{below}{together} {cost(row.cost, report)}."


def cost(cost: Cost, report: Report) -> str:
    """What something costs in a step, with its share."""
    text = f"{numbers.cost(cost)} {'a step' if report.totals.steps_found else 'in this run'}"
    if cost.share is not None:
        whole = report.totals.share_of if report.totals.steps_found else share_of(report)
        return f"{text}: {numbers.share(cost.share)} of {whole}"
    return text if cost.duration_ns is not None else f"{text}; the time was not measured"


def measured(report: Report) -> str:
    """What the figures were measured on."""
    totals = report.totals
    steps = numbers.count(totals.steps, "step") if totals.steps_found else "the whole run"
    length = f" of {numbers.duration(totals.step_ns)}" if totals.step_ns is not None else ""
    environment = "".join(f", {one_line(key)} {one_line(value)}" for key, value in report.environment.items())
    return f"Measured: {steps}{length}{environment}."


def _costs(report: Report) -> str:
    totals = report.totals
    if totals.copies is None:
        return _kernels_cost(report)
    copies = numbers.count(totals.copies, "copy", "copies")
    moved = f" {numbers.byte_count(totals.bytes_moved)}" if totals.bytes_moved is not None else ""
    if totals.share is not None:
        moved = f" {_moves(copies)}{moved}" if moved else ""
        return f"Layout costs {numbers.share(totals.share)} of {share_of(report)}: {copies}{moved}"
    when = "a step" if totals.steps_found else "in this run"
    time = f" in {numbers.duration(totals.duration_ns)}" if totals.duration_ns is not None else ""
    return f"Layout costs {copies} {when}{', moving' if moved else ''}{moved}{time}"


def _kernels_cost(report: Report) -> str:
    """What the names of kernels tell where copies were recorded without strides."""
    found = report.totals.layout_kernels
    if found is None or not found.count or found.share is None:
        return "What layout costs is not known"
    share, kernels = numbers.share(found.share), numbers.count(found.count, "kernel")
    return f"Layout costs at least {share} of {period(report)}'s {found.share_of}: {kernels} that only change layout"


def _kept_from_faster(report: Report) -> str:
    slow = sum(finding.count for finding in report.findings if finding.code == "SW108")
    return f"{numbers.count(slow, 'operator')} {period(report)}" if slow else ""


def _moves(copies: str) -> str:
    return "moves" if copies == "1 copy" else "move"


def _where(report: Report) -> str:
    """The expressions that start strided tensors, where most of what is moved is theirs; else how many places pay."""
    if report.left_out:  # the cost is that of all findings
        return ""
    uncounted = report.totals.copies is None
    places = [finding for finding in report.findings if finding.code != "SW108" and (uncounted or finding.cost.copies)]
    streams = [finding for finding in places if finding.code == "SW101" and not report.folded.holds(finding)]
    if not _are_most(streams, places):
        return f", in {numbers.count(len(places), 'place')}" if places else ""
    expressions = sum(finding.site.file is not None for finding in streams)
    inputs, others = len(streams) - expressions, len(places) - len(streams)
    causes = []
    if expressions:
        causes.append(f"{numbers.count(expressions, 'expression')} {_verb(expressions, 'start')} strided tensors")
    if inputs:
        causes.append(f"{numbers.count(inputs, 'input')} {_verb(inputs, 'arrive')} strided")
    elsewhere = f"; {numbers.count(others, 'other place')} {_verb(others, 'add')} to it" if others else ""
    return f", because {' and '.join(causes)}{elsewhere}"


def _are_most(some: Sequence[Finding], of_all: Sequence[Finding]) -> bool:
    """By bytes, which are the same in every run; by copies where those are not known of each."""
    sized = all(finding.cost.bytes_moved is not None for finding in of_all)
    costs = [(finding.cost.bytes_moved if sized else finding.cost.copies) or 0 for finding in of_all]
    theirs = [(finding.cost.bytes_moved if sized else finding.cost.copies) or 0 for finding in some]
    return 2 * sum(theirs) > sum(costs)


def _verb(subjects: int, verb: str) -> str:
    return f"{verb}s" if subjects == 1 else verb


def _without_findings(report: Report) -> str:
    totals, folded = report.totals, report.folded
    if not totals.whole and totals.copies is not None:
        part = f"it {_costs(report).removeprefix('Layout ')}" if totals.copies else "no tensor is copied because of it"
        unknown = "What layout costs is not known: the recording ended before its step was over"
        return f"{unknown}. In what was recorded {part}."
    if slow := _kept_from_faster(report):  # no copy tells of it, but layout is not fine
        cost = f"{_costs(report)}; it" if totals.copies else "Layout"
        return f"{cost} keeps {slow} from a faster path."
    if totals.copies == 0:
        cost = "" if totals.share is None else f"it costs {numbers.share(totals.share)} of {share_of(report)}, and "
        return f"{FINE}: {cost}no tensor is copied because of it."
    if totals.copies is None or totals.share is None:
        return f"{_costs(report)}."
    noted = [finding for finding in report.listed if finding.cost.copies]
    if report.left_out and (noted or totals.share >= NOTICEABLE):
        return f"{_costs(report)}."
    if totals.share < NOTICEABLE and not noted:
        figures = f"{numbers.count(totals.copies, 'copy', 'copies')}, {numbers.byte_count(totals.bytes_moved or 0)}"
        return f"{FINE}: it costs {numbers.share(totals.share)} of {share_of(report)} ({figures})."
    more = "more " if noted else ""
    small = f"{numbers.count(folded.findings, f'{more}finding')} too small to list" if folded.findings else ""
    if noted:  # at any share, lest the verdict change from run to run
        notes = f"in {numbers.count(len(noted), 'place')} that {'a note names' if len(noted) == 1 else 'notes name'}"
        return f"{_costs(report)}, {notes}{' and ' if small else ''}{small}."
    unshown = "it" if numbers.figure(totals.copies) == "1" else "them"
    return f"{_costs(report)}, {f'spread over {small}' if small else f'and no finding is shown for {unshown}'}."
