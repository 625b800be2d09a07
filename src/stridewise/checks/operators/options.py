"""How an operator is checked."""

from msgspec import Struct


class Options(Struct, frozen=True):
    """What is run, and how long it may take."""

    gradients: bool = True
    """Run the backward, where there is one."""
    second_order: bool = False
    fake: bool = True
    """Compare with the strides that it promises on tensors without data."""
    tolerance: float | None = None
    """The largest difference that counts as equal, as a share of a result's largest magnitude; None: by dtype."""
    timeout_s: float = 10.0
    """Of one run, after which it counts as hung."""
    time_limit_s: float = 60.0
    """Of all of them."""
    sizes: bool = True
    """Cut operands to other sizes too."""
    contain: bool = True
    """Run in a child process. Without, a crash is this process's."""
