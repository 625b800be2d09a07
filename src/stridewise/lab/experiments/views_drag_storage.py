"""A small view of a large image takes the whole image with it."""

import io

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import tried
from stridewise.results.numbers import byte_count

_CROP = 32


def run(bench: Bench, image: int) -> None:
    """Two crops: rows and columns, and the first rows alone, which are contiguous as they are."""
    whole = torch.randn(3, image, image)
    rows = torch.randn(image, image, 3)
    crop, band = whole[:, :_CROP, :_CROP], rows[:_CROP]
    saved = {
        "crop": _saved(crop),
        "crop.contiguous()": _saved(crop.contiguous()),
        "band": _saved(band),
        "band.contiguous()": _saved(band.contiguous()),
        "band.clone()": _saved(band.clone()),
    }
    bench.count("Size of a file that torch.save writes", "B", saved)
    bench.compare(
        "Saving a crop",
        {"save(crop)": lambda: _saved(crop), "save(crop.clone())": lambda: _saved(crop.clone())},
    )

    text = "`contiguous()` leaves less than a tenth of what a crop of rows and columns writes"
    least = saved["crop.contiguous()"] * 10 < saved["crop"]
    seen = f"{byte_count(saved['crop'])} before, {byte_count(saved['crop.contiguous()'])} after"
    bench.expect("C86", text, least, seen)
    bench.expect("C102", text, least, seen)
    batch = tried(lambda: torch.stack([crop, crop]))
    for claim, text in (
        ("C86", "without it the batch is not contiguous"),
        ("C102", "a batch of samples as they are is not contiguous"),
    ):
        bench.expect_of(claim, text, batch, lambda batch: not batch.is_contiguous(), _strides)
    bench.expect(
        "C102",
        "`contiguous()` leaves less than a tenth of what a crop of the first dimension writes",
        saved["band.contiguous()"] * 10 < saved["band"],
        f"{byte_count(saved['band'])} before, {byte_count(saved['band.contiguous()'])} after, "
        f"{byte_count(saved['band.clone()'])} with `clone()`",
    )


def _strides(batch: Tensor) -> str:
    return f"strides {batch.stride()}, contiguous: {batch.is_contiguous()}"


def _saved(value: Tensor) -> int:
    """How many bytes a file with this tensor has."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.tell()


EXPERIMENT = Experiment(
    name="views-drag-storage",
    title="Views that drag their storage along",
    method="Bytes that `torch.save` writes of a crop, of its `contiguous()` and of its `clone()`; a loader's worker "
    "sends the whole storage too. Then the strides of a batch of crops.",
    claims={
        "C86": Claim(
            "4.1",
            "It is cheapest to make tensors contiguous where data enter.",
            "What is saved there is storage, not strides: a small view of a large image takes all of it along.",
        ),
        "C102": Claim(
            "4.3",
            "`Dataset.__getitem__` must return `img.contiguous()`.",
            "Collation makes the batch contiguous. `clone()` is what a small view of a large storage needs: "
            "`contiguous()` does nothing to a crop of the first dimension.",
        ),
    },
    run=run,
    cpu={"image": 1000},
    quick={"image": 512},
)
