"""The events of a Chrome trace's text: all at once, or piece by piece where it is too long for memory."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from stridewise.errors import InputError
from stridewise.recording.model import LOG_KEY
from stridewise.recording.text import Text

PIECE = 1_000_000
"""Bytes of text that are decoded at once: what a processor's cache holds with what is made of it."""
LONGEST = 64_000_000
"""Bytes that one event, or what stands before or behind the events, may take."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a text that it can't decode."""

Events = TypeVar("Events")


class Keys(Struct):
    """The top-level keys that are read, and that a saved recording keeps: others hold host names and environments."""

    log: Raw = msgspec.field(default=Raw(b""), name=LOG_KEY)
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    distributed: Raw = msgspec.field(default=Raw(b""), name="distributedInfo")
    """Of which nothing but the rank is used."""
    schema_version: Raw = msgspec.field(default=Raw(b""), name="schemaVersion")
    device_properties: Raw = msgspec.field(default=Raw(b""), name="deviceProperties")
    record_shapes: Raw = msgspec.field(default=Raw(b""), name="record_shapes")
    with_stack: Raw = msgspec.field(default=Raw(b""), name="with_stack")
    unit: Raw = msgspec.field(default=Raw(b""), name="displayTimeUnit")


class File(Keys, Generic[Events], kw_only=True):
    """A trace's text, decoded: its events as whatever they are wanted as."""

    events: Events = msgspec.field(name="traceEvents")


class Pieces(Generic[Events]):
    """A trace's events, in one or more pieces; `keys` and `notes` are whole when the last was given.

    `kind` is what msgspec makes of a list of events. Raises InputError, when iterated, for a text that is no trace.
    """

    def __init__(self, text: Text, kind: Any, begun: bytes = b"") -> None:
        self.text = text
        self.begun = begun
        self.keys = Keys()
        self.notes: list[str] = []
        self._file: msgspec.json.Decoder[File[Events]] = msgspec.json.Decoder(File[kind])
        self._events: msgspec.json.Decoder[Events] = msgspec.json.Decoder(kind)
        self._keys = msgspec.json.Decoder(Keys)
        self._opening = b'{"traceEvents":['
        """What makes an object of the last events and of what follows them."""
        self._found = False

    def __iter__(self) -> Iterator[Events]:
        first = self.begun + self.text.read(PIECE - len(self.begun))
        self.begun = b""
        for events in self._pieces(first) if len(first) >= PIECE else self._whole(first):
            self._found = True
            yield events
            del events
        if self.text.broken:
            self.notes.append(f"The file is incomplete, {self.text.broken}: read as far as it goes.")

    def _whole(self, content: bytes) -> Iterator[Events]:
        try:
            if content.lstrip()[:1] == b"[":
                events = self._events.decode(content)
            else:
                events = self._take(self._file.decode(content))
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise self._no_trace(error) from None
        except msgspec.DecodeError as error:
            yield from self._end(content[self._head(content, error) :])
        else:
            yield events

    def _pieces(self, first: bytes) -> Iterator[Events]:
        rest = first[self._head(first, ValueError(f"it has no events in its first {PIECE // 10**6} MB")) :]
        del first
        while True:
            wanted = len(rest)  # for what is longer than a piece, so that it is not tried too often
            for cut in cuts(rest):
                events = self._front(rest, cut)
                if events is not None:
                    rest, wanted = rest[cut:].lstrip(b" \t\r\n,"), PIECE
                    yield events
                    del events  # before the next piece is decoded
                    break
            if len(rest) > LONGEST:
                raise self._no_trace(ValueError(f"a value in it is longer than {LONGEST // 10**6} MB"))
            more = self.text.read(max(wanted, PIECE))
            if not more:
                break
            rest += more
        yield from self._end(rest)

    def _head(self, content: bytes, error: Exception) -> int:
        """Where the first event begins; the keys before it are kept."""
        found = head_of(content)
        if found is None:
            raise self._no_trace(error)
        try:
            self.keys = self._keys.decode(found[0])
        except UNREADABLE as wrong:
            raise self._no_trace(wrong) from None
        if content.lstrip()[:1] == b"[":
            self._opening = b"["
        return found[1]

    def _front(self, text: bytes, cut: int) -> Events | None:
        """The events before a cut; None if it does not lie between two."""
        try:
            return self._some(memoryview(text)[:cut])
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise self._no_trace(error) from None
        except msgspec.DecodeError as error:
            if not was_cut_off(error, cut + 2):
                raise self._no_trace(error) from None
            return None

    def _some(self, text: memoryview) -> Events:
        """The events of a text without the brackets around them; mended where it is no JSON."""
        whole = b"".join((b"[", text, b"]"))
        try:
            return self._events.decode(whole)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError as error:
            if was_cut_off(error, len(whole)):
                raise
            return self._events.decode(repaired(whole))

    def _end(self, rest: bytes) -> Iterator[Events]:
        """The last events and what follows them; or as many of them as a broken file still holds."""
        text = self._opening + rest
        try:
            try:
                events = self._rest(text)
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                text = repaired(text)
                events = self._rest(text)
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise self._no_trace(error) from None
        except msgspec.DecodeError as error:
            if not was_cut_off(error, len(text)):
                raise self._no_trace(error) from None
            yield from self._salvaged(rest, error)
        else:
            yield events

    def _rest(self, text: bytes) -> Events:
        return self._events.decode(text) if self._opening == b"[" else self._take(self._file.decode(text))

    def _salvaged(self, rest: bytes, error: Exception) -> Iterator[Events]:
        for cut in (*ends(rest), *cuts(rest)):
            try:
                events = self._some(memoryview(rest)[:cut])
            except UNREADABLE:
                continue
            if events:
                self._found = True
                yield events
                break
        if not self._found:
            raise self._no_trace(error)
        if not self.text.broken:
            self.notes.append("The file ends too early: read as far as it goes.")

    def _take(self, file: "File[Events]") -> Events:
        for key in Keys.__struct_fields__:
            if value := getattr(file, key):
                setattr(self.keys, key, value)
        return file.events

    def _no_trace(self, error: Exception) -> InputError:
        if self.text.broken:
            return InputError(f"{self.text.name} can't be read: {self.text.broken}.", advice="Copy or record it again.")
        return InputError(
            f"{self.text.name} is no trace that can be read: {error}.",
            expected="Expected: JSON with `traceEvents`, as `torch.profiler` and stridewise write it.",
        )


# -- where a text may be cut -------------------------------------------------------------------------------------------

_HEAD = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*["}])')
_END = re.compile(rb"\}\s{0,64}\]\s{0,64}(?:[,}]|\Z)")
_OPEN_END = re.compile(rb"\}\s*(?:,|\Z)")
_LONGEST_GAP = 64
"""Bytes of white space between two events at which they are still told apart."""
_LAST_BYTE = re.compile(r"\(byte (\d+)\)")
_TRIES = 4
_MOST_BRACES = 200
"""How many closing braces the last whole event of a broken text is looked for at: what it is in is a piece or two."""


def head_of(text: bytes) -> tuple[bytes, int] | None:
    """What stands before the events, as an object of its own, and where the first event begins."""
    stripped = text.lstrip()
    if stripped.startswith(b"["):
        return b"{}", len(text) - len(stripped) + 1
    for found in islice(_HEAD.finditer(text), _TRIES):
        head = text[: found.start()] + b'"traceEvents":null}'
        if _is_json(head):  # else the words stand in a string
            return head, found.end()
    return None


def cuts(text: bytes) -> Iterator[int]:
    """Where `text` may be cut between two events: positions behind a closing brace, the likeliest first.

    Whether one is right shows when what stands before it is decoded: within a string, or within an event, it is not.
    From the end on first, then further and further back, for a text that goes on long behind its events.
    """
    end = len(text)
    for _ in range(_TRIES):
        end = _cut_before(text, end)
        if end < 0:
            return
        yield end
        end -= 1
    share = 2
    while (end := len(text) // share) > 1000:
        cut = _cut_before(text, end)
        if cut > 0:
            yield cut
        share *= 2


def ends(text: bytes) -> Iterator[int]:
    """Where the events of a text may end though what follows them is broken off: the likeliest first."""
    found = [match.start() + 1 for match in _END.finditer(text)]
    yield from reversed(found[-_TRIES:])
    end = len(text)
    for _ in range(_MOST_BRACES):
        end = _brace_before(text, end, _OPEN_END)
        if end < 0:
            return
        yield end
        end -= 1


def _cut_before(text: bytes, end: int) -> int:
    """The last place before `end` where one object seems to follow another; -1: none."""
    return _brace_before(text, end, _BETWEEN)


def _brace_before(text: bytes, end: int, followed: re.Pattern[bytes]) -> int:
    """Behind the last closing brace before `end` that a pattern fits; -1: none."""
    while (brace := text.rfind(b"}", 0, end)) >= 0:
        if followed.match(text, brace, brace + _LONGEST_GAP):
            return brace + 1
        end = brace
    return -1


def was_cut_off(error: msgspec.DecodeError, length: int) -> bool:
    """Whether a text of that length is sound as far as it goes: it ends within a value, or behind the last event."""
    message = str(error)
    if "truncated" in message or "trailing characters" in message:
        return True
    found = _LAST_BYTE.search(message)
    return found is not None and int(found[1]) >= length - 2


# Kineto has written numbers that are none in JSON, and backslashes of Windows paths as they are.
_NO_NUMBER = re.compile(rb":\s*-?(?:nan(?:\(\w*\))?|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_NO_ESCAPE = re.compile(rb'\\(?:\\|["/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def repaired(text: bytes) -> bytes:
    """The same text with what no JSON reader takes put right: `nan`, `inf`, lone backslashes, broken UTF-8."""
    text = _NO_NUMBER.sub(b":null", text)
    text = _NO_ESCAPE.sub(lambda found: found[0] if len(found[0]) > 1 else b"\\\\", text)
    return _CONTROL.sub(b" ", text).decode("utf-8", "replace").encode()


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, Raw])
    except UNREADABLE:
        return False
    return True
