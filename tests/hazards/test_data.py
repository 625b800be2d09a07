"""What goes wrong between a data set and the first batch: arrays that torch refuses, layouts that collate loses."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from stridewise.checks.data import check_array, collate, inspect_loader

from .rows import hazard


class Samples(Dataset):
    """Four images, made by a function of a decoded HWC array."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.make(np.full((6, 5, 3), index, dtype=np.uint8))


def codes(make, **options):
    return [finding.code for finding in inspect_loader(DataLoader(Samples(make), batch_size=2, **options)).findings]


FLIPS = {
    "a[::-1]": lambda a: a[::-1],
    "a[:, ::-1]": lambda a: a[:, ::-1],
    "flip": np.flip,
    "rot90": np.rot90,
    "BGR to RGB": lambda a: a[..., ::-1],
}


@hazard(43, code="SW217")
@pytest.mark.parametrize("name", FLIPS)
def test_a_flipped_array_is_refused(name):
    """torch has no negative strides: a flip in NumPy raises where the array reaches torch, far from the flip."""
    flip = FLIPS[name]
    flipped = flip(np.zeros((6, 5, 3), np.uint8))
    for call in (torch.from_numpy, torch.as_tensor, torch.tensor, lambda array: default_collate([array])):
        with pytest.raises(ValueError, match="negative"):
            call(flipped)
    assert [finding.code for finding in check_array(flipped)] == ["SW217"]
    assert codes(flip) == ["SW217"]
    assert codes(lambda array: torch.from_numpy(flip(array))) == ["SW217"]
    assert torch.from_numpy(flipped.copy()).shape == flipped.shape
    assert codes(lambda array: flip(array).copy()) == []


ABORTS = """
import numpy as np, resource, torch
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
array = np.arange(6.0).reshape(2, 3)[::-1]
try:
    torch.from_dlpack(array{copy})
except Exception:
    print("raised")
else:
    print("went on")
"""


def run(copy):
    return subprocess.run([sys.executable, "-c", ABORTS.format(copy=copy)], capture_output=True, text=True)


@hazard(44, code="SW217")
def test_from_dlpack_of_a_flipped_array_ends_the_process():
    """The check for strides throws where nothing may be thrown: the interpreter is gone, without a traceback."""
    ended = run("")
    assert ended.returncode < 0, "torch is healed"
    assert ended.stdout == ""
    flipped = np.arange(6.0).reshape(2, 3)[::-1]
    (found,) = check_array(flipped)
    assert found.code == "SW217"
    assert "`from_dlpack` may abort the process" in found.message
    assert torch.from_dlpack(flipped.copy()).tolist() == flipped.tolist()


@hazard(44, code="SW217")
def test_a_loader_that_would_end_the_process_is_looked_at():
    """Inspecting it must not end the process either."""
    assert codes(lambda array: torch.from_dlpack(array[::-1])) == ["SW217"]
    assert codes(lambda array: torch.from_dlpack(array[::-1]), num_workers=1) == ["SW217"]
    assert codes(lambda array: torch.from_dlpack(array[::-1].copy())) == []


@hazard(83, code="SW216")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_images_that_lie_as_hwc_is_nchw(workers):
    """Samples keep HWC memory through permute, casts and arithmetic; stack and default_collate give NCHW."""

    def permuted(array):
        return torch.from_numpy(array).permute(2, 0, 1).float() / 255

    sample = permuted(np.zeros((6, 5, 3), np.uint8))
    assert sample.stride() == (1, 15, 3)
    for batch in (torch.stack([sample, sample]), default_collate([sample, sample])):
        assert batch.is_contiguous(), "torch is healed"
    assert codes(permuted, num_workers=workers) == ["SW216"]
    assert codes(lambda array: array.transpose(2, 0, 1), num_workers=workers) == ["SW216"]
    cured = DataLoader(Samples(permuted), batch_size=2, num_workers=workers, collate_fn=collate)
    plain = DataLoader(Samples(permuted), batch_size=2)
    for batch, expected in zip(cured, plain, strict=True):
        assert batch.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch, expected)
    assert codes(permuted, num_workers=workers, collate_fn=collate) == []


@hazard(84, code="SW216")
def test_numpy_need_not_reorder_images():
    """`np.ascontiguousarray` of a transposed image is the slow way; the view is enough for a channels_last batch."""
    image = np.arange(6 * 5 * 3, dtype=np.uint8).reshape(6, 5, 3)
    view = image.transpose(2, 0, 1)
    reordered = default_collate([np.ascontiguousarray(view)] * 2)
    assert reordered.is_contiguous()
    batch = collate([view] * 2)
    assert torch.equal(batch, reordered)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert codes(lambda array: array.transpose(2, 0, 1)) == ["SW216"]
    assert codes(lambda array: array.transpose(2, 0, 1), collate_fn=collate) == []
