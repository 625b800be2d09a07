"""Tensors that ranks exchange: guards around collectives and around DistributedDataParallel."""

from stridewise.checks.ranks.compare import compare_ranks
from stridewise.checks.ranks.ddp import DDPGuard, guard_ddp
from stridewise.checks.ranks.guard import CollectivesGuard, guard_collectives

__all__ = ["CollectivesGuard", "DDPGuard", "compare_ranks", "guard_collectives", "guard_ddp"]
