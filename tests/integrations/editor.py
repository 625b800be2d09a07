"""An editor for tests of the language server: it speaks to the real process, and knows nothing of pygls."""

import json
import re
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class Editor:
    """A process of the server, with the folder that it is opened on."""

    def __init__(self, root: Path, *encodings: str, versioned: bool = True) -> None:
        self.root = root
        self.asked: list[Json] = []
        """What the server asked of the editor."""
        self.messages: list[str] = []
        """What it showed to the person."""
        self._waiting: deque[Json] = deque()
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stridewise", "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        )
        capabilities = {
            "general": {"positionEncodings": [*encodings]} if encodings else {},
            "workspace": {
                "workspaceEdit": {"documentChanges": versioned},
                "didChangeWatchedFiles": {"dynamicRegistration": True},
            },
        }
        given = {"processId": None, "rootUri": root.as_uri(), "capabilities": capabilities}
        self.capabilities = self.request("initialize", given)["capabilities"]
        self.notify("initialized", {})

    def request(self, method: str, params: Json | None = None) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        kept: list[Json] = []
        while True:
            message = self._next()
            if "method" not in message:
                assert message["id"] == self._number
                assert "error" not in message, message
                self._waiting.extendleft(reversed(kept))
                return message["result"]
            kept.append(message)

    def notify(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    def told(self, method: str) -> Json:
        """What the next notification with this method says; those before it are passed over."""
        while True:
            message = self._next()
            if message.get("method") == method:
                params: Json = message["params"]
                return params

    def uri(self, name: str) -> str:
        return (self.root / name).as_uri()

    def open(self, name: str, text: str, language: str = "python") -> list[Json]:
        """Open a file, and give what is found in it."""
        document = {"uri": self.uri(name), "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})
        return self.diagnostics(name)

    def change(self, name: str, text: str, version: int = 2) -> None:
        document = {"uri": self.uri(name), "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def save(self, name: str, text: str, version: int = 2) -> list[Json]:
        """Change a file and save it, and give what is found in it."""
        self.change(name, text, version)
        self.notify("textDocument/didSave", {"textDocument": {"uri": self.uri(name)}})
        return self.diagnostics(name)

    def diagnostics(self, name: str) -> list[Json]:
        """What is published next of a file."""
        while True:
            published = self.told("textDocument/publishDiagnostics")
            if published["uri"] == self.uri(name):
                found: list[Json] = published["diagnostics"]
                return found

    def actions(self, name: str, where: Json, *only: str, automatic: bool = False) -> list[Json]:
        context: Json = {"diagnostics": [], "triggerKind": 2 if automatic else 1}
        if only:
            context["only"] = [*only]
        params = {"textDocument": {"uri": self.uri(name)}, "range": where, "context": context}
        return self.request("textDocument/codeAction", params) or []

    def leave(self) -> int:
        """Shut the server down, check that it wrote nothing else, and give its exit code."""
        self.request("shutdown")
        self.notify("exit", {})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin, self._process.stdout:
            assert self._process.stdout.read() == b""
        return self._process.wait()

    def _send(self, message: Json) -> None:
        assert self._process.stdin is not None
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
        self._process.stdin.flush()

    def _next(self) -> Json:
        if self._waiting:
            return self._waiting.popleft()
        message = self._read()
        while "method" in message and "id" in message:
            self.asked.append(message)
            self._send({"id": message["id"], "result": None})
            message = self._read()
        if message.get("method") == "window/showMessage":
            self.messages.append(message["params"]["message"])
        return message

    def _read(self) -> Json:
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline():
            if line == b"\r\n":
                message: Json = json.loads(self._process.stdout.read(length))
                return message
            name, value = line.decode("ascii").split(":")
            assert name in ("Content-Length", "Content-Type")
            if name == "Content-Length":
                length = int(value)
        raise AssertionError(f"the server is gone: {self._process.wait()}")


def edited(text: str, action: Json, encoding: str = "utf-16-le") -> str:
    """A text with the edits of an action that is about nothing else."""
    changes = action["edit"].get("documentChanges")
    edits = changes[0]["edits"] if changes else next(iter(action["edit"]["changes"].values()))
    for edit in sorted(edits, key=lambda each: -offset(text, each["range"]["start"], encoding)):
        start, end = (offset(text, edit["range"][side], encoding) for side in ("start", "end"))
        text = text[:start] + edit["newText"] + text[end:]
    return text


def covered(text: str, where: Json, encoding: str = "utf-16-le") -> str:
    """What a range of the protocol covers of a text."""
    return text[offset(text, where["start"], encoding) : offset(text, where["end"], encoding)]


def offset(text: str, position: Json, encoding: str) -> int:
    """Where a position of the protocol is in a text."""
    starts = [0, *(match.end() for match in re.finditer("\r\n|\r|\n", text))]
    start = starts[position["line"]]
    units = text[start:].encode(encoding)[: position["character"] * len("a".encode(encoding))]
    return start + len(units.decode(encoding))
