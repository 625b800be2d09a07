"""SW335: what "contiguous after every transfer" does."""

import pytest
import torch

from stridewise.linter.rule import Fires

from ..texts import findings, fixed, rule_of, run
from .layouts import copies, seen

TEXT = "import torch\ndef program(x):\n    return x.to('cpu').contiguous()\n"


def test_channels_last_is_undone_and_kept_without_it() -> None:
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    ruled, plain = run(TEXT)["program"], run(fixed(TEXT, "SW335"))["program"]
    assert (copies(ruled, x), copies(plain, x)) == (1, 0)
    assert not ruled(x).is_contiguous(memory_format=torch.channels_last)
    assert plain(x).is_contiguous(memory_format=torch.channels_last)


def test_a_batch_of_a_loader_is_contiguous_as_it_is() -> None:
    samples = [torch.zeros(4, 5, 3).permute(2, 0, 1) for _ in range(4)]
    (batch,) = torch.utils.data.DataLoader(samples, batch_size=4)  # type: ignore[arg-type]
    assert copies(run(TEXT)["program"], batch) == 0
    assert seen(run(fixed(TEXT, "SW335"))["program"], batch) == seen(run(TEXT)["program"], batch)


@pytest.mark.parametrize(
    "device",
    ["meta", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))],
)
def test_a_transfer_keeps_dense_strides_and_closes_gaps(device: str) -> None:
    assert torch.zeros(2, 3, 4).permute(2, 0, 1).to(device).stride() == (1, 12, 4)
    assert torch.zeros(2, 6)[:, ::2].to(device).is_contiguous()


def test_a_device_in_the_same_transfer_can_name_the_format() -> None:
    x = torch.zeros(2, 3, 4, 5)
    assert x.to("meta", memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("example", rule_of("SW335").fires)
def test_its_fixes_are_shown_only(example: Fires) -> None:
    assert {edit.safety for finding in findings(example.source, "SW335") for edit in finding.edits} == {"display"}


@pytest.mark.parametrize("call", ["to(x)", "to(dtype)", "cpu()", "float()", "to(torch.half)", "to(other.dtype)"])
def test_it_is_quiet_about_other_calls(call: str) -> None:
    assert findings(f"import torch\ndef f(x, other, dtype):\n    return x.{call}.contiguous()\n", "SW335") == ()


def test_it_is_off_by_default() -> None:
    assert not rule_of("SW335").default
