"""What an artefact tells of itself, as it goes from the child process to this one. No torch."""

from msgspec import Struct

from stridewise.findings import Site
from stridewise.results.artefacts import ArtefactKind, Checks


class Input(Struct, frozen=True):
    """A tensor that the artefact takes."""

    name: str
    """Of the operand."""
    path: str
    """For guards: `0`, `1.image`, `mask.0`."""
    variable: str
    """In programs that are written."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """That it was made for."""
    dtype: str
    largest: int
    """Of the sample's values, if these are integers."""


class Facts(Struct, frozen=True):
    """What was read from an artefact when it was loaded."""

    kind: ArtefactKind
    versions: dict[str, str]
    inputs: tuple[Input, ...]
    checks: Checks
    call: str | None
    """What stands in the parentheses of a call, with variables; None if that can't be written."""
    notes: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    """Names of positional arguments, where it has some."""
    untried: tuple[Input, ...] = ()
    """Tensors whose layouts are not varied: there are too many, or of kinds that are left alone."""


class Asked(Struct, frozen=True):
    """A place at which the eager model asks for a layout, and the answers."""

    site: Site
    question: str
    """`x.is_contiguous()` as the program has it, or the function's name."""
    home: str
    """The answer in the layouts that the artefact was made for."""
    other: str


class Node(Struct, frozen=True):
    """The node of an exported graph at which it raises."""

    name: str
    target: str
    site: Site
    """The innermost line of the program that it comes from."""
    inner: str
    """The innermost line of all, which may be torch's."""
    elided: Site | None = None
    """An earlier `.contiguous()` or `.reshape()` of the same function that is in no node."""
