"""The pages of checks: of an operator, of a model and its parts, of a loader, of an exported program."""

from msgspec.structs import replace

from stridewise.findings import Finding
from stridewise.report import artefacts
from stridewise.report import checks_words as words
from stridewise.report.content import Contents
from stridewise.report.html.cards import cards, meanings
from stridewise.report.html.model import Figure, Page, Suggestion, Table, Tone
from stridewise.results import numbers
from stridewise.results.artefacts import Artefact
from stridewise.results.checks import Conformance, Field, LoaderReport, Preflight, Tried

_MOST_CASES = 300


def conformance(result: Conformance, contents: Contents) -> Page:
    """What an operator does with the layouts of its operands."""
    table = Table(
        "Operands",
        ("operand", "role", "sizes", "dtype", "layouts", "failed", "verdict"),
        tuple(
            (
                row.name,
                row.role,
                "" if row.sizes is None else str(row.sizes),
                row.dtype or "",
                str(row.tried),
                str(row.failed),
                row.verdict,
            )
            for row in result.operands
        ),
        numeric=(4, 5),
        code=(0, 2, 3),
        leading=True,
    )
    held = {None: "not tried", True: "with it every result is right", False: "with it some results are still wrong"}
    contract: tuple[Suggestion, ...] = ()
    if result.contract is not None:
        contract = (Suggestion(f"Contract: {held[result.contract_holds]}", code=result.contract),)
    page = _page("stridewise check op", words.conformance(result), result, contents, (table, _cases(result.cases)))
    return _with(page, contract, f"Ran {result.contained}. Equal: {result.tolerance}.")


def artefact(result: Artefact, contents: Contents) -> Page:
    """What an exported program does with layouts that it was not made for."""
    table = Table(
        "Inputs",
        ("input", "sizes", "dtype", "made for strides", "right", "refused", "wrong", "failed"),
        tuple(
            (
                row.name,
                str(row.sizes),
                row.dtype,
                str(row.strides),
                *(str(count) for count in (row.right, row.refused, row.wrong, row.failed)),
            )
            for row in result.inputs
        ),
        "Counts are other layouts of the same values. refused: an error that tells of layout; wrong: no error.",
        numeric=(4, 5, 6, 7),
        code=(0, 1, 2, 3),
        leading=True,
    )
    guard: tuple[Suggestion, ...] = ()
    if result.guard is not None:
        guard = (Suggestion("Guard: `stridewise.guard_artefact(program, result)` applies it", code=result.guard),)
    sentence = artefacts.sentence(result)
    page = _page("stridewise check artefact", sentence, result, contents, (table, _cases(result.cases)))
    return _with(page, guard, f"It was executed, {result.contained}. Equal: {result.tolerance}.")


def preflight(result: Preflight, contents: Contents) -> Page:
    """What layout will do to a model, its optimizer, its data and its ranks."""
    looked = Table(
        "Looked at", ("what", "found"), tuple((row.what, row.verdict) for row in result.looked), leading=True
    )
    return _page("stridewise check model", words.preflight(result), result, contents, (looked, _fields(result.fields)))


def loader(result: LoaderReport, contents: Contents) -> Page:
    """What a loader yields."""
    page = _page("stridewise check model", words.loader(result), result, contents, (_fields(result.fields),))
    return _with(page, (), f"{numbers.count(result.workers, 'worker')}.")


def _page(
    command: str,
    verdict: str,
    result: Conformance | Preflight | LoaderReport | Artefact,
    contents: Contents,
    tables: tuple[Table, ...],
) -> Page:
    snippets = result.snippets if isinstance(result, Conformance | Artefact) else ()
    noun = "layout" if isinstance(result, Conformance | Artefact) else "place"
    return Page(
        command=command,
        verdict=verdict,
        tone=_tone(result.findings),
        figures=tuple(
            Figure(str(sum(finding.severity == severity for finding in result.findings)), f"{severity}s")
            for severity in ("error", "warning", "note")
        ),
        cards=cards(result.findings, contents=contents, snippets=snippets, noun=noun),
        tables=tuple(table for table in tables if table.rows),
        notes=result.notes,
        measured=", ".join(f"{key} {value}" for key, value in result.environment.items()),
        meanings=meanings(result.findings),
    )


def _with(page: Page, suggestions: tuple[Suggestion, ...], measured: str) -> Page:
    return replace(page, suggestions=suggestions, measured=f"{measured} {page.measured}".strip())


def _tone(findings: tuple[Finding, ...]) -> Tone:
    severities = {finding.severity for finding in findings}
    return "wrong" if "error" in severities else "look" if "warning" in severities else "fine"


def _fields(fields: tuple[Field, ...]) -> Table:
    return Table(
        "What the loader yields",
        ("field", "a sample", "a batch", "kept by a sample"),
        tuple(
            (
                row.path,
                row.sample or "not known",
                row.batch,
                "" if row.storage_bytes is None else numbers.byte_count(row.storage_bytes),
            )
            for row in fields
        ),
        numeric=(3,),
        code=(0, 1, 2),
    )


def _cases(cases: tuple[Tried, ...]) -> Table:
    ordered = sorted(cases, key=lambda case: case.verdict == "honours strides")
    more = len(ordered) - _MOST_CASES
    return Table(
        f"{numbers.count(len(cases), 'run')}, those with faults first",
        ("verdict", "layouts", "compared", "said"),
        tuple(
            (
                case.verdict,
                "; ".join(case.layouts) or "contiguous",
                case.aspect,
                ": ".join(part for part in (case.what, case.message) if part),
            )
            for case in ordered[:_MOST_CASES]
        ),
        f"{numbers.count(more, 'more run')}: all of them in --format json." if more > 0 else "",
        code=(1,),
        folded=True,
    )
