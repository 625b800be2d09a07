import os
import signal
import socket
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# No deadline: what the first example of a test compiles or imports is no property of the code.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# The same kernels split the same way on every machine, and two workers do not fight over the cores.
torch.set_num_threads(2)

# A shell has what it starts in the background ignore Ctrl-C, and the processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What tests say to each other stays on this machine; gloo would listen where the host's name leads to.
LOOPBACK = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
if LOOPBACK is not None:
    os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK

REAL = Path(__file__).parent / "real"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(REAL):
            item.add_marker(pytest.mark.real)
        for mark in item.iter_markers("needs_torch"):
            version, why, *ids = mark.args
            concerned = not ids or any(id in item.name for id in ids)
            if concerned and torch.__version__ < version:
                item.add_marker(pytest.mark.skip(reason=f"torch before {version}: {why}"))
