"""What a loader yields: how samples lie in memory, what collate makes of them, and arrays that torch refuses."""

from stridewise.checks.data.arrays import check_array
from stridewise.checks.data.collate import collate
from stridewise.checks.data.inspect import inspect_loader

__all__ = ["check_array", "collate", "inspect_loader"]
