"""Source rules on this file itself: `python examples/lint.py`, or `stridewise lint examples/lint.py`."""

import torch
import torch.nn.functional as F
from torch import nn

import stridewise


class Head(nn.Module):
    """Three faults that a run may not show: in float32, with contiguous images and a mask of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, images: torch.Tensor, mask: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        features = F.relu(self.conv(images))
        if mask.dim() == 2:
            mask.unsqueeze(1)
        features.reshape(-1)[index] = 0.0
        return features.view(features.size(0), -1) * mask


if __name__ == "__main__":
    print(stridewise.lint(__file__))
