"""A package of AOTInductor, which takes seconds to build: once."""

import warnings

import pytest
import torch

from . import models


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """The path of `Rows`, compiled for a contiguous (24, 4) and one in the order of columns."""
    x, other = torch.randn(24, 4), torch.randn(6, 4).t()

    class Two(torch.nn.Module):
        def forward(self, x, *, other=None):
            return {"rows": models.Rows()(x), "other": 2 * other.relu() + 1}

    path = tmp_path_factory.mktemp("package") / "two.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        program = torch.export.export(Two(), (x,), {"other": other})
        # On two threads: in a fork they are gone, and what waits for them hangs.
        with torch._inductor.config.patch({"cpp.threads": 2, "cpp.min_chunk_size": 1}):
            return torch._inductor.aoti_compile_and_package(program, package_path=str(path))
