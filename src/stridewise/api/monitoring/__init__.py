"""A long run watched: one step of many is recorded, and told to whoever keeps its curves."""

from stridewise.api.monitoring.loop import Monitor
from stridewise.api.monitoring.monitor import Options, monitor

__all__ = ["Monitor", "Options", "monitor"]
