"""What a run of `fix` leaves to whoever writes or applies what won. No torch."""

from collections.abc import Callable

from msgspec import Struct

from stridewise.results import Repair
from stridewise.source.files import Files
from stridewise.source.patch import Change


class Outcome(Struct, frozen=True):
    """A repair, and what it takes to put it into effect."""

    repair: Repair
    changes: tuple[Change, ...]
    """The edited files."""
    files: Files
    apply: Callable[[], None]
    """Puts the winners in place in this process. Raises UsageError where that can't be done."""
