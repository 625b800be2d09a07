"""What was given to be checked: a file, or a program in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stridewise.checks.artefacts import files
from stridewise.checks.artefacts.arguments import Arguments, paths
from stridewise.checks.artefacts.opened import Subject
from stridewise.errors import UsageError
from stridewise.results.artefacts import ArtefactKind

_EXPECTED = (
    "Expected: an ExportedProgram, a torch.jit module, what torch._inductor.aoti_load_package returns, or the path of "
    "a file of one."
)


def subject_of(program: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Subject:
    """Raises UsageError for what is no exported program, and for arguments that it can't be tried with."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UsageError(f"kwargs are {type(kwargs).__name__}.", expected="Expected: a dict of keyword arguments.")
    arguments = (args, dict(kwargs or {})) if args or kwargs else None
    if arguments is not None:
        _require_on_cpu(arguments)
    if isinstance(program, (str, os.PathLike)):
        path = Path(program)
        return Subject(path, files.kind_of(path), path.name, arguments)
    return Subject(program, _kind(program), _name(program), arguments)


def _kind(program: Any) -> ArtefactKind:
    import torch

    if isinstance(program, torch.export.ExportedProgram):
        return "exported program"
    if isinstance(program, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return "TorchScript module"
    if callable(program) and hasattr(program, "loader") and hasattr(program, "get_metadata"):
        return "AOTInductor package"
    is_graph = isinstance(program, torch.fx.GraphModule)
    advice = "Give the ExportedProgram itself, not its .module()." if is_graph else None
    raise UsageError(f"{type(program).__name__} is no exported program.", expected=_EXPECTED, advice=advice)


def _name(program: Any) -> str:
    import torch

    if isinstance(program, torch.jit.ScriptModule):
        return str(getattr(program, "original_name", None) or type(program).__name__)
    return str(program.name) if isinstance(program, torch.jit.ScriptFunction) else type(program).__name__


def _require_on_cpu(arguments: Arguments) -> None:
    for path, tensor in paths(arguments):
        if tensor.device.type != "cpu":
            raise UsageError(
                f"Argument {path} is on {tensor.device}.",
                expected="Expected: arguments on the CPU: the program runs in a forked process, without devices.",
            )
