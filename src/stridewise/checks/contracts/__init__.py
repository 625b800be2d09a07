"""Contracts: what layout a function asks of its tensors, held when it is called."""

from stridewise.checks.contracts.decorator import expect_layout
from stridewise.checks.contracts.kinds import same_as
from stridewise.checks.contracts.ops import register_ops

__all__ = ["expect_layout", "register_ops", "same_as"]
