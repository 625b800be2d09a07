"""What `%load_ext stridewise` does, and `%unload_ext` undoes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_HEAD = re.compile(r"%%stridewise(?=\s|$)")
_MAGICS = {"line": ("stridewise", "stridewise_explain"), "cell": ("stridewise",)}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%%stridewise`, `%stridewise` and `%stridewise_explain` to a shell."""
    from stridewise.integrations.notebook.magics import StridewiseMagics

    shell.register_magics(StridewiseMagics)
    if rest_of_cell not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(rest_of_cell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take them away again. Tensors go on showing their layout until `hide_layout()`."""
    if rest_of_cell in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(rest_of_cell)
    for kind, names in _MAGICS.items():
        magics: dict[str, Callable[..., Any]] = shell.magics_manager.magics[kind]
        for name in names:
            magics.pop(name, None)


def rest_of_cell(lines: list[str]) -> list[str]:
    """Give a cell that begins with `%%stridewise` as one that begins with the line magic of that name.

    A cell magic gets its cell as text, and would have to do all that IPython does with a cell: await, show the last
    value, show exceptions. Like this IPython runs the cell itself, its lines stay where they are, and no frame of ours
    is in between.
    """
    if not lines or not _HEAD.match(lines[0]):
        return lines
    from IPython.core.inputtransformer2 import cell_magic

    rest = lines[1:]
    return [lines[0][1:], *(cell_magic(rest) if rest and rest[0].startswith("%%") else rest)]
