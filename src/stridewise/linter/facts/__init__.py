"""What the source of a function tells of its values' layouts: a small interpreter, and what torch's functions do."""

from stridewise.linter.facts.interpreter import values

__all__ = ["values"]
