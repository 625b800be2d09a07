"""The command line: one file a command, each a thin edge over `stridewise.api`."""

from stridewise.cli.app import main

__all__ = ["main"]
