"""What autocast did in a recording: regions, casts, and what was cast in vain."""

from stridewise.analysis.autocast.use import autocast_use

__all__ = ["autocast_use"]
