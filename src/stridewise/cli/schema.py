"""`stridewise schema`."""

from typing import Annotated

import typer

from stridewise.cli.completion import results
from stridewise.cli.output import say
from stridewise.errors import UsageError


def schema(
    result: Annotated[
        str | None,
        typer.Argument(metavar="RESULT", help="Such as report, lint or repair.", autocompletion=results),
    ] = None,
) -> None:
    """Print the JSON Schema of what --format json writes; without RESULT, list what there is.

    The schema is versioned: schema_version changes when a field is renamed, removed, or changes its meaning.
    """
    from stridewise.report import json
    from stridewise.report import schema as schemas

    if result is None:
        width = max(map(len, schemas.RESULTS))
        say("\n".join(f"{name:<{width}}  {written.by}" for name, written in schemas.RESULTS.items()))
        return
    if result not in schemas.RESULTS:
        raise UsageError(f"there is no result `{result}`: it is one of {', '.join(schemas.RESULTS)}")
    say(json.dumps(schemas.schema(result)).rstrip("\n"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(schema)
