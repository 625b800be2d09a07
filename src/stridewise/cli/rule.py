"""`stridewise rule`."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from stridewise.cli import completion
from stridewise.cli.output import say
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from stridewise.codes import Doc


def rule(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            autocompletion=completion.code_or_title,
            help="A code or a title, such as SW101 or strided-stream.",
        ),
    ] = None,
) -> None:
    """Explain what a code means; without CODE, list all.

    Also why it happens, how to fix it, and when to ignore it.
    """
    from stridewise.report.codes import all_docs, doc

    if code is not None and (known := doc(code.upper())) is not None:
        _explain(known)
        return
    rules = all_docs()
    if code is None:
        width = max((len(rule.title) for rule in rules), default=0)
        say("\n".join(f"{rule.code}  {rule.title:<{width}}  {rule.summary}" for rule in rules))
        return
    found = next((rule for rule in rules if code.lower() == rule.title), None)
    if found is None:
        raise UsageError(_unknown(code, rules))
    _explain(found)


def _explain(doc: "Doc") -> None:
    say(f"{doc.code} {doc.title}: {doc.summary}\n\n{doc.doc.strip()}")


def _unknown(code: str, rules: "Sequence[Doc]") -> str:
    names = {name.lower(): rule.code for rule in rules for name in (rule.code, rule.title)}
    begun = [name for name in names if code and name.startswith(code.lower())]
    near = dict.fromkeys(names[name] for name in begun or get_close_matches(code.lower(), names, n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(near)}?" if near else "`stridewise rule` lists all codes"
    return f"there is no code `{code}`: {hint}"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rule)
