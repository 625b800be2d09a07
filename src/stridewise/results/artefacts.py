"""What `check artefact` found: which input layouts an exported program was made for, and what it does with others."""

from typing import Literal

from msgspec import Struct

from stridewise.findings import Finding
from stridewise.results.checks import OpVerdict, Snippet, Tried
from stridewise.results.schema import SCHEMA_VERSION

ArtefactKind = Literal["exported program", "AOTInductor package", "TorchScript module"]

Checks = Literal["at run time", "only if asked", "no"]
"""Whether an artefact compares the strides that it gets with those that it was made for. `only if asked`: where
`AOTI_RUNTIME_CHECK_INPUTS=1` is set."""


class ArtefactInput(Struct, frozen=True):
    """A tensor that an artefact takes, and what it does with layouts that it was not made for."""

    name: str
    """As the signature has it, with a path into containers: `x`, `batch.image`; `input_0` where there are no names."""
    sizes: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    """Those that it was made for, in elements, for these sizes."""
    checks: Checks
    tried: int
    """Other layouts, with all other inputs in those that the artefact was made for."""
    right: int
    refused: int
    """An error that tells that layout is the matter."""
    wrong: int
    """Silently: other values, or memory that is not the input's, and no error."""
    failed: int
    """Errors that do not tell it, crashes and hangs."""
    verdict: OpVerdict
    """The worst of them."""


class Artefact(Struct, frozen=True):
    """What an exported program does with the layouts of its inputs."""

    name: str
    """Of the file, or of the object's class."""
    kind: ArtefactKind
    versions: dict[str, str]
    """Of what it was made with, as far as it tells."""
    inputs: tuple[ArtefactInput, ...]
    cases: tuple[Tried, ...]
    """All layouts that were tried, also those that hold."""
    findings: tuple[Finding, ...]
    snippets: tuple[Snippet, ...]
    guard: str | None
    """Source of a module whose `guard(program)` gives inputs the layouts that it was made for, or raises; None where
    every layout gave the right result."""
    guard_holds: bool | None
    """Whether every layout was right behind that guard; None if it was not tried."""
    tolerance: str
    """What counts as equal, in words."""
    contained: str
    """How the runs were kept apart from this process, in words."""
    notes: tuple[str, ...]
    environment: dict[str, str]
    interrupted: bool = False
    """Somebody ended it: what stands here is what was tried until then."""
    left: int = 0
    """Runs that were not made, because it was interrupted or its time was over."""
    model_given: bool = False
    """Results were held against the model that it was made from, too: only that shows branches on layout."""
    schema_version: int = SCHEMA_VERSION

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)

    @property
    def compared(self) -> bool:
        """Something that it gives could be compared; else only crashes were looked for."""
        return any(row.verdict not in ("not comparable", "not tried") for row in self.inputs)
