"""The one exception of the layout algebra.

`LayoutError` says the bare fact ("dimension 3 is out of range for 2 dimensions"). Whoever knows which
tensor, call or argument it was about adds that.
"""


class LayoutError(ValueError):
    """A layout that cannot exist, or an operation that this layout does not allow."""
