"""What DistributedDataParallel says of strides; runs on a rank."""

import warnings
from collections.abc import Callable


def said_of_strides(step: Callable[[], object]) -> list[str]:
    """Its warnings during a training step that have to do with strides."""
    import torch

    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # it warns of strides once in a process
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            step()
    finally:
        torch.set_warn_always(always)
    return [str(each.message) for each in told if "strides" in str(each.message)]
