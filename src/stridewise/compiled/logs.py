"""What logs alone tell of a program that somebody else compiled. No torch."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from stridewise.compiled.facts import Facts
from stridewise.compiled.judge import judged
from stridewise.compiled.read import read
from stridewise.compiled.trace_log import Entry
from stridewise.results.compiled import Compiled


def from_entries(
    entries: Iterable[Entry], settings: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Compiled:
    """The graphs, recompilations and breaks that were logged, and what there is to say of them.

    `settings` are those that this version of torch lacks.
    """
    found = read(entries)
    notes = [f"A frame was not compiled: {reason}" for reason in dict.fromkeys(found.failures)]
    if found.graphs:
        notes.append(
            "Only logs were read: results were not held against eager mode, and nothing was timed or compiled without"
            " its layout calls; stridewise.explain_compile does that."
        )
    result = Compiled(
        findings=(),
        graphs=found.graphs,
        recompiles=found.recompiles,
        breaks=found.breaks,
        outputs=(),
        arms=(),
        trials=(),
        missing=(*found.missing, *(f"This torch has no setting {name}." for name in settings)),
        notes=tuple(notes),
        environment=dict(environment or {}),
        code=found.code,
    )
    return replace(result, findings=judged(Facts(result)))
