"""`stridewise trace`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stridewise.cli.fleet import ClusterOption, WorkersOption, show_fleet
from stridewise.cli.options import (
    AutocastOption,
    BudgetOption,
    CopiesOption,
    Format,
    FormatOption,
    IgnoreOption,
    KernelsOption,
    MinShareOption,
    ModulesOption,
    OutputOption,
    PathsOption,
    QuietOption,
    SelectOption,
    asked,
    configured,
    with_budget,
)
from stridewise.cli.output import waiting, writable
from stridewise.cli.show import show, show_compiled, within
from stridewise.errors import UsageError

AnnotateOption = Annotated[
    Path | None,
    typer.Option(
        "--annotate",
        metavar="OUT",
        help="Write the same trace with layout copies and their origins marked, to open in Perfetto.",
    ),
]
CompiledOption = Annotated[
    bool,
    typer.Option(
        "--compiled", help="FILE is a folder, or a file in it, that torch.compile wrote with TORCH_TRACE=FOLDER set."
    ),
]
CodeOption = Annotated[
    bool, typer.Option("--code", help="With --compiled: show the generated code, with its line numbers.")
]
SourceRootOption = Annotated[
    Path | None,
    typer.Option(
        "--source-root",
        metavar="FOLDER",
        help="Show source lines from Python files in this folder only (the project, unless set).",
    ),
]


def trace(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="Recordings, or traces of torch.profiler: files, folders, 'globs', or URLs (s3://…)."
        ),
    ],
    min_share: MinShareOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    budget: BudgetOption = None,
    modules: ModulesOption = False,
    paths: PathsOption = False,
    autocast: AutocastOption = False,
    copies: CopiesOption = False,
    kernels: KernelsOption = False,
    compiled: CompiledOption = False,
    code: CodeOption = False,
    annotate: AnnotateOption = None,
    source_root: SourceRootOption = None,
    cluster: ClusterOption = None,
    workers: WorkersOption = None,
    quiet: QuietOption = False,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Report on recordings and profiler traces.

    Traces that torch.profiler wrote elsewhere are welcome; torch itself is not needed to read them.

    Many files, one a rank, are reported on together: stridewise trace 'runs/*/rank*.json.gz'. Which ranks are unlike
    the others is said first. A file that cannot be read is named, and the others go on. From a folder *.json, *.json.gz
    and *.sqlite are taken. With pip install 'stridewise[fleet]' several are read at once, here or with --cluster on a
    Dask cluster.

    With --compiled the files are what torch.compile logged: TORCH_TRACE=logs INDUCTOR_PROVENANCE=1
    python train.py, then stridewise trace --compiled logs.

    Exits with 1 if a budget is exceeded, by any of the files.
    """
    from stridewise import api
    from stridewise.fleet import expand
    from stridewise.report.text import one_line

    config = configured(select=select, ignore=ignore, min_share=min_share, budget=budget)
    config = with_budget(config, budget, looks_at=("compiled",) if compiled else ("recordings",))
    output, annotate = writable(output, format), writable(annotate)
    if annotate is not None and annotate == output:
        raise UsageError("--annotate and --output name the same file")
    if source_root is not None and not source_root.is_dir():
        raise UsageError(f"--source-root {source_root} is no folder")
    reading: Any = {"kernel_patterns": config.kernel_patterns, "source_root": source_root}
    tables = asked(autocast=autocast, copies=copies, kernels=kernels, modules=modules, paths=paths)
    if compiled:
        told = {
            name: one for file in files for name, one in api.read_compiled(file, config.select, config.ignore).items()
        }
        show_compiled(told, format, output, code=code, quiet=quiet)
        lines = config.budget.forbidden(finding for one in told.values() for finding in one.findings)
        for line in lines:
            print(f"stridewise: over budget: {line}", file=sys.stderr)
        raise typer.Exit(int(bool(lines)))
    found = expand(files)
    if len(found) > 1 or cluster is not None:
        if annotate is not None:
            raise UsageError(f"--annotate takes one FILE, and {len(found)} are given: call once for each")
        several: Any = {"cluster": cluster, "workers": workers, "tables": tables, "quiet": quiet}
        show_fleet(found, config, format, output, **several, **reading)
        return
    file = found[0]
    with waiting(f"Reading {one_line(Path(file).name)} …", quiet=quiet):
        recording = api.load(file)
        report = api.analyze(
            recording,
            min_share=config.min_share,
            select=config.select or None,
            ignore=config.ignore or None,
            paths=paths,
            timeline=format is Format.html,
            **reading,
        )
        if annotate is not None:
            api.annotate(recording, annotate, **reading)
    show(report, format, output, tables=tables, quiet=quiet)
    if not within(config.budget, report):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(trace)
