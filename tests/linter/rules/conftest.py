import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _same_hook_for_exceptions() -> Iterator[None]:
    """`init_process_group`, which some examples call, puts a hook in place that names the rank, and leaves it there."""
    hook = sys.excepthook
    yield
    sys.excepthook = hook
