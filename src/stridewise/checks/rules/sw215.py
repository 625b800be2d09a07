"""SW215 sample-ships-storage: a worker sends a whole storage for a view of a small part of it.

What it means
    A tensor that comes out of a worker process of a loader is a view, and its storage is much larger than the view.
    Workers send storages: all of it is put into shared memory, for each batch, and stays there until the view is gone.

Why it happens
    Slicing, `narrow`, `chunk` and indexing give views, such as a crop of an image or a window of a long recording.
    When collate stacks samples, only the views' elements are copied. Without it (`batch_size=None`, or a collate that
    gives a list of samples) the views themselves are sent. `contiguous()` does not help where the view is contiguous
    already, as whole rows are: it gives the same view back.

How to fix it
    `clone()` the view in the dataset: `return image[:, 40:60].clone()`.

When to ignore it
    When the storage lies in shared memory from the start (`share_memory_()`) and is kept by the program anyway.
"""

from msgspec import Struct

from stridewise.checks.rule import Problem, finding
from stridewise.findings import Finding, Severity, Site
from stridewise.results.numbers import byte_count

SEVERITY: Severity = "warning"
WAY = "loader"

_START = """
import torch
from torch.utils.data import DataLoader, Dataset

class Crops(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        image = torch.zeros(3, 400, 400)
        return crop(image)
"""
FIRES = (
    _START
    + """
def crop(image):
    return image[:, 40:60, 40:60]

def subject():
    return DataLoader(Crops(), batch_size=None, num_workers=1)
""",
    _START
    + """
def crop(image):
    return {"crop": image[0, 40:60].contiguous(), "label": 1}

def as_list(samples):
    return samples

def subject():
    return DataLoader(Crops(), batch_size=2, num_workers=1, collate_fn=as_list)
""",
)
QUIET = (
    _START
    + """
def crop(image):
    return image[:, 40:60, 40:60].clone()

def subject():
    return DataLoader(Crops(), batch_size=None, num_workers=1)
""",
    _START
    + """
def crop(image):
    return image[:, 40:60, 40:60]

def subject():
    return DataLoader(Crops(), batch_size=2, num_workers=1)
""",
    _START
    + """
def crop(image):
    return image[:1], image[1:]

def subject():
    return DataLoader(Crops(), batch_size=None, num_workers=1)
""",
)

_LEAST_WASTED = 64_000
_LEAST_FACTOR = 2


class Sent(Struct, frozen=True):
    """A storage that a worker sent, and the views of it in one batch."""

    path: str
    """Of the first of these views."""
    site: Site
    words: str
    """Layout of the first view."""
    view_bytes: int
    """Of all views together."""
    storage_bytes: int
    workers: int
    count: int = 1
    """How many such storages came in one batch."""


def check(sent: Sent) -> Finding | None:
    """Whether much more is sent than is looked at."""
    wasted = sent.storage_bytes - sent.view_bytes
    if not sent.workers or wasted < _LEAST_WASTED or sent.storage_bytes < _LEAST_FACTOR * sent.view_bytes:
        return None
    view, storage = byte_count(sent.view_bytes), byte_count(sent.storage_bytes)
    return finding(
        __name__,
        Problem(
            sent.site,
            f"Field `{sent.path}` is a view of {view}, and its worker sends all of the storage behind it: {storage}.",
            advice="`clone()` the view in the dataset; `contiguous()` may give the same view back.",
            evidence=(f"{sent.words}: {sent.view_bytes:,} bytes of a storage of {sent.storage_bytes:,}",),
            count=sent.count,
            details=(sent.path,),
        ),
    )
