"""One step, call by call: which layout each tensor had, and where copies were made."""

from msgspec import Struct

from stridewise.findings import Site
from stridewise.layout import LayoutClass


class StepCall(Struct, frozen=True, gc=False):
    """One call of a step, or one node of its backward, with what was called inside it."""

    name: str
    """The function, or in backward the node; in a trace without a call log the operator."""
    module: int
    """Position in `Timeline.modules`; -1: outside modules. A node of backward belongs to its forward call's."""
    site: int
    """Position in `Timeline.sites`; -1: not known."""
    start_ns: int
    """From the start of the step."""
    duration_ns: int
    """On the host: for a device it is how long the launch took."""
    layout: LayoutClass | None
    """Of its main output; of its main input in backward, and in a trace without a call log."""
    sizes: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    copies: int
    """Of the layout tax; those inside libraries and on devices too."""
    bytes_moved: int
    backward: bool


class Timeline(Struct, frozen=True):
    """The first step of a recording."""

    duration_ns: int
    modules: tuple[str, ...]
    """Dotted paths, in order of first execution."""
    sites: tuple[Site, ...]
    calls: tuple[StepCall, ...]
    """By start. None lies inside another; a call that runs a backward is left out for what it runs."""
    left_out: int = 0
    """How many later calls there were beyond the number that is kept."""
