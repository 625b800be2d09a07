"""What checks found, as text: the sentence, what was looked at, each finding, and the smallest layout that shows it."""

from collections.abc import Iterable, Iterator
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from stridewise.findings import Finding
from stridewise.report import Format, artefacts, html, json
from stridewise.report import checks_words as words
from stridewise.report.block import STYLES, placed, titled
from stridewise.report.checks_exchange import Checked, of_checks
from stridewise.report.console import write
from stridewise.report.exchange import dumps
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import inert, one_line, shorten
from stridewise.results import numbers
from stridewise.results.artefacts import Artefact
from stridewise.results.checks import Conformance, Field, Preflight, Tried

_LABEL = 8
_MOST_CASES = 60
_NAME = 32


def render(
    result: Checked,
    out: TextIO,
    *,
    format: Format = "text",
    cases: bool = False,
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write it in one of the formats; as text at most 100 columns wide, but for programs, which stay whole.

    `cases` lists every layout that an operator was run with; JSON holds them always.
    """
    if format == "json":
        out.write(json.dumps(result))
    elif format == "html":
        html.render(result, out)
    elif format == "text":
        write(lambda columns: _lines(result, columns, cases=cases), out, color=color, width=width)
    else:
        out.write(dumps(of_checks(result), format))


def _lines(result: Checked, width: int, *, cases: bool) -> Iterator[Text]:
    if isinstance(result, Conformance):
        yield from _sentence(words.conformance(result), result, width)
        sections = [_operands(result, width), *(_finding(finding, width, result) for finding in result.findings)]
        sections += [_contract(result, width), _cases(result, width) if cases else iter(())]
        end = f"Ran {one_line(result.contained)}. Equal: {one_line(result.tolerance)}. "
    elif isinstance(result, Artefact):
        yield from _sentence(artefacts.sentence(result), result, width)
        sections = [artefacts.inputs(result, width), *(_finding(finding, width, result) for finding in result.findings)]
        sections += [artefacts.guard(result, width), _cases(result, width) if cases else iter(())]
        end = f"It was executed, {one_line(result.contained)}. Equal: {one_line(result.tolerance)}. "
    elif isinstance(result, Preflight):
        yield from _sentence(words.preflight(result), result, width)
        sections = [_looked(result), *(_finding(finding, width) for finding in result.findings)]
        sections += [_fields(result.fields, width)]
        end = ""
    else:
        yield from _sentence(words.loader(result), result, width)
        sections = [*(_finding(finding, width) for finding in result.findings), _fields(result.fields, width)]
        end = f"{numbers.count(result.workers, 'worker')}. "
    for section in sections:
        yield from _apart(section)
    for note in result.notes:
        yield from _apart(hang("note: ", quote(note), width, "bold cyan"))
    environment = ", ".join(f"{one_line(key)} {one_line(value)}" for key, value in result.environment.items())
    code = f"What a code means: stridewise rule {inert(result.findings[0].code)}" if result.findings else ""
    said = f"{end}{environment}{'. ' if environment and code else ''}{code}"
    yield from _apart(hang("", Text(said, "dim"), width) if said else ())


def _sentence(sentence: str, result: Checked, width: int) -> Iterator[Text]:
    yield from hang("", quote(sentence, "bold green" if result.ok else "bold"), width)


def _apart(lines: Iterable[Text]) -> Iterator[Text]:
    for number, line in enumerate(lines):
        if not number:
            yield Text()
        yield line


# ---------------------------------------------------------------------------------------------------- one finding


def _finding(finding: Finding, width: int, result: Conformance | Artefact | None = None) -> Iterator[Text]:
    style = STYLES[finding.severity]
    things = "layout" if result is not None else "place"
    yield from titled(finding, width, numbers.count(finding.count, things) if finding.count > 1 else "")
    if finding.site.file is not None:
        yield from placed(finding.site, style, width)
    elif finding.site.expression or finding.site.module:
        yield from hang("  --> ", quote(_object(finding)), width, "blue")
    for label, text in _labelled(finding):
        yield from hang(f"  {label}".ljust(_LABEL), text, width, "bold")
    for snippet in result.snippets if result is not None else ():
        if snippet.finding == finding.fingerprint:
            yield from hang("  try".ljust(_LABEL), quote(one_line(snippet.layout)), width, "bold")
            yield from _program(snippet.code)


def _object(finding: Finding) -> str:
    expression = one_line(finding.site.expression or "")
    module = one_line(finding.site.module or "")
    return ", ".join(filter(None, (expression, f"module {module}" if module else "")))


def _labelled(finding: Finding) -> Iterator[tuple[str, Text]]:
    if finding.origin is not None and finding.origin != finding.site:
        origin = finding.origin
        expression = f"`{one_line(origin.expression)}` at " if origin.expression and origin.file else ""
        yield "from", quote(f"{expression}{one_line(origin.where)}")
    for evidence in finding.evidence:
        yield "why", quote(evidence)
    if finding.advice:
        yield "fix", quote(finding.advice, "green")
    for edit in finding.edits:
        yield "edit", Text(f"write `{one_line(edit.replacement)}` in {one_line(edit.file)} ({edit.safety})")


def _program(code: str) -> Iterator[Text]:
    """A program as it stands, to be copied."""
    for line in code.rstrip("\n").split("\n"):
        yield Text(f"{' ' * _LABEL}{inert(line.expandtabs(4))}".rstrip(), "dim")


# --------------------------------------------------------------------------------------------------------- tables


def _operands(result: Conformance, width: int) -> Iterator[Text]:
    if not result.operands:
        return
    heads = ("operand", "role", "sizes", "dtype")
    rows = [(one_line(row.name), row.role, _sizes(row.sizes), one_line(row.dtype or "")) for row in result.operands]
    cells = [min(_NAME, max(map(cell_len, texts))) for texts in zip(heads, *rows, strict=True)]
    yield Text(_columns(heads, cells) + "layouts", "bold")
    for texts, row in zip(rows, result.operands, strict=True):
        verdict = f"{row.verdict} for {row.failed}" if row.failed else row.verdict
        style = "red" if row.failed else "green" if row.verdict == "honours strides" else ""
        line = Text.assemble(_columns(texts, cells), f"{row.tried:>7}  ", (verdict, style))
        line.truncate(width, overflow="ellipsis")
        yield line


def _columns(texts: Iterable[str], cells: Iterable[int]) -> str:
    return "".join(f"{column(shorten(text, room), room)}  " for text, room in zip(texts, cells, strict=True))


def _sizes(sizes: tuple[int, ...] | None) -> str:
    return "" if sizes is None else f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _contract(result: Conformance, width: int) -> Iterator[Text]:
    if result.contract is None:
        return
    tried = {None: "not tried", True: "with it every result is right", False: "with it some results are still wrong"}
    yield Text.assemble(("contract", "bold"), f": {tried[result.contract_holds]}")
    yield from _program(result.contract)


def _cases(result: Conformance | Artefact, width: int) -> Iterator[Text]:
    total = numbers.count(len(result.cases), "run")
    yield Text(f"{total}, those with faults first", "bold")
    ordered = sorted(result.cases, key=lambda case: case.verdict == "honours strides")
    for case in ordered[:_MOST_CASES]:
        yield Text(shorten(f"  {case.verdict:<16} {_case(case)}", width))
    if len(ordered) > _MOST_CASES:
        rest = numbers.count(len(ordered) - _MOST_CASES, "more run")
        yield Text(f"  … {rest}: all of them in --format json")


def _case(case: Tried) -> str:
    layouts = "; ".join(one_line(layout) for layout in case.layouts) or "contiguous"
    aspect = "" if case.aspect == "values" else f" ({case.aspect})"
    said = ": ".join(one_line(part) for part in (case.what, case.message) if part)
    return f"{layouts}{aspect}{f': {said}' if said else ''}"


def _looked(result: Preflight) -> Iterator[Text]:
    cells = max((cell_len(one_line(row.what)) for row in result.looked), default=0)
    for row in result.looked:
        yield Text(f"  {column(one_line(row.what), cells)}  {one_line(row.verdict)}")


def _fields(fields: tuple[Field, ...], width: int) -> Iterator[Text]:
    if not fields:
        return
    yield Text("What the loader yields", "bold")
    cells = min(_NAME, max(cell_len(one_line(field.path)) for field in fields))
    for field in fields:
        head = f"  {column(shorten(one_line(field.path), cells), cells)}  "
        sample = f"sample {one_line(field.sample)}; " if field.sample else ""
        yield from hang(head, Text(f"{sample}batch {one_line(field.batch)}{_weight(field)}"), width)


def _weight(field: Field) -> str:
    if field.view_bytes is None or field.storage_bytes is None or field.storage_bytes <= field.view_bytes:
        return ""
    view, storage = numbers.byte_count(field.view_bytes), numbers.byte_count(field.storage_bytes)
    return f"; a sample of {view} holds {storage}"
