"""Projects that are tested by pytest in a process of its own."""

import textwrap

LAYERS = """
    import torch

    def wide(x):
        return torch.nn.functional.layer_norm(x.transpose(1, 2), (8,))

    def fine(x):
        return torch.nn.functional.layer_norm(x, (16,))
"""
"""`wide` makes one copy of (4, 16, 8) float32: 2,048 bytes read and as many written."""

CONFIG = """
    [tool.pytest.ini_options]
    addopts = "--import-mode=importlib --strict-markers --strict-config -p no:cacheprovider"
    pythonpath = ["src"]
    filterwarnings = ["error"]
"""


def project(pytester, **tests):
    """A project with a src folder, and test modules in `tests`."""
    pytester.makepyprojecttoml(CONFIG)
    (pytester.path / "src" / "package").mkdir(parents=True)
    (pytester.path / "tests").mkdir()
    write(pytester, "src/package/layers.py", LAYERS)
    for name, text in tests.items():
        write(pytester, f"tests/{name}.py", HEAD + text)
    return pytester


def write(pytester, path, text):
    (pytester.path / path).write_text(textwrap.dedent(text))


HEAD = """
    import threading
    import unittest
    import pytest
    import stridewise
    import torch
    from package.layers import fine, wide

    @pytest.fixture
    def x():
        made = torch.randn(4, 16, 8).transpose(1, 2)
        return made.contiguous()  # of a fixture: not recorded
"""


def passed(result, **counts):
    """Hold the numbers of outcomes, and give what was printed."""
    result.assert_outcomes(**counts)
    return result.stdout.str()
