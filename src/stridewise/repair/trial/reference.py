"""Which of two results in float32 is nearer to that of float64: ties in a pooling, or a ReLU at 0, may fall anyhow."""

from msgspec.structs import replace

from stridewise.repair.trial.observe import Observation, compare, observe
from stridewise.repair.trial.workload import Workload

NEARER = 1.5
"""How many times as far from the reference as the original an edited program may be."""
FARTHEST = 0.01
"""If the original is farther than this from the reference, that is no reference for it."""


def is_as_exact(workload: Workload, before: Observation, after: Observation) -> bool:
    """Whether an edited program's results are about as near to those in float64 as the original's.

    The original has to be in place. False where it can't compute in float64.
    """
    try:
        with workload.in_double():
            reference = observe(workload)
        was, becomes = _distance(reference, before), _distance(reference, after)
    except Exception:  # it names a dtype somewhere
        return False
    return was <= FARTHEST and becomes <= NEARER * was


def _distance(reference: Observation, results: Observation) -> float:
    tensors = {
        name: replace(reference.tensors[name], value=reference.tensors[name].value.to(seen.value.dtype))
        for name, seen in results.tensors.items()
    }
    plain = Observation(results.tensors, results.numbers)
    return compare(Observation(tensors, reference.numbers), plain, tolerance=1.0).difference
