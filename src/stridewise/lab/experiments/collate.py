"""What a batch looks like after collation, whatever its samples looked like."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import tried


def run(bench: Bench, batch: int, image: int) -> None:
    """Samples of three layouts, none contiguous, of one shape."""
    samples = {
        "transposed": [torch.randn(3, image, image).transpose(1, 2) for _ in range(batch)],
        "permuted from HWC": [torch.randn(image, image, 3).permute(2, 0, 1) for _ in range(batch)],
        "cropped": [torch.randn(3, image + 8, image + 8)[:, 4:-4, 4:-4] for _ in range(batch)],
    }
    for layout, images in samples.items():
        collated = tried(partial(_collated, images))
        text = f"a batch of samples {layout} is not contiguous"
        bench.expect_of("C7", text, collated, lambda batch: not batch.is_contiguous(), _seen)
        usual = torch.stack([each.contiguous() for each in images]).stride()
        text = f"the copies give a batch of samples {layout} other strides"
        bench.expect_of("C81", text, collated, lambda batch, usual=usual: batch.stride() != usual, _seen)  # type: ignore[misc]
    bench.untested("C7", "the curve of the GPU's utilisation gets flat", "it was one training run of the author")
    _safe_collate(bench, samples["transposed"])
    _times(bench, samples["cropped"])


def _collated(images: list[Tensor]) -> Tensor:
    batch: Tensor = default_collate(images)
    return batch


def _seen(batch: Tensor) -> str:
    return f"strides {batch.stride()}, contiguous: {batch.is_contiguous()}"


def _safe_collate(bench: Bench, images: list[Tensor]) -> None:
    batches: dict[str, list[Any]] = {
        "tensors": images,
        "tensors, the first contiguous": [images[0].contiguous(), *images[1:]],
        "(image, label)": [(each, 0) for each in images],
        "dicts": [{"image": each} for each in images],
    }
    caught = [name for name, batch in batches.items() if _warns(batch)]
    bench.expect(
        "C80",
        "it warns of every batch with a strided sample: of tensors, of which the first may be contiguous, pairs, dicts",
        len(caught) == len(batches),
        f"{len(caught)} of {len(batches)}: {', '.join(caught) or 'none'}",
    )
    text = "a batch that it warns of would not be contiguous"
    strided = tried(lambda: [name for name in caught if not default_collate(batches[name]).is_contiguous()])
    if caught:
        bench.expect_of("C80", text, strided, bool, lambda strided: f"{len(strided)} of {len(caught)}")
    else:
        bench.untested("C80", text, "it warns of none")
    bench.count("What a check of the first sample warns of", "batches", {name: int(name in caught) for name in batches})


def _warns(batch: Sequence[object]) -> bool:
    """The article's test in collate_fn."""
    return isinstance(batch[0], Tensor) and not batch[0].is_contiguous()


def _times(bench: Bench, images: list[Tensor]) -> None:
    times = bench.compare(
        "A batch of cropped samples",
        {
            "stack(samples)": lambda: torch.stack(images),
            "stack([s.contiguous() for s in samples])": lambda: torch.stack([each.contiguous() for each in images]),
        },
    )
    bench.predict("C81", times.faster("stack([s.contiguous() for s in samples])", than="stack(samples)"))


EXPERIMENT = Experiment(
    name="collate",
    title="Batches of strided samples",
    method="`default_collate` and `torch.stack` of transposed, permuted and cropped samples, with and without a copy "
    "of each first; the article's test in collate_fn on four kinds of batches. On the CPU, where loaders collate.",
    claims={
        "C7": Claim(
            "1",
            "Keeping strided tensors out of `collate_fn` makes the curve of the GPU's utilisation flat.",
            "Collation writes a new batch, contiguous whatever the samples were: there is nothing to keep out.",
        ),
        "C80": Claim(
            "4.1",
            "A `collate_fn` that tests the first sample finds batches that are not contiguous.",
            "It sees bare tensors only, and of them the first. What it warns of is no strided batch either.",
        ),
        "C81": Claim(
            "4.1",
            "Stacking `x.contiguous()` of each sample keeps strides out of what follows.",
            "`torch.stack` gives a contiguous batch of any samples; the copies are made once more. For a channels_last "
            "batch convert what was stacked.",
        ),
    },
    run=run,
    cpu={"batch": 32, "image": 96},
    quick={"batch": 8, "image": 32},
)
