"""Models that are exported in the tests."""

import torch
import torch._inductor.config

IS_OLD = not hasattr(torch._inductor.config.trace, "provenance_tracking_level")
"""A torch before 2.8 or so: it can't export some of what is tested here."""


class Rows(torch.nn.Module):
    """Takes any layout, in eager mode and exported."""

    def forward(self, x):
        return (2 * x + 1).sum(1)


class Named(torch.nn.Module):
    """Several inputs, keywords, a dict, a number, and a buffer that it writes."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)

    def forward(self, image, times, *, extra=None):
        return {"pooled": times * self.norm(image).sum((2, 3)), "by": extra["b"] - extra["a"]}


class Branch(torch.nn.Module):
    """Gives other values for other layouts."""

    def forward(self, x):
        if x.is_contiguous():
            return 2 * x
        return 3 * x


class Strides(torch.nn.Module):
    """Asks for strides, and is right."""

    def forward(self, x):
        return 2 * x.as_strided((4, 3), (x.stride(0), 2 * x.stride(1)))


class Flat(torch.nn.Module):
    """Takes any layout in eager mode; the copy is not in the exported program."""

    def forward(self, x):
        return 2 * x.contiguous().view(-1)


class Earlier(torch.nn.Module):
    """The same, with the copy in another line than the view."""

    def forward(self, x):
        x = x.contiguous()
        return 2 * x.view(-1)


class Adds(torch.nn.Module):
    """Writes to its input."""

    def forward(self, x):
        x.add_(1)
        return x.contiguous().view(-1)


def exported(model, *args, **kwargs):
    return torch.export.export(model, args, kwargs)
