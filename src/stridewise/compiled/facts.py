"""What the rules on compiled code judge. No torch."""

from msgspec import Struct

from stridewise.findings import Site
from stridewise.results.compiled import Compiled, Strides


class Promise(Struct, frozen=True):
    """A result of an operator whose fake kernel promises other strides than the real one gives."""

    op: str
    site: Site
    promised: Strides
    given: Strides


class Facts(Struct, frozen=True):
    """A result without its findings, and what was found out besides."""

    result: Compiled
    promises: tuple[Promise, ...] = ()
    """Looked for where results differ or something was raised."""
    failed: str | None = None
    """What the compiled program raises, and eager mode doesn't."""
    dynamic_recompiles: int | None = None
    """How often it was compiled again for strides with `dynamic=True`; None if that was not tried."""
