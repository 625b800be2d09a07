"""The options that commands share, and what they come to together with `[tool.stridewise]`."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from stridewise.cli import completion
from stridewise.config import Budget, Config, parse_budget, parse_codes, parse_share
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.report import Table
    from stridewise.report.codes import Finder

_SHOW = "What to show"
_LIMITS = "What to report"


class Format(StrEnum):
    """What `--format` takes; the names are those of `stridewise.report.Format`."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"
    junit = "junit"
    markdown = "markdown"
    html = "html"


FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="text for people, json for programs, sarif for code scanning, github for annotations in Actions,"
        " junit for test reports in CI, markdown for pages of CI and pull requests, html for a page to open in a"
        " browser.",
        rich_help_panel=_SHOW,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FILE", help="Write the report to this file, whole or not at all.", rich_help_panel=_SHOW
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Show no progress, and of the text only a line for each error and warning; nothing if there is none.",
        rich_help_panel=_SHOW,
    ),
]
CopiesOption = Annotated[bool, typer.Option("--copies", help="List the copies themselves.", rich_help_panel=_SHOW)]
ModulesOption = Annotated[
    bool,
    typer.Option("--modules", help="Show what layout goes into each module and what comes out.", rich_help_panel=_SHOW),
]
KernelsOption = Annotated[
    bool, typer.Option("--kernels", help="List the kernels of a device, and why.", rich_help_panel=_SHOW)
]
PathsOption = Annotated[
    bool,
    typer.Option("--paths", help="Show which implementation ran each operator, and on what.", rich_help_panel=_SHOW),
]
AutocastOption = Annotated[
    bool,
    typer.Option(
        "--autocast",
        help="Show what autocast cast, region by region, and what ran in which dtype.",
        rich_help_panel=_SHOW,
    ),
]
MinShareOption = Annotated[
    str | None,
    typer.Option(
        "--min-share",
        metavar="SHARE",
        help="Fold findings below this share of a step into one line (2% or 0.02; 0.1% unless set).",
        rich_help_panel=_LIMITS,
    ),
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="CODES",
        autocompletion=completion.codes,
        help="Report these codes only: SW101,SW103, or SW1 for all that begin with it.",
        rich_help_panel=_LIMITS,
    ),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="CODES",
        autocompletion=completion.codes,
        help="Leave these codes out.",
        rich_help_panel=_LIMITS,
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="LIMITS",
        help="Exit with 1 if a step costs more: copies=0,bytes=1MB,share=2%, or with time=3ms, forbid=SW103.",
        rich_help_panel=_LIMITS,
    ),
]


def asked(**tables: bool) -> "tuple[Table, ...]":
    """The tables whose options were given."""
    return tuple(cast("Table", name) for name, wanted in tables.items() if wanted)


def configured(
    *,
    select: list[str] | None = None,
    ignore: list[str] | None = None,
    min_share: str | None = None,
    budget: str | None = None,
    finds: "tuple[Finder, ...]" = ("recordings", "compiled"),
    **others: Any,
) -> Config:
    """Give `[tool.stridewise]` with what the command line says in its place; None is what it does not say.

    Raises UsageError for codes on the command line that are not among what this command `finds`.
    """
    from stridewise.api.settings import project_settings
    from stridewise.report.codes import require_known

    given = {
        "select": None if select is None else parse_codes(select),
        "ignore": None if ignore is None else parse_codes(ignore),
        "min_share": None if min_share is None else parse_share(min_share),
        "budget": None if budget is None else parse_budget(budget),
        **others,
    }
    require_known("--select", given["select"] or (), finds)
    require_known("--ignore", given["ignore"] or (), finds)
    if given["budget"] is not None:
        require_known("--budget: forbid", given["budget"].forbid, finds)
    return msgspec.structs.replace(
        project_settings(), **{key: value for key, value in given.items() if value is not None}
    )


def with_budget(config: Config, given: str | None, *, looks_at: "tuple[Finder, ...]" = ("recordings",)) -> Config:
    """Give the same with the part of its budget that this call can check by what it looks at; lines say the rest.

    `given` is what `--budget` says: what it asks for has to be checked. Raises UsageError where it can't be, or where
    `select` or `ignore` hide what it forbids. A project's budget does not keep anybody from looking at a part.
    """
    from stridewise.report.codes import codes_of, is_hidden, require_kept

    budget = config.budget
    seen = tuple(code for code in budget.forbid if codes_of(code, looks_at))
    unseen = tuple(code for code in budget.forbid if code not in seen)
    if "recordings" in looks_at:
        kept, rest = msgspec.structs.replace(budget, forbid=seen), Budget(forbid=unseen)
    else:
        kept, rest = Budget(forbid=seen), msgspec.structs.replace(budget, forbid=unseen)
    if given is not None:
        require_kept(seen, config.select, config.ignore)
    hidden = tuple(code for code in seen if is_hidden(code, config.select, config.ignore))
    for part, why in (
        (rest, f"{'with' if 'compiled' in looks_at else 'without'} --compiled"),
        (Budget(forbid=hidden), "with this --select or --ignore"),
    ):
        if part != Budget():
            line = f"budget: {part} is not checked {why}"
            if given is not None:
                raise UsageError(line)
            print(f"stridewise: {line}", file=sys.stderr)
    shown = tuple(code for code in kept.forbid if code not in hidden)
    return msgspec.structs.replace(config, budget=msgspec.structs.replace(kept, forbid=shown))
