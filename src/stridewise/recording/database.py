"""Reads tables of a SQLite database that anyone may have written: nothing in the file runs, and all work has a bound.

Only columns of plain tables are read, one row after the other; what is joined is joined by whoever reads. So no index
is needed, and the file is never written to.
"""

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from stridewise.errors import InputError

MAGIC = b"SQLite format 3\0"
"""How every SQLite database begins."""

LONGEST_VALUE = 16_000_000
"""Bytes of one value that are read."""

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LONGEST_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 4,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
# Pages of a hostile file can refer to the same pages again and again, 20 levels deep: a scan would never end.
_INSTRUCTIONS_AT_ONCE = 100_000
_INSTRUCTIONS = 20_000_000
_INSTRUCTIONS_A_BYTE = 20
"""Reading a table takes some 10 instructions of SQLite's machine a row, and each row takes more than 16 bytes."""
_SMALLEST_ROW = 16
_SLACK = 1_000_000
_JOURNALS = ("-journal", "-wal")
_PLAIN_TABLE = re.compile(r"""CREATE TABLE\s+["'`\[]?(\w+)""", re.IGNORECASE)
_KINDS: dict[type, str] = {
    type(None): "nothing", int: "a whole number", float: "a fraction", str: "text", bytes: "bytes",
}  # fmt: skip

Row = tuple[Any, ...]


class Database:
    """A database, open for reading. Every method raises InputError for what can't be read."""

    def __init__(self, path: str | os.PathLike[str], name: str) -> None:
        self.name = name
        self._columns: dict[str, list[str]] = {}
        with self._failures():
            size = self._checked_size(path)
            self._bytes_left = size + _SLACK
            self._instructions_left = _INSTRUCTIONS + _INSTRUCTIONS_A_BYTE * size
            # Immutable: no lock is taken or waited for, and no journal is played back into the file.
            uri = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)
            try:
                self._guard()
                self.tables = self._tables()
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> "Database":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def rows(
        self,
        table: str,
        required: Sequence[str],
        optional: Sequence[str] = (),
        *,
        texts: frozenset[str] = frozenset(),
        where: str = "",
    ) -> Iterator[Row]:
        """A table's rows, if it is there: integers, or text in the columns of `texts`.

        The required columns come first, and never hold None; the optional ones may be missing, and then do.
        """
        if table not in self.tables:
            return
        there = self._columns_of(table)
        missing = [column for column in required if column.lower() not in there]
        if missing:
            raise InputError(
                f"{self.name} can't be read: its table {table} has no column {missing[0]}.",
                expected="Expected: a database as `nsys export --type sqlite` writes it.",
            )
        names = (*required, *optional)
        selected = ", ".join(f'"{name}"' if name.lower() in there else "NULL" for name in names)
        text_at = [place for place, name in enumerate(names) if name in texts]
        sound: set[tuple[type, ...]] = set()  # rows have few different types, and asking for each value takes long
        with self._failures():
            for row in self._connection.execute(f'SELECT {selected} FROM "{table}" {where}'):
                types = tuple(map(type, row))
                if types not in sound:
                    self._check(table, names, row, len(required), texts)
                    sound.add(types)
                size = _SMALLEST_ROW
                for place in text_at:
                    size += len(row[place] or "")
                self._spend(size)
                yield row

    def value(self, table: str, column: str, row_id: int) -> str | None:
        """The text in one row of a table whose key is `id`; None if there is no such row."""
        if table not in self.tables or not {"id", column.lower()} <= set(self._columns_of(table)):
            return None
        with self._failures():
            query = f'SELECT "{column}" FROM "{table}" WHERE "id" = ? LIMIT 1'
            found = self._connection.execute(query, (row_id,)).fetchone()
        if found is None or found[0] is None:
            return None
        self._check(table, (column,), found, 1, frozenset({column}))
        text: str = found[0]
        self._spend(len(text))
        return text

    # -- inside -----------------------------------------------------------------------------------------------------

    def _checked_size(self, path: str | os.PathLike[str]) -> int:
        for ending in _JOURNALS:
            beside = os.fspath(path) + ending
            with suppress(FileNotFoundError):
                if os.stat(beside).st_size:
                    raise InputError(
                        f"{self.name} is in use, or was not closed: {os.path.basename(beside)} lies beside it.",
                        advice="Wait for the export to end, or export the report again.",
                    )
        return os.stat(path).st_size

    def _guard(self) -> None:
        connection = self._connection
        for limit, most in _LIMITS.items():
            connection.setlimit(limit, most)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.set_progress_handler(self._work, _INSTRUCTIONS_AT_ONCE)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON", "mmap_size=0", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        connection.set_authorizer(_allowed)

    def _work(self) -> int:
        self._instructions_left -= _INSTRUCTIONS_AT_ONCE
        return self._instructions_left < 0

    def _spend(self, count: int) -> None:
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise InputError(f"{self.name} can't be read: it yields more than its size allows.")

    def _tables(self) -> frozenset[str]:
        """The plain tables. Whether one is plain, its definition says: the other columns of the schema may lie."""
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        found = []
        for name, definition in self._connection.execute(query):
            defined = _PLAIN_TABLE.match(definition) if type(definition) is str else None
            if defined is not None and defined[1] == name:
                found.append(name)
        return frozenset(found)

    def _columns_of(self, table: str) -> list[str]:
        """In small letters, as SQLite takes names. `table_info` leaves generated columns out, which would compute."""
        if table not in self._columns:
            with self._failures():
                found = self._connection.execute(f'PRAGMA table_info("{table}")')
                self._columns[table] = [str(row[1]).lower() for row in found]
        return self._columns[table]

    def _check(self, table: str, names: Sequence[str], row: Row, required: int, texts: frozenset[str]) -> None:
        """SQLite keeps values of any type in any column."""
        for place, (name, value) in enumerate(zip(names, row, strict=True)):
            wanted = str if name in texts else int
            if type(value) is not wanted and (value is not None or place < required):
                raise InputError(
                    f"{self.name} can't be read: {table}.{name} holds {_KINDS[type(value)]}, not {_KINDS[wanted]}."
                )

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, OSError, UnicodeDecodeError) as error:
            # SQLite quotes a damaged schema in its message, which may then be no text.
            reason = "its schema is damaged" if isinstance(error, UnicodeDecodeError) else str(error)[:200]
            raise InputError(
                f"{self.name} is no database that can be read: {reason}.",
                advice="If it is a report's, export it again: nsys export --type sqlite REPORT",
            ) from None


def _allowed(action: int, first: str | None, second: str | None, base: str | None, source: str | None) -> int:
    """Reading columns, and nothing else; nothing that a view asks for (`source`), no function, no recursion."""
    if source is None and action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first == "table_info":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
