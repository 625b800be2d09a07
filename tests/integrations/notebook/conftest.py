"""A shell of IPython in this process, and notebooks that a kernel executes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

KINDS = ["text/plain", "text/html"]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """One shell at a time, as in a kernel. It leaves nothing behind, neither in this process nor in a home."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor" if "nocolor" not in _themes() else "nocolor"
    hooks = sys.excepthook, sys.displayhook
    main = sys.modules["__main__"]
    shell = InteractiveShell.instance(config=config)
    shell.display_formatter.active_types = KINDS
    try:
        yield shell
    finally:
        sys.excepthook, sys.displayhook = hooks
        sys.modules["__main__"] = main
        shell.history_manager.end_session()
        shell.restore_sys_module_state()
        InteractiveShell.clear_instance()


def _themes() -> list[str]:
    try:
        from IPython.utils.PyColorize import theme_table
    except ImportError:
        return []
    return list(theme_table)


@pytest.fixture(scope="module")
def execute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any], Any]]:
    """Executes cells in a kernel of this interpreter, and gives the notebook; or executes a notebook as it is."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    from nbformat.v4 import new_code_cell, new_notebook

    folder = tmp_path_factory.mktemp("jupyter")

    def execute(cells: Any) -> Any:
        notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells]) if isinstance(cells, list) else cells
        client = nbclient.NotebookClient(
            notebook,
            timeout=60,
            kernel_name="python3",
            allow_errors=isinstance(cells, list),
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute()
        return notebook

    with pytest.MonkeyPatch.context() as environment:
        for name in ("CONFIG", "DATA", "RUNTIME"):
            environment.setenv(f"JUPYTER_{name}_DIR", str(folder / name))
        environment.setenv("IPYTHONDIR", str(folder / "ipython"))
        environment.setenv("JUPYTER_PLATFORM_DIRS", "1")
        yield execute
