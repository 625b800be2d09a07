"""Writes in place: memory that several indices share."""

from stridewise.checks.writes.guard import check_write, guard_writes

__all__ = ["check_write", "guard_writes"]
