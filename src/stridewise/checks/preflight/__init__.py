"""What layout will do to a model, its optimizer and its data, looked at before the first step."""

from stridewise.checks.preflight.check import preflight

__all__ = ["preflight"]
