"""SW217 backward-array: an array runs backwards through memory, or has strides that no tensor can have.

What it means
    A NumPy array with a negative stride, or with one that is no multiple of its item size, is on its way to torch.
    `from_numpy`, `as_tensor`, `tensor` and `default_collate` raise ValueError for it, even if it is empty or that
    dimension has size 1. `from_dlpack` of a negative stride aborts the process in some versions of torch (2.13 is
    one), without an exception that could be caught.

Why it happens
    `array[::-1]`, `np.flip`, `np.fliplr` and `np.rot90` give views that walk backwards, as flips of images and
    channels do. A field of a packed record has the record's size as its stride. torch has strides of whole elements,
    and none below 0.

How to fix it
    `array.copy()`. `np.ascontiguousarray(array)` does the same, but for arrays in which only dimensions of size 1 run
    backwards: it calls those contiguous already and hands them back as they are.

When to ignore it
    When the array is copied before torch sees it.
"""

from msgspec import Struct

from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding, Severity, Site

SEVERITY: Severity = "error"
WAY = "loader"

_START = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        image = np.full((8, 6, 3), index, dtype=np.uint8)
"""
FIRES = (
    _START
    + """
        return image[:, ::-1], index

def subject():
    return DataLoader(Images(), batch_size=2)
""",
    _START
    + """
        return {"image": torch.from_numpy(np.rot90(image)), "index": index}

def subject():
    return DataLoader(Images(), batch_size=2)
""",
    _START
    + """
        return np.zeros(5, dtype=[("a", "u1"), ("b", "f4")])["b"]

def subject():
    return DataLoader(Images(), batch_size=2)
""",
)
QUIET = (
    _START
    + """
        return image[:, ::-1].copy(), np.fliplr(image).astype(np.float32), index

def subject():
    return DataLoader(Images(), batch_size=2)
""",
    _START
    + """
        return image[:, ::-1]

def stacked(samples):
    return torch.from_numpy(np.stack(samples))

def subject():
    return DataLoader(Images(), batch_size=2, collate_fn=stacked)
""",
)


class ArrayFacts(Struct, frozen=True):
    """An array that is on its way to torch. Strides are in bytes."""

    name: str
    """As it is called: `array`, `field `[0]` of a sample`."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: str

    @property
    def words(self) -> str:
        """`(8, 6, 3) of uint8 with strides (18, -3, 1) bytes`."""
        return f"{self.sizes} of {self.dtype} with strides {self.strides} bytes"


def check(array: ArrayFacts, site: Site) -> Finding | None:
    """Whether torch takes the array."""
    backwards = [at for at, stride in enumerate(array.strides) if stride < 0]
    odd = [at for at, stride in enumerate(array.strides) if stride % max(array.itemsize, 1)]
    if not backwards and not (odd and 0 not in array.sizes):
        return None
    what = f"runs backwards over {_dimensions(backwards)}" if backwards else _odd(array, odd)
    aborts = any(array.sizes[at] > 1 for at in backwards) and 0 not in array.sizes
    then = ", and `from_dlpack` may abort the process" if aborts else ""
    only_ones = bool(backwards) and not aborts
    kept = " `np.ascontiguousarray` hands this one back as it is." if only_ones else ""
    return finding(
        __name__,
        Problem(
            site,
            f"{array.name}, {array.words}, {what}: `from_numpy`, `as_tensor` and `default_collate` raise{then}.",
            advice=f"`.copy()` the array before torch gets it.{kept}",
            evidence=(f"strides {array.strides} bytes, items of {array.itemsize} bytes",),
            details=(array.name,),
        ),
    )


def refused(message: str, site: Site) -> Finding:
    """torch raised for such an array in the program itself; `message` is what it said."""
    return finding(
        __name__,
        Problem(
            site,
            "An array that runs backwards through memory is given to torch here, which raises.",
            advice="`.copy()` the array before torch gets it.",
            evidence=(message,),
        ),
    )


def _dimensions(found: list[int]) -> str:
    return f"dimension{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


def _odd(array: ArrayFacts, found: list[int]) -> str:
    return f"has a stride over {_dimensions(found)} that is no multiple of its {array.itemsize} bytes an item"
