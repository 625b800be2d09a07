"""Which implementation ran each operator, in which dtype and on which layouts, and what it missed by layout."""

from stridewise.analysis.paths.find import Execution, find_executions, find_suspects
from stridewise.analysis.paths.missed import Missed

__all__ = ["Execution", "Missed", "find_executions", "find_suspects"]
