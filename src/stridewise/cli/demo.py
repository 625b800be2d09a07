"""`stridewise demo`."""

import typer

from stridewise.cli.options import (
    AutocastOption,
    CopiesOption,
    Format,
    FormatOption,
    KernelsOption,
    ModulesOption,
    OutputOption,
    PathsOption,
    QuietOption,
    asked,
)
from stridewise.cli.output import waiting, writable
from stridewise.cli.show import show


def demo(
    format: FormatOption = Format.text,
    output: OutputOption = None,
    modules: ModulesOption = False,
    paths: PathsOption = False,
    autocast: AutocastOption = False,
    copies: CopiesOption = False,
    kernels: KernelsOption = False,
    quiet: QuietOption = False,
) -> None:
    """Record a built-in model and explain it.

    Nothing is downloaded, and no GPU is needed.
    """
    from stridewise import api

    output = writable(output, format)
    with waiting("Recording a few steps of a small model …", quiet=quiet):
        report = api.demo(paths=paths)
    show(
        report,
        format,
        output,
        tables=asked(autocast=autocast, copies=copies, kernels=kernels, modules=modules, paths=paths),
        quiet=quiet,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)
