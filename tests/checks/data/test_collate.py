"""`collate` is `default_collate`, but for the memory order of images."""

from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from stridewise.checks.data import collate

Point = namedtuple("Point", ["x", "label"])
LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


def hwc(channels: int = 3, height: int = 4, width: int = 5, fill: float = 0.0) -> Tensor:
    values = torch.arange(height * width * channels).reshape(height, width, channels) + fill
    return values.permute(2, 0, 1)


def same(a: Any, b: Any) -> bool:
    """Equal in values, types and order of containers."""
    if isinstance(a, Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, (dict, UserDict)):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


STRUCTURES = {
    "tensor": lambda x: x,
    "tuple": lambda x: (x, 1),
    "list": lambda x: [x, x.float()],
    "dict": lambda x: {"image": x, "name": "a", "index": 3, "score": 0.5},
    "ordered": lambda x: OrderedDict(b=x, a=(x, [x])),
    "mapping": lambda x: UserDict(x=x),
    "namedtuple": lambda x: Point(x, 2),
    "array": lambda x: (x.numpy(), np.float32(2), b"b"),
    "targets": lambda x: {"image": x, "boxes": x[0], "mask": x.contiguous(), "flag": True, "none": x[:0]},
}


@pytest.mark.parametrize("make", STRUCTURES.values(), ids=STRUCTURES)
def test_values_and_types(make: Any) -> None:
    samples = [make(hwc(fill=float(at))) for at in range(3)]
    assert same(collate(samples), default_collate(samples))


@given(
    st.permutations(range(3)),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
    st.lists(st.integers(1, 2), min_size=3, max_size=3),
    st.integers(1, 3),
    st.booleans(),
)
def test_any_strides(order: list[int], sizes: list[int], steps: list[int], count: int, expand: bool) -> None:
    """Of any memory order, with gaps, size-1, empty and expanded dimensions: the same values at the same indices."""
    samples = []
    for at in range(count):
        stepped = tuple(slice(0, size * step, step) for size, step in zip(sizes, steps, strict=True))
        image = (torch.arange(512) + at).reshape(8, 8, 8)[stepped]
        if expand and sizes[0]:
            image = image[:1].expand(2, *sizes[1:])
        samples.append(image.permute(order))
    ours = collate(samples)
    assert torch.equal(ours, default_collate(samples))
    assert ours.is_contiguous() or ours.is_contiguous(memory_format=LAST)


@pytest.mark.parametrize(
    "image",
    [
        hwc(),
        hwc().float() / 255,
        hwc()[:, 1:3, 1:4],
        hwc(4)[:3],
        hwc().numpy(),
        np.zeros((4, 5, 3), np.uint8).transpose(2, 0, 1),
        hwc(height=1),
    ],
    ids=["permuted", "float", "crop", "without alpha", "array", "transposed array", "one row"],
)
def test_images_become_channels_last(image: Any) -> None:
    batch = collate([image] * 3)
    assert batch.is_contiguous(memory_format=LAST)
    assert not batch.is_contiguous()
    assert batch.stride(1) == 1


def test_volumes_become_channels_last_3d() -> None:
    volume = torch.zeros(2, 3, 4, 5).permute(3, 0, 1, 2)
    assert collate([volume, volume]).is_contiguous(memory_format=LAST_3D)


@pytest.mark.parametrize(
    "image",
    [hwc().contiguous(), hwc(1), torch.zeros(4, 5).expand(3, 4, 5), torch.zeros(3, 5, 4).mT, torch.zeros(2, 3)],
    ids=["CHW", "one channel", "gray expanded", "width first", "matrix"],
)
def test_the_rest_is_contiguous_as_ever(image: Tensor) -> None:
    assert collate([image] * 3).is_contiguous()


def test_it_copies_once() -> None:
    """Into memory that is read in order: the batch's storage holds the images one after the other."""
    images = [hwc(fill=float(at)) for at in range(2)]
    batch = collate(images)
    stored = torch.cat([image.permute(1, 2, 0).flatten() for image in images])
    assert torch.equal(torch.tensor([], dtype=batch.dtype).set_(batch.untyped_storage()), stored)


def test_it_raises_what_default_collate_raises() -> None:
    for samples in ([hwc(), hwc(width=6)], [(1, 2), (1,)], [object()], [hwc().to_sparse()]):
        with pytest.raises(Exception, match=r".+") as ours:
            collate(samples)
        with pytest.raises(type(ours.value)):
            default_collate(samples)


class Images(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return hwc(fill=float(index)), index


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_loader(workers: int) -> None:
    batches = list(DataLoader(Images(), batch_size=2, num_workers=workers, collate_fn=collate))
    plain = list(DataLoader(Images(), batch_size=2))
    for (images, labels), expected in zip(batches, plain, strict=True):
        assert images.is_contiguous(memory_format=LAST)
        assert torch.equal(images, expected[0])
        assert torch.equal(labels, expected[1])
        assert images.is_shared() == (workers > 0)


def test_types_that_the_program_taught_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added to torch's table counts here too."""
    from torch.utils.data._utils.collate import default_collate_fn_map

    class Label:
        pass

    def labels(batch: list[Label], *, collate_fn_map: object = None) -> int:
        return len(batch)

    monkeypatch.setitem(default_collate_fn_map, Label, labels)
    assert collate([(hwc(), Label()), (hwc(), Label())])[1] == 2
