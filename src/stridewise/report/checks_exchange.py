"""What checks found, as other programs read it."""

from msgspec.structs import replace

from stridewise.findings import Finding
from stridewise.report import artefacts
from stridewise.report import checks_words as words
from stridewise.report.exchange import Exchange
from stridewise.results.artefacts import Artefact
from stridewise.results.checks import Conformance, LoaderReport, Preflight

Checked = Conformance | Preflight | LoaderReport | Artefact


def of_checks(result: Checked) -> Exchange:
    """Each finding; what was compared stands in its message, for these formats have no other place for it."""
    if isinstance(result, Conformance):
        name, sentence = "stridewise check op", words.conformance(result)
    elif isinstance(result, Artefact):
        name, sentence = "stridewise check artefact", artefacts.sentence(result)
    elif isinstance(result, Preflight):
        name, sentence = "stridewise check model", words.preflight(result)
    else:
        name, sentence = "stridewise check model", words.loader(result)
    return Exchange(name, tuple(map(_whole, result.findings)), sentence, result.notes)


def _whole(finding: Finding) -> Finding:
    return replace(finding, message="\n".join((finding.message, *finding.evidence)))
