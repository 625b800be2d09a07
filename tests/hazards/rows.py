"""Marks a test with the public reports that it reproduces; `docs/hazards.py` makes its table of them."""

import pytest


def hazard(*rows: int, code: str) -> pytest.MarkDecorator:
    """The test makes the fault of these rows happen in torch, and sees stridewise name it with this code."""
    return pytest.mark.hazard(*rows, code=code)
