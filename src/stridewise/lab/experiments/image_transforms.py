"""What the ways from a PIL image to a tensor leave behind."""

import os
from typing import Any

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.peer import needed

_MODES = ("L", "RGBA", "CMYK", "1")
"""Of images, some with other bytes a pixel than RGB."""


def run(bench: Bench, batch: int, height: int, width: int) -> None:
    """Pixels as a decoder gives them are rows of pixels of three bytes."""
    images = [torch.randint(256, (height, width, 3), dtype=torch.uint8) for _ in range(batch)]
    bench.compare(
        "A batch of decoded images, as floats",
        {
            "each made contiguous floats, stacked": lambda: torch.stack(
                [each.permute(2, 0, 1).contiguous().float().div(255) for each in images]
            ),
            "each permuted, stacked, made floats": lambda: (
                torch.stack([each.permute(2, 0, 1) for each in images]).float().div(255)
            ),
        },
    )
    of_pixels, of_tensor, of_converted = (
        "the pixels of an image behind `convert('RGB')` are not contiguous",
        "`ToTensor` of an RGB image gives a tensor that is not contiguous",
        "`ToTensor` of an image behind `convert('RGB')` gives a tensor that is not contiguous",
    )
    pillow = needed(bench, (("C82", of_tensor), ("C83", of_pixels), ("C83", of_converted)), "PIL.Image", "numpy")
    if pillow is None:
        return
    pil, numpy = pillow
    converted = {mode: _image(pil, mode, height, width).convert("RGB") for mode in _MODES}
    _strided(bench, "C83", of_pixels, {mode: torch.from_numpy(numpy.array(each)) for mode, each in converted.items()})

    torchvision = needed(bench, (("C82", of_tensor), ("C83", of_converted)), "torchvision.transforms")
    if torchvision is None:
        return
    (transforms,) = torchvision
    to_tensor, rgb = transforms.ToTensor(), _image(pil, "RGB", height, width)
    _strided(bench, "C82", of_tensor, {"RGB": to_tensor(rgb)})
    _strided(bench, "C83", of_converted, {mode: to_tensor(each) for mode, each in converted.items()})
    given = {name: getattr(transforms, name)()(rgb) for name in ("ToTensor", "PILToTensor")}
    strided = {name: int(not each.is_contiguous()) for name, each in given.items()}
    bench.count("Tensors that are not contiguous, by torchvision's transform of one image", "tensors", strided)


def _image(pil: Any, mode: str, height: int, width: int) -> Any:
    """Of random pixels."""
    return pil.frombytes("RGB", (width, height), os.urandom(3 * height * width)).convert(mode)


def _strided(bench: Bench, claim: str, text: str, found: dict[str, Tensor]) -> None:
    strides = ", ".join(f"{mode}: strides {each.stride()} of {tuple(each.shape)}" for mode, each in found.items())
    bench.expect(claim, text, any(not each.is_contiguous() for each in found.values()), strides)


EXPERIMENT = Experiment(
    name="image-transforms",
    title="From images to tensors",
    method="Pixels of Pillow's images of several modes behind `convert('RGB')`, and what torchvision's `ToTensor` "
    "makes of images, where these two can be imported. The arms are torch alone, on bytes in height, width, channels.",
    claims={
        "C82": Claim(
            "4.1",
            "In some versions torchvision's `ToTensor` gives tensors that are not contiguous.",
            "In torchvision 0.28 `to_tensor` ends in `.contiguous()` (transforms/functional.py); `PILToTensor` and "
            "`pil_to_tensor` are what give a permuted view.",
        ),
        "C83": Claim(
            "4.1",
            "PIL's `convert('RGB')` can make the tensor strided.",
            "Pillow hands out pixels row by row, whatever the image was before, and `ToTensor` copies them into a "
            "contiguous tensor.",
        ),
    },
    run=run,
    cpu={"batch": 4, "height": 200, "width": 300},
    quick={"height": 40, "width": 60},
)
