"""A language server for `lint`: what the source rules say of the texts in an editor, and their fixes to choose from.

It needs pygls. A text is linted as `stridewise lint` would if it were saved: the settings of its project count, what
these and .gitignore leave out, and the comments in it.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from stridewise import __version__
from stridewise.errors import StridewiseError
from stridewise.integrations.language_document import Document, Fix
from stridewise.linter.files.discover import Found, found_by_name

FIX_ALL = "source.fixAll.stridewise"
"""The kind of the action that makes all safe fixes; editors can be told to take it when they save."""

_SUFFIXES = (".py", ".pyi")
_NOTEBOOK = ".ipynb"
"""A file of cells: what an editor shows of it as Python is not what it holds."""
_SETTINGS = ("**/pyproject.toml", "**/.gitignore")
_PAUSE_S = 0.2
"""After the last change: what is half typed is worth no look."""


def serve() -> None:
    """Serve an editor on standard input and output until it leaves."""
    out = sys.stdout.buffer
    with redirect_stdout(sys.stderr):  # whatever is printed by mistake must not get into the protocol
        make_server().start_io(sys.stdin.buffer, out)


def make_server() -> LanguageServer:
    """The server, with all that it answers to."""
    # The whole text with every change: pygls counts form feeds as ends of lines, which the protocol does not.
    server = LanguageServer("stridewise", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
    documents = _Documents(server)

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        root = server.workspace.root_path
        if root is not None:  # what settings leave out is told from there, where there is no pyproject.toml
            with suppress(OSError):
                os.chdir(root)

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        _watch_settings(server)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        documents.look(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        documents.look_soon(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        documents.look_again(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        documents.forget(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def settings_changed(params: types.DidChangeWatchedFilesParams) -> None:
        documents.look_again()

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL]),
    )
    def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        return list(documents.actions(params))

    return server


class _Documents:
    """The texts that the editor has open, each as it was linted last."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self._open: dict[str, Document | None] = {}
        """None for those that are not linted."""
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._errors: dict[str, str] = {}
        """What is wrong with the settings of a text."""

    def look(self, uri: str) -> None:
        """Lint a text as it is now, and publish what is found."""
        self._stop_waiting(uri)
        text = self._server.workspace.get_text_document(uri)
        document = self._open[uri] = self._linted(text)
        self._publish(uri, [] if document is None else document.diagnostics, text.version)

    def look_soon(self, uri: str) -> None:
        """Lint a text once nobody has changed it for a moment."""
        self._stop_waiting(uri)
        self._waiting[uri] = asyncio.get_running_loop().call_later(_PAUSE_S, self.look, uri)

    def look_again(self, *uris: str) -> None:
        """Lint some of the open texts again, or all of them."""
        for uri in [uri for uri in self._open if not uris or uri in uris]:
            self.look(uri)

    def forget(self, uri: str) -> None:
        """A text was closed: what was said of it is withdrawn."""
        self._stop_waiting(uri)
        self._open.pop(uri, None)
        self._errors.pop(uri, None)
        self._publish(uri, [], None)

    def actions(self, params: types.CodeActionParams) -> Iterator[types.CodeAction]:
        """What can be done about the findings at a place, or about all of them."""
        uri, context = params.text_document.uri, params.context
        if uri in self._waiting:
            self.look(uri)
        document = self._open.get(uri)
        if document is None:
            return
        if _is_wanted(types.CodeActionKind.QuickFix, context):
            for fix in document.fixes(params.range):
                yield self._quick_fix(uri, fix)
        # Editors ask after each move of the cursor too: that is no time to make all fixes.
        asked = context.only is not None or context.trigger_kind != types.CodeActionTriggerKind.Automatic
        if asked and _is_wanted(FIX_ALL, context) and document.all_safe_fixes is not None:
            edit = self._edit(uri, [document.all_safe_fixes])
            yield types.CodeAction("stridewise: make all safe fixes", kind=FIX_ALL, edit=edit)

    def _linted(self, text: TextDocument) -> Document | None:
        file = self._found(text)
        if file is None:
            return None
        try:
            document = Document(text.source, file, self._server.workspace.position_codec.client_num_units)
        except ValueError:  # no file could hold it
            return None
        for unread in document.run.unread:
            if unread.line is None:  # what is no Python has a line, and other servers to tell of it
                self._server.window_log_message(types.LogMessageParams(types.MessageType.Warning, unread.reason))
        return document

    def _found(self, text: TextDocument) -> Found | None:
        """The file that a text is of; None unless it is Python, and not left out."""
        scheme, _, _ = text.uri.partition(":")  # cells of notebooks have one of their own, and former versions too
        is_python = text.language_id == "python" or text.path.endswith(_SUFFIXES)
        if scheme not in ("file", "untitled") or not is_python or text.path.endswith(_NOTEBOOK):
            return None
        try:
            file = found_by_name(text.path, force_exclude=True)
        except StridewiseError as error:
            self._complain(text.uri, str(error))
            return None
        self._errors.pop(text.uri, None)
        return file

    def _complain(self, uri: str, error: str) -> None:
        """Show what is wrong with settings, once for all texts that they are of."""
        if error not in self._errors.values():
            message = f"stridewise: {error}"
            self._server.window_show_message(types.ShowMessageParams(types.MessageType.Error, message))
        self._errors[uri] = error

    def _publish(self, uri: str, diagnostics: list[types.Diagnostic], version: int | None) -> None:
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, version))

    def _quick_fix(self, uri: str, fix: Fix) -> types.CodeAction:
        return types.CodeAction(
            fix.title,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[fix.diagnostic],
            is_preferred=fix.preferred or None,
            edit=self._edit(uri, fix.edits),
        )

    def _edit(self, uri: str, edits: list[types.TextEdit]) -> types.WorkspaceEdit:
        """Edits of a text, of its present version if the editor understands that."""
        workspace = self._server.client_capabilities.workspace
        if workspace is None or workspace.workspace_edit is None or not workspace.workspace_edit.document_changes:
            return types.WorkspaceEdit(changes={uri: edits})
        version = self._server.workspace.get_text_document(uri).version
        document = types.OptionalVersionedTextDocumentIdentifier(uri, version)
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, [*edits])])

    def _stop_waiting(self, uri: str) -> None:
        timer = self._waiting.pop(uri, None)
        if timer is not None:
            timer.cancel()


def _watch_settings(server: LanguageServer) -> None:
    """Ask an editor that can to tell when settings change."""
    workspace = server.client_capabilities.workspace
    watched = workspace.did_change_watched_files if workspace is not None else None
    if watched is None or not watched.dynamic_registration:
        return
    options = types.DidChangeWatchedFilesRegistrationOptions(
        watchers=[types.FileSystemWatcher(glob_pattern=pattern) for pattern in _SETTINGS]
    )
    registration = types.Registration("settings", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    server.client_register_capability(types.RegistrationParams([registration]))


def _is_wanted(kind: str, context: types.CodeActionContext) -> bool:
    """Whether an editor asks for actions of a kind, or of one that stands above it."""
    return context.only is None or any(kind == each or kind.startswith(f"{each}.") for each in context.only)
