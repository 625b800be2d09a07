"""Jupyter notebooks: the code of their cells, and the same file with other code in some. No torch."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from msgspec import Struct

from stridewise.errors import InputError

SUFFIX = ".ipynb"
_FORMAT = 4
_BLANKS = re.compile(r"[ \t\r\n]*")
_ROW = re.compile(r"(?:[^\\]|\\(?!n).)*?\\n|.+", re.DOTALL)
"""A line of code within a string of JSON: up to its `\\n`."""
_decode = json.JSONDecoder().raw_decode


class Cell(Struct, frozen=True):
    """The code of one cell. Spans are of characters in the file's text."""

    number: int
    """Among all cells, counted from 1."""
    code: str
    span: tuple[int, int]
    """Of its `source`."""
    strings: tuple[tuple[int, int], ...]
    """Of the strings that its `source` is made of."""


class Notebook:
    """A notebook of format 4. Raises InputError if it is none that can be read."""

    def __init__(self, name: str, content: bytes) -> None:
        self.cells: tuple[Cell, ...] = ()
        """Those with Python code."""
        self.is_python = True
        try:
            self._text = content.decode()
            if self._text.strip("\ufeff \t\r\n"):  # editors open an empty file as a notebook without cells
                self._read()
        except UnicodeDecodeError:
            raise InputError(f"{name} is no notebook that can be read: it is not UTF-8.") from None
        except json.JSONDecodeError as error:
            raise InputError(
                f"{name}:{error.lineno} is no notebook that can be read: its JSON ends or breaks off here"
                f" ({error.msg.lower()})."
            ) from None
        except ValueError as error:
            raise InputError(f"{name} is no notebook that can be read: {error}.") from None
        except (RecursionError, MemoryError):
            raise InputError(
                f"{name} is no notebook that can be read: it is nested too deeply, or too large."
            ) from None

    def with_code(self, codes: Mapping[int, str]) -> bytes:
        """The file with other code in the cells of these numbers, and every other byte as it was."""
        text, end = [], 0
        for cell in self.cells:
            if codes.get(cell.number, cell.code) != cell.code:
                text += [self._text[end : cell.span[0]], self._source(cell, codes[cell.number])]
                end = cell.span[1]
        return "".join((*text, self._text[end:])).encode()

    def line_in_file(self, cell: Cell, line: int) -> int | None:
        """The line of the file that holds a line of a cell; None where a line of the file holds all of them."""
        rows = [0]
        for start, end in cell.strings:
            rows.append(rows[-1] + _decode(self._text[start:end])[0].count("\n"))
        if line - 1 not in rows[:-1] or "\n" not in self._text[slice(*cell.span)]:
            return None
        return self._text.count("\n", 0, cell.strings[rows.index(line - 1)][0]) + 1

    def _read(self) -> None:
        cursor = _Cursor(self._text)
        fields: dict[str, Any] = {}
        cells: list[tuple[Cell, dict[str, Any]]] = []
        for key in cursor.members("it is no JSON object"):
            if key == "cells":
                cells = [cursor.cell(number) for number, _ in enumerate(cursor.items("`cells` is no list"), 1)]
                fields[key] = cells
            else:
                fields[key] = cursor.value()
        cursor.end()
        version = fields.get("nbformat")
        if version != _FORMAT:
            raise ValueError(
                f"its `nbformat` is {version!r:.20}, and {_FORMAT} is what is read: save it anew in Jupyter"
                if "nbformat" in fields
                else "it says no `nbformat`"
            )
        if "cells" not in fields:
            raise ValueError("it has no `cells`")
        metadata = _dict(fields.get("metadata"))
        names = (_dict(metadata.get("kernelspec")).get("language"), _dict(metadata.get("language_info")).get("name"))
        self.is_python = all(name is None or _is_python(name) for name in names)
        self.cells = tuple(cell for cell, rest in cells if self.is_python and _holds_python(rest))

    def _source(self, cell: Cell, code: str) -> str:
        """The JSON for other code in a cell, made as its own is: lines that are in both as they stand there."""
        strings = [self._text[start + 1 : end - 1] for start, end in cell.strings]
        raws = _ROW.findall("".join(strings))
        old, new = _lines(cell.code), _lines(code)
        if [json.loads(f'"{raw}"') for raw in raws] != old:  # a line's end is written in another way than as \n
            raws = [self._encoded(line) for line in old]
        rows: list[str] = []
        for what, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            rows += raws[start:end] if what == "equal" else map(self._encoded, new[first:last])
        if self._text[cell.span[0]] == '"':
            return f'"{"".join(rows)}"'
        if not rows or not cell.strings:
            return json.dumps(new, ensure_ascii=self._text.isascii())
        (first, second), last = cell.strings[0], cell.strings[-1][1]
        before, behind = self._text[cell.span[0] + 1 : first], self._text[last : cell.span[1] - 1]
        between = self._text[second : cell.strings[1][0]] if len(cell.strings) > 1 else f",{before}"
        return "".join(("[", before, between.join(f'"{row}"' for row in rows), behind, "]"))

    def _encoded(self, line: str) -> str:
        return json.dumps(line, ensure_ascii=self._text.isascii())[1:-1]


class _Cursor:
    """A place in a text of JSON: the values that are of interest are read there, the others passed over."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = int(text.startswith("\ufeff"))

    def value(self) -> Any:
        """Read a value, and move behind it."""
        value, self._at = _decode(self._text, self._skip())
        return value

    def members(self, otherwise: str) -> Iterator[str]:
        """The keys of an object. Before it goes on, the value behind each has to be read."""
        for _ in self._all("{", "}", otherwise):
            key = self.value()
            self._take(":")
            yield key

    def items(self, otherwise: str) -> Iterator[None]:
        """One for each item of a list, which has to be read before it goes on."""
        return self._all("[", "]", otherwise)

    def cell(self, number: int) -> tuple[Cell, dict[str, Any]]:
        """Read a cell: its source, and its other fields."""
        source, span, strings = "", (0, 0), []
        fields: dict[str, Any] = {}
        for key in self.members(f"cell {number} is no object"):
            if key != "source":
                fields[key] = self.value()
                continue
            start = self._skip()
            strings = [self._string(number)] if self._text.startswith('"', start) else []
            if not strings:
                strings = [self._string(number) for _ in self.items(f"the source of cell {number} is no text")]
            source, span = "".join(text for text, _ in strings), (start, self._at)
            fields[key] = source
        if "source" not in fields or "cell_type" not in fields:
            raise ValueError(f"cell {number} has no `{'source' if 'source' not in fields else 'cell_type'}`")
        return Cell(number, source, span, tuple(place for _, place in strings)), fields

    def end(self) -> None:
        """Raise JSONDecodeError if something is left."""
        if self._skip() != len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, self._at)

    def _string(self, number: int) -> tuple[str, tuple[int, int]]:
        start = self._skip()
        text = self.value()
        if not isinstance(text, str):
            raise ValueError(f"the source of cell {number} is no text")
        return text, (start, self._at)

    def _all(self, opening: str, closing: str, otherwise: str) -> Iterator[None]:
        at = self._skip()
        if not self._text.startswith(opening, at):
            if at < len(self._text) and self._text[at] in '{["0123456789-tfnNI':
                raise ValueError(otherwise)
            raise json.JSONDecodeError("Expecting value", self._text, at)
        self._at = at + 1
        if self._text.startswith(closing, self._skip()):
            self._take(closing)
            return
        while True:
            yield
            if self._take("," + closing) == closing:
                return

    def _take(self, wanted: str) -> str:
        at = self._skip()
        found = self._text[at : at + 1]
        if not found or found not in wanted:
            raise json.JSONDecodeError(f"Expecting {' or '.join(wanted)}", self._text, at)
        self._at = at + 1
        return found

    def _skip(self) -> int:
        self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._at


def _holds_python(cell: Mapping[str, Any]) -> bool:
    language = _dict(_dict(cell.get("metadata")).get("vscode")).get("languageId")
    return cell["cell_type"] == "code" and (language is None or _is_python(language))


def _is_python(language: object) -> bool:
    return isinstance(language, str) and language.lower() in ("python", "ipython", "python3")


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _lines(code: str) -> list[str]:
    *lines, last = code.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])
