"""The program `stridewise`: its commands, and the one place where errors become messages and exit codes."""

import errno
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from stridewise import __version__
from stridewise.cli import check, demo, diff, doctor, explain, fix, lab, lint, lsp, rule, run, schema, trace
from stridewise.cli.output import broken_pipe, say
from stridewise.errors import StridewiseError
from stridewise.report.color import wants_color

_HELP = """What tensor memory layout costs a PyTorch program, and where to change it.

Start with `stridewise demo`, then put `stridewise run` before your script: `stridewise run train.py --epochs 1`.
`stridewise fix` tries edits, and shows those that make it faster.
"""

_COMPLETING = "_STRIDEWISE_COMPLETE"
"""Set by the shell's script for completion."""

# Typer has click's exceptions under a name of its own, or click's, by version: their base is two above this one.
_CallError: Any = typer.BadParameter.__mro__[2]

_COLORED = wants_color(sys.stdout)

app = typer.Typer(
    name="stridewise",
    help=_HELP,
    no_args_is_help=False,
    invoke_without_command=True,
    # Typer colours its help in a pipe too, where it thinks to be in CI, and its own messages whatever NO_COLOR says.
    rich_markup_mode="rich" if _COLORED else None,
    context_settings={"help_option_names": ["-h", "--help"], "color": None if _COLORED else False},
)
for command in (demo, run, fix, lint, lsp, check, trace, diff, lab, explain, rule, doctor, schema):
    command.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from stridewise.checks.machine.installed import torch_version

        torch = torch_version()
        seen = f"torch {torch}" if torch else "no torch"
        say(f"stridewise {__version__} ({seen}, Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version, and those of what it sees, and exit.",
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        say(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. A mistake in the call or the input is one message and code 2."""
    sys.exit(_exit_code(sys.argv[1:] if arguments is None else list(arguments)))


def _exit_code(arguments: list[str]) -> int:
    if _COMPLETING in os.environ:
        with suppress(ValueError, KeyError):  # a shell that does not say which word it is at
            return _run(arguments)
        return 1
    return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        # Not app(...), which puts an exception hook of its own in place: it would be the user's script's too.
        result = typer.main.get_command(app).main(arguments, prog_name="stridewise", standalone_mode=False)
        if sys.stdout is not None and not sys.stdout.closed:  # a script that ran may have closed it
            sys.stdout.flush()
    except StridewiseError as error:
        return _fail(str(error))
    except _CallError as error:
        message = " ".join(error.format_message().split()).replace("Value error, ", "")
        return _fail(message, _hint(error))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return broken_pipe()
    except ModuleNotFoundError as error:  # a package that was left out of the installation, as torch may be
        if error.name is None or error.name.partition(".")[0] == "stridewise":
            raise
        return _fail(f"this needs {error.name.partition('.')[0]}, which is not installed here")
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        return _fail("standard output cannot be written: no space left")
    return result if isinstance(result, int) else 0


def _hint(error: Any) -> str:
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    if option and context is not None and context.parent is None and not getattr(error, "possibilities", None):
        return f"Options stand behind the command: stridewise COMMAND {option}."
    return f"See {context.command_path if context else 'stridewise'} --help."


def _fail(*lines: str) -> int:
    from stridewise.report.text import inert

    print("stridewise: " + "\n".join(inert(line) for text in lines for line in text.splitlines()), file=sys.stderr)
    return 2
