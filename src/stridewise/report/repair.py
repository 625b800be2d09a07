"""What `fix` found, as text: what wins, the diff, and an account of all else that was tried."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from stridewise.findings import Cost, Finding
from stridewise.measure.statistics import WIN
from stridewise.report import Format, html, json
from stridewise.report import repair_figures as figures
from stridewise.report.console import write
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import inert, one_line
from stridewise.results import numbers
from stridewise.results.repair import Repair, Trial, Verdict

if TYPE_CHECKING:
    from stridewise.source.patch import Written


_LABEL = 10
_VERDICT = 15
_SPEED = 6
_MOST_TRIALS = 24
_MOST_FINDINGS = 8
_MOST_LINES = 3
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
_OPTION_OF_RUN, _OPTION = "`stridewise run --library-copies`", "`--library-copies`"
"""What a note of the analysis names is an option of `fix` too."""
_STYLES: dict[Verdict, str] = {"won": "green", "no difference": "", "lost": "red", "refused": "yellow"}
_ORDER: tuple[Verdict, ...] = ("won", "no difference", "lost", "refused")
_WHERE_BUILT = "make this change where the program builds these objects"
_BY_HAND = {
    "channels-last-model": "in the program, call `.to(memory_format=torch.channels_last)` on it where it is built"
}
"""What to write for a kind whose winner is no edit of a file."""
_DIFF_STYLES = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}


def render(
    repair: Repair,
    out: TextIO,
    *,
    format: Format = "text",
    call: str | None = None,
    written: "Sequence[Written]" = (),
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write it in one of the formats; as text at most 100 columns wide, but for the diff, which stays whole.

    `call` is the command that applies the edits, `written` what it did.
    """
    if format == "json":
        out.write(json.dumps(repair))
    elif format == "html":
        html.render(repair, out)
    elif format == "text":
        write(lambda columns: _lines(repair, columns, call, written), out, color=color, width=width)
    else:
        from stridewise.report import repair_exchange

        out.write(repair_exchange.dumps(repair, format))


def _lines(repair: Repair, width: int, call: str | None, written: "Sequence[Written]") -> Iterator[Text]:
    yield from hang("", quote(figures.headline(repair), "bold green" if repair.won else "bold"), width)
    for trial in repair.won:
        yield Text()
        yield from _winner(trial, repair, width)
    if repair.diff:
        yield Text()
        yield from _diff(repair.diff)
    for section in (_others(repair, width), _untried(repair, width), _lost_format(repair, width), _left(repair, width)):
        yield from _apart(section)
    for note in repair.notes:
        yield Text()
        yield from hang("note: ", quote(note.replace(_OPTION_OF_RUN, _OPTION)), width, "bold cyan")
    yield from _apart(_written(written, width) if written else _next(repair, call, width))
    if repair.trials:
        yield Text()
        yield from hang("", Text(figures.measured(repair), "dim"), width)


def _apart(lines: Iterable[Text]) -> Iterator[Text]:
    for number, line in enumerate(lines):
        if not number:
            yield Text()
        yield line


# ------------------------------------------------------------------------------------------------------- what wins


def _winner(trial: Trial, repair: Repair, width: int) -> Iterator[Text]:
    label = f"won[{one_line(trial.candidate)}] "
    title = Text.assemble((label, "bold green"))
    title.append_text(quote(one_line(trial.what), "bold"))
    yield from hang("", title, width)
    yield from hang("  --> ", Text(figures.place(trial.site)), width, "blue")
    for name, text in _labelled(trial, repair):
        yield from hang(f"  {name}".ljust(_LABEL), text, width, "bold")
    yield from hang("  ", Text(_often_said(trial, width - 2), "dim"), width)


def _labelled(trial: Trial, repair: Repair) -> Iterator[tuple[str, Text]]:
    measured = [
        ("speed", figures.faster(trial)),
        ("copies", figures.copies(trial)),
        ("memory", figures.memory(trial)),
        ("kept", figures.kept(trial)),
        ("results", figures.results(trial)),
    ]
    if len(repair.won) == 1:  # the headline has said the rest
        measured = measured[1:] if trial.equal is not None and trial.unseen else measured[1:4]
    for name, figure in measured:
        if figure is not None:
            yield name, Text(figure)
    if (forecast := figures.forecast(trial)) is not None:
        yield "plan", quote(f"forecast {forecast}")
    for layout in trial.layouts:
        yield "layout", quote(one_line(layout), "yellow")
    if found := figures.titles(trial, repair):
        yield "mends", Text(", ".join(found))
    if not trial.edits:
        yield "edit", quote(f"none: {_BY_HAND.get(trial.candidate, _WHERE_BUILT)}")
    if trial.reason:
        yield "note", quote(one_line(trial.reason))


def _often_said(trial: Trial, width: int) -> str:
    """The advice that people are given, and what is right about it, cut behind a sentence; never the advice alone."""
    sentences = _SENTENCE.split(one_line(trial.answers))
    for count in range(len(sentences), min(2, len(sentences)) - 1, -1):
        text = f"Often said: {' '.join(sentences[:count])}"
        if trial.answers and len(list(hang("", Text(text), width))) <= _MOST_LINES:
            return text
    return ""


def _diff(diff: str) -> Iterator[Text]:
    """Colour a unified diff; nothing of it is wrapped or cut."""
    for line in diff.removesuffix("\n").split("\n"):  # splitlines would break at what is part of a line
        line = line.removesuffix("\r")
        style = next((style for mark, style in _DIFF_STYLES.items() if line.startswith(mark)), "")
        yield Text(inert(line[:1] + line[1:].expandtabs(4)), style)


# ------------------------------------------------------------------------------------------------ what else was tried


def _others(repair: Repair, width: int) -> Iterator[Text]:
    groups = _grouped([trial for trial in repair.trials if not trial.kept])
    if not groups:
        return
    title = "Also tried, and not proposed" if repair.won else "Tried, and not proposed"
    digits = figures.decimals(*(group[0] for group in groups[:_MOST_TRIALS]))
    legend = f"; above 1x is faster, and wins if the interval lies above {1 / WIN:.{digits}f}x"
    timed = any(trial.ratio for group in groups for trial in group)
    yield from hang("", Text.assemble((title, "bold"), (legend if timed else "", "dim")), width)
    for group in groups[:_MOST_TRIALS]:
        yield from _row(group[0], len(group), digits, width)
    if len(groups) > _MOST_TRIALS:
        rest = sum(map(len, groups[_MOST_TRIALS:]))
        yield Text(f"… {numbers.count(rest, 'more edit')}: all of them in --format json")


def _grouped(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Order trials by verdict, and put those together that were refused for one reason."""
    groups: dict[object, list[Trial]] = {}
    for position, trial in enumerate(trials):
        alike = (trial.candidate, trial.reason) if trial.verdict == "refused" else position
        groups.setdefault(alike, []).append(trial)
    return sorted(groups.values(), key=lambda group: _ORDER.index(group[0].verdict))


def _row(trial: Trial, alike: int, digits: int, width: int) -> Iterator[Text]:
    column_of_speed = _SPEED + max(0, digits - 3)
    speed = figures.speed(trial, digits) or ""
    more = f", and {numbers.figure(alike - 1)} more like it" if alike > 1 else ""
    what = quote(one_line(trial.what) + more)
    style = _STYLES[trial.verdict]
    yield from hang(f"{column(figures.verdict(trial), _VERDICT)}{speed:>{column_of_speed}}  ", what, width, style)
    account = quote(_account(trial, digits), "dim")
    place = Text(one_line(trial.site.where), "blue")
    yield from hang(
        " " * (_VERDICT + column_of_speed + 2), Text.assemble(place, ": ", account) if account else place, width
    )


def _account(trial: Trial, digits: int) -> str:
    """What there is to know of a trial that is not proposed: why, then its figures."""
    parts = [one_line(trial.reason)] if trial.reason else []
    between, counted, peak = figures.interval(trial, digits), figures.copies(trial), figures.memory(trial)
    if between is not None:
        parts.append(f"interval {between}")
    if counted is not None and not counted.endswith("as before"):
        parts.append(f"copies {counted.partition(',')[0]}")
    if peak is not None and not peak.endswith("as before"):
        parts.append(f"peak memory {peak}")
    if (forecast := figures.forecast(trial)) is not None:
        parts.append(f"the forecast was {forecast}")
    if trial.equal is False and not trial.reason:
        parts.append(f"results {figures.results(trial)}")
    return "; ".join(parts)


def _untried(repair: Repair, width: int) -> Iterator[Text]:
    """What no time was left for; a note says why."""
    if not repair.untried:
        return
    yield Text(f"Not tried: {numbers.count(len(repair.untried), 'edit')}", "bold")
    for row in repair.untried[:_MOST_TRIALS]:
        what = quote(f"{one_line(row.what)}, ")
        yield from hang("  ", what.append(one_line(row.site.where), "blue"), width)
    if len(repair.untried) > _MOST_TRIALS:
        yield Text(f"… {numbers.count(len(repair.untried) - _MOST_TRIALS, 'more edit')}: all of them in --format json")


# --------------------------------------------------------------------------------------------- what no edit mends


def _lost_format(repair: Repair, width: int) -> Iterator[Text]:
    """Where channels_last would be lost, for who asks about it."""
    if not figures.asks_channels_last(repair):
        return
    lost = repair.format_lost
    if not lost:
        return
    yield Text(f"Where channels_last is lost: {numbers.count(len(lost), 'place')}", "bold")
    yield from _findings(lost, width, messages=True)


def _left(repair: Repair, width: int) -> Iterator[Text]:
    """The findings that cost something and stay; what stays beside edits only a recording with them can tell."""
    found = repair.left if repair.won else repair.findings
    costly = [row for row in found or () if row.severity != "note"]
    if not costly or repair.only:
        return
    which = "Findings that stay" if repair.won else "Findings of the unchanged program"
    yield Text(f"{which}: {numbers.figure(len(costly))}", "bold")
    yield from _findings(costly, width, messages=False)


def _findings(findings: Sequence[Finding], width: int, *, messages: bool) -> Iterator[Text]:
    for row in findings[:_MOST_FINDINGS]:
        cost = "" if row.cost == Cost() else f": {numbers.cost(row.cost)} a step"
        title = Text.assemble(
            (one_line(f"{row.code} {row.title}"), "bold cyan"), " at ", (one_line(row.site.where), "blue"), cost
        )
        yield from hang("  ", title, width)
        if messages or row.code == "SW109":
            yield from hang("    ", quote(one_line(row.message)), width)
    if len(findings) > _MOST_FINDINGS:
        rest = numbers.count(len(findings) - _MOST_FINDINGS, "more finding")
        yield Text(f"  … {rest}: all of them in --format json")


# ------------------------------------------------------------------------------------------------------- what is next


def _next(repair: Repair, call: str | None, width: int) -> Iterator[Text]:
    if not repair.files or not repair.diff:
        return
    own = [one_line(row.file) for row in repair.files if not (row.installed or row.is_cell)]
    installed = [one_line(row.file) for row in repair.files if row.installed]
    cells = [one_line(row.file) for row in repair.files if row.is_cell]
    writes = f"`{one_line(call)}` tries again, and writes what wins" if call else "`.write()` writes this"
    parts = [f"{writes} into {figures.listed(own)}"] if own else []
    if installed:
        subject = "it makes" if own else f"`{one_line(call)}` tries again, and makes" if call else "`.write()` makes"
        parts.append(
            f"{subject} a patch for {figures.listed(installed)}, which is installed and stays as it is: `git apply`"
            " that in a checkout of the package, and send it to its authors"
        )
    if cells:
        parts.append(f"change {figures.listed(cells)} in the notebook")
    yield from hang("Next: ", quote(f"{'; '.join(parts)}."), width, "bold green")


def _written(written: "Sequence[Written]", width: int) -> Iterator[Text]:
    for row in written:
        yield from hang(
            row.what.ljust(12), Text(fate(row)), width, "bold red" if row.what == "skipped" else "bold green"
        )
    if any(row.what == "patch file" for row in written):
        yield from hang("", quote("`git apply` a patch file in a checkout of the package that it is for."), width)


def fate(row: "Written") -> str:
    """What became of a file: its name, where its patch lies, and why it was not written."""
    where = f" → {one_line(row.where)}" if row.where and row.what == "patch file" else ""
    return f"{one_line(row.file)}{where}{f': {one_line(row.reason)}' if row.reason else ''}"
