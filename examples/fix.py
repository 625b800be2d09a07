"""Try edits of a model, and see which of them make it faster. `stridewise fix examples/fix.py:make` does the same."""

import torch
from torch import Tensor, nn

import stridewise


class Encoder(nn.Module):
    """A stream of tokens that a transpose starts: every layer norm behind it copies it into order."""

    def __init__(self, width: int = 128, depth: int = 6) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, features: Tensor) -> Tensor:
        x = features.transpose(1, 2)
        for norm in self.norms:
            x = x + norm(x)
        return x


def make() -> tuple[nn.Module, tuple[Tensor]]:
    return Encoder(), (torch.randn(16, 128, 256),)


if __name__ == "__main__":
    model, inputs = make()
    repair = stridewise.fix(model, *inputs, time_limit=20)
    print(repair)
    repair.apply()  # for this process; `repair.write()` edits the file
    print(stridewise.diagnose(model, *inputs).totals.copies, "copies a step are left")
