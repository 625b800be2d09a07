"""What to try, and for how long."""

from msgspec import Struct


class Options(Struct, frozen=True):
    """What a run of `fix` was asked for."""

    only: tuple[str, ...] = ()
    """Names of kinds; empty for all."""
    asked: tuple[str, ...] = ()
    """The same as it was asked for: `channels_last` stands for several."""
    time_limit: float = 60.0
    """Seconds for all trials together."""
    tolerance: float | None = None
    """Of the largest magnitude of a result; None: by its dtype."""
    library_copies: bool = False
    min_share: float = 0.001
    """Of a step: findings below it are notes."""
