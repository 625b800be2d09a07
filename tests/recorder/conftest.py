import pytest
import torch


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """A test that fails in the middle of a recording must not take the next ones with it."""
    yield
    from stridewise.recorder import live

    for recorder in {live._active, live._watching} - {None}:
        recorder.stop()
    while torch._C._len_torch_function_stack():
        torch.overrides._pop_mode()
