"""What the two ways from a PIL image to a tensor leave behind."""

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def _to_tensor(pixels: Tensor) -> Tensor:
    """What `ToTensor` does with an image's pixels (torchvision.transforms.functional.to_tensor)."""
    return pixels.permute(2, 0, 1).contiguous().float().div(255)


def _pil_to_tensor(pixels: Tensor) -> Tensor:
    """What `PILToTensor` does with them (torchvision.transforms.functional.pil_to_tensor)."""
    return pixels.permute(2, 0, 1)


def run(bench: Bench, batch: int, height: int, width: int) -> None:
    """Pixels as a decoder gives them: rows of pixels of three bytes."""
    images = [torch.randint(256, (height, width, 3), dtype=torch.uint8) for _ in range(batch)]
    for name, transform in (("ToTensor", _to_tensor), ("PILToTensor", _pil_to_tensor)):
        found = transform(images[0])
        bench.expect("C82", f"`{name}` gives a tensor that is not contiguous", not found.is_contiguous(), _said(found))
    # The worst that a conversion could hand on: one grey channel read three times, through stride 0.
    grey = images[0][..., :1]
    for how, pixels in (("copied into", grey.repeat(1, 1, 3)), ("expanded to", grey.expand(-1, -1, 3))):
        found = _to_tensor(pixels)
        text = f"`ToTensor` of a grey image {how} three channels is not contiguous"
        bench.expect("C83", text, not found.is_contiguous(), _said(found))
    bench.compare(
        "A batch of decoded images, as floats",
        {
            "stack of ToTensor": lambda: torch.stack([_to_tensor(each) for each in images]),
            "stack of PILToTensor, then float": lambda: torch.stack(list(map(_pil_to_tensor, images))).float().div(255),
        },
    )


def _said(found: Tensor) -> str:
    return f"strides {found.stride()} of sizes {tuple(found.shape)}"


EXPERIMENT = Experiment(
    name="image-transforms",
    title="From images to tensors",
    method="The lines of torchvision 0.28 that `ToTensor` and `PILToTensor` run on an image's pixels, without "
    "torchvision: a tensor of bytes in height, width, channels stands for the image, and strides of it for what "
    "`convert` could change.",
    claims={
        "C82": Claim(
            "4.1",
            "In some versions torchvision's `ToTensor` gives tensors that are not contiguous.",
            "Today's `ToTensor` ends in `.contiguous()`; `PILToTensor` and `pil_to_tensor` are what give a permuted "
            "view.",
        ),
        "C83": Claim(
            "4.1",
            "PIL's `convert('RGB')` can make the tensor strided.",
            "An image has no strides of torch, and `ToTensor` copies whatever pixels it is given into a contiguous "
            "tensor.",
        ),
    },
    run=run,
    cpu={"batch": 4, "height": 200, "width": 300},
    quick={"height": 40, "width": 60},
)
