"""Writes options, settings and budgets into docs/reference: `python docs/settings.py`. A test holds what it writes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from stridewise.cli.app import app
from stridewise.config import Budget, Config, LintConfig
from stridewise.config.budget import BUDGET_KEYS
from stridewise.config.lint import LINT_KEYS
from stridewise.config.project import CONFIG_KEYS
from stridewise.config.reading import Keys
from stridewise.report.schema import field_docs

REFERENCE = Path(__file__).parent / "reference"
OPTIONS = "options", "from the commands and the settings themselves"
KEYS = "keys", "from the settings themselves"
LINT = "keys of lint", "from the settings of lint themselves"
LIMITS = "limits", "from the budget itself"
_CODE = re.compile(r"`[^`]*`|(?<![\w-])--?[a-z][\w-]*|\b\w+=[\w%,=+]*[\w%]")


class Option(NamedTuple):
    """An option as a table shows it."""

    name: str
    said: str
    key: str


def files() -> dict[Path, str]:
    """Each page with what it should hold."""
    run, settings = REFERENCE / "run.md", REFERENCE / "settings.md"
    text = settings.read_text(encoding="utf-8")
    for part, listed in ((KEYS, keys(CONFIG_KEYS, Config)), (LINT, keys(LINT_KEYS, LintConfig)), (LIMITS, limits())):
        text = _replaced(text, part, listed)
    return {run: _replaced(run.read_text(encoding="utf-8"), OPTIONS, options()), settings: text}


def options() -> str:
    """A table for what both commands take, and one for what each takes alone."""
    of_run, of_trace = _options("run"), _options("trace")
    return (
        f"Of both:\n\n{_table([option for option in of_run if option in of_trace])}\n"
        f"Of `run`:\n\n{_table([option for option in of_run if option not in of_trace])}\n"
        f"Of `trace`:\n\n{_table([option for option in of_trace if option not in of_run])}"
    )


def keys(known: Keys, struct: type[Config] | type[LintConfig]) -> str:
    """A row for each key of a table of pyproject.toml."""
    docs, defaults = field_docs(struct), struct()
    shown = {name: _toml(getattr(defaults, key.field)) for name, key in known.items()}
    if not any(shown.values()):
        rows = "".join(f"| `{name}` | {key.takes} | {docs[key.field]} |\n" for name, key in known.items())
        return f"| key | value | what it is |\n|---|---|---|\n{rows}"
    rows = "".join(f"| `{name}` | {key.takes} | {shown[name]} | {docs[key.field]} |\n" for name, key in known.items())
    return f"| key | value | default | what it is |\n|---|---|---|---|\n{rows}"


def limits() -> str:
    """A row for each limit of a budget."""
    docs = field_docs(Budget)
    rows = "".join(f"| `{name}` | {key.takes} | {docs[key.field]} |\n" for name, key in BUDGET_KEYS.items())
    return f"| limit | value | what may not exceed it |\n|---|---|---|\n{rows}"


def _options(command: str) -> list[Option]:
    # With markup on, Typer escapes what would be none: here it is for Markdown.
    app.rich_markup_mode = None
    found: Any = typer.main.get_command(app)
    context = typer.Context(found.commands[command], info_name=command)
    return list(_shown(found.commands[command], context))


def _shown(command: Any, context: typer.Context) -> Iterator[Option]:
    for option in command.get_params(context):
        if option.param_type_name != "option" or option.name == "help":
            continue
        (name, said), key = option.get_help_record(context), option.name.replace("_", "-")
        # No bars: a table can't have them in code. The names of formats are in the words.
        name = re.sub(r"<text\|.*>", "FORMAT", name).replace("|", "` or `")
        said = _CODE.sub(lambda code: code[0] if code[0].startswith("`") else f"`{code[0]}`", said)
        # Bounds and defaults, which --help has in brackets, are told in words.
        said = re.sub(r"\s+\[.*\]$", "", said)
        yield Option(" ".join(name.split()), " ".join(said.split()), key if key in CONFIG_KEYS else "")


def _table(rows: list[Option]) -> str:
    if not any(option.key for option in rows):
        lines = [f"| `{option.name}` | {option.said} |\n" for option in rows]
        return "| option | what it does |\n|---|---|\n" + "".join(lines)
    lines = [f"| `{name}` | {f'`{key}`' if key else ''} | {said} |\n" for name, said, key in rows]
    return "| option | key | what it does |\n|---|---|---|\n" + "".join(lines)


def _toml(value: object) -> str:
    """A default as pyproject.toml would have it; nothing for what is not set."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, int | float) else ""


def _replaced(text: str, part: tuple[str, str], listed: str) -> str:
    name, source = part
    begin, end = f"<!-- {source}: python docs/settings.py -->", f"<!-- end of the {name} -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{listed}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
