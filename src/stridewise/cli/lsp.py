"""`stridewise lsp`."""

import typer

from stridewise.errors import UsageError


def lsp() -> None:
    """Serve an editor that speaks the Language Server Protocol, on standard input and output.

    Editors start it: they show what stridewise lint finds in what you type, and offer its fixes. It takes
    pip install 'stridewise[lsp]'.
    """
    try:
        from stridewise.integrations.language_server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UsageError("lsp needs pip install 'stridewise[lsp]'") from None
    serve()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(lsp)
