"""Which rank of which job this process is, as its launcher says in the environment. No torch, and no collective."""

import os
from collections.abc import Mapping

from msgspec import Struct

_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate, Lightning, DeepSpeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    # Not SLURM_NTASKS: in a batch script that is what srun would start, and there this process is alone.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


class Job(Struct, frozen=True):
    """A process's place among those that were launched together."""

    rank: int
    ranks: int
    """How many there are."""

    @property
    def recording_name(self) -> str:
        """What this rank's recording is called in the folder that the ranks share."""
        return recording_name(self.rank)


def recording_name(rank: int) -> str:
    """What the recording of a rank is called in the folder that the ranks share."""
    return f"rank{rank}.json.gz"


def find_job(environ: Mapping[str, str] = os.environ) -> Job | None:
    """The job that this process was launched in; None if it was started by itself."""
    for rank, ranks in _LAUNCHERS:
        try:
            job = Job(int(environ[rank]), int(environ[ranks]))
        except (KeyError, ValueError):
            continue
        if 0 <= job.rank < job.ranks:
            return job
    return None
