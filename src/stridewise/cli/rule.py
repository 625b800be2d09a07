"""`stridewise rule`."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from stridewise.cli.output import say
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.codes import Doc


def rule(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A code or a title, such as SW101 or strided-stream.")
    ] = None,
) -> None:
    """Explain what a code means; without CODE, list all.

    Also why it happens, how to fix it, and when to ignore it.
    """
    from stridewise.report.codes import all_docs

    rules = all_docs()
    if code is None:
        width = max((len(rule.title) for rule in rules), default=0)
        say("\n".join(f"{known.code}  {known.title:<{width}}  {known.summary}" for known in rules))
        return
    found = next((rule for rule in rules if code.lower() in (rule.code.lower(), rule.title)), None)
    if found is None:
        raise UsageError(_unknown(code, rules))
    say(f"{found.code} {found.title}: {found.summary}\n\n{found.doc.strip()}")


def _unknown(code: str, rules: "Sequence[Doc]") -> str:
    names = {name.lower(): rule.code for rule in rules for name in (rule.code, rule.title)}
    begun = [name for name in names if code and name.startswith(code.lower())]
    near = dict.fromkeys(names[name] for name in begun or get_close_matches(code.lower(), names, n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(near)}?" if near else "`stridewise rule` lists all codes"
    return f"there is no code `{code}`: {hint}"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rule)
