import shutil

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiler() -> None:
    """Graphs are really compiled here: without a C++ compiler nothing of this can be tested."""
    assert shutil.which("g++") or shutil.which("clang++") or shutil.which("c++"), "these tests need a C++ compiler"
