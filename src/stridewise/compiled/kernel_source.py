"""Which pointers a generated kernel only copies to: read from its C++ or Triton source. No torch.

A value is a copy if it reaches a store from a load through nothing but conversions, local arrays and the transposes of
vectors. What is not recognised counts as computed, so that no computation is ever called a copy.
"""

import re
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from stridewise.compiled import affine

_POINTER = r"(?:in_out_ptr|in_ptr|out_ptr)\d+"
_CONVERSIONS = ("static_cast", "c10::convert", "at::vec::convert", "at::vec::inverted_convert", "c10::load", "tl.cast")
_LOADS = ("at::vec::Vectorized", "at::vec::VectorizedN")
_TRANSPOSES = ("transpose_mxn", "at::vec::transpose_mxn")
_ASSIGNED = re.compile(r"^(?:const\s+)?(?:auto|float|double|int\w*|bool|bfloat16|half|at::\w+)\s+(tmp\d+)\s*=\s*(.*);$")
_PLAIN = re.compile(r"^(tmp\d+)\s*=\s*(.*)$")
_SUBSCRIPT = re.compile(rf"^({_POINTER})\[(.*)\]$")
_OFFSET = re.compile(rf"^({_POINTER})(?: \+ (.*))?$")
_ARRAY = re.compile(r"^(tmp\w+)\b(?!.*\btmp\d)")
_TRITON_LOAD = re.compile(rf"^tl\.load\(({_POINTER}) \+ (.*)\)((?:\.to\([\w.]+\))*)$")
_DIVIDED = re.compile(r"^\s*\w+ = .*\b([xyzr]\d?_?index)\b.*(?://|%).*$", re.MULTILINE)
_PART = re.compile(r"^\s*(\w+) = \(*([xyzr]\d?_?index)(?: // (\w+))?\)?(?: % \w+)?\)*$", re.MULTILINE)
_TRITON_CAST = re.compile(r"^(tmp\d+)((?:\.to\([\w.]+\))+)$")
_STORES = (
    re.compile(rf"^(tmp\d+)\.store\(({_POINTER}) \+ (.*)\);$"),
    re.compile(rf"^(tmp\d+)\.store\(({_POINTER})()\);$"),
)
_SUBSCRIPT_STORE = re.compile(rf"^({_POINTER})\[(.*)\] = (.*);$")
_ARRAY_STORE = re.compile(r"^(tmp\d+)\.store\((tmp\w+)\b.*\);$")
_ELEMENT_STORE = re.compile(r"^(tmp\w+)\[.*?\] = (.*);$")
_BEGUN = re.compile(r"^auto (tmp\d+) =$")
_RETURNED = re.compile(r"^return (.*);$")
_TRITON_STORE = re.compile(rf"^tl\.store\(({_POINTER}) \+ (.*)\)$")
_OTHER_STORE = re.compile(
    rf"\b(?:atomic_add\w*\(|tl\.atomic_\w+\()&?({_POINTER})|\b({_POINTER})\b(?:\[[^\]]*\])? [-+*/]?= "
)

_PENDING = "="
"""Under which it is kept which temporary a function's result will be."""


class Moved(Struct, frozen=True):
    """What is written to a pointer is what was read from another one."""

    source: str
    """The pointer that is read: `in_ptr0`."""
    read: str
    """Index of the element, in the kernel's loop variables; empty where several statements go through it unlike."""
    written: str
    cast: bool
    statement: str
    """That writes it."""


def moves(source: str) -> dict[str, Moved | None]:
    """Of each pointer that a kernel writes, what it only copies there; None for what is computed."""
    loads: dict[str, Moved | None] = {}
    found: dict[str, Moved | None] = {}
    for statement in _statements(source):
        stored = _stored(statement, loads)
        if stored is not None:
            pointer, moved = stored
            known = found.setdefault(pointer, moved)
            if known is None or moved is None or moved.source != known.source:
                found[pointer] = None
            elif not (affine.same_steps(known.read, moved.read) and affine.same_steps(known.written, moved.written)):
                found[pointer] = replace(known, read="")
            continue
        other = _OTHER_STORE.search(statement)
        if other is not None and not _ASSIGNED.match(statement):
            found[other[1] or other[2]] = None
            continue
        _assign(statement, loads)
    return found


def flat_variables(source: str) -> dict[str, str]:
    """The variables of a Triton kernel that go through several dimensions, as sums of those that go through one each.

    `{"y3": "y0 + 3*y1"}`, where `y0 = yindex % 3`, `y1 = yindex // 3` and `y3 = yindex`.
    """
    divided = Counter(_DIVIDED.findall(source))
    parts: dict[str, list[str]] = {}
    whole: dict[str, str] = {}
    for found in _PART.finditer(source):
        name, start, step = found.groups()
        if not _DIVIDED.match(found[0]):
            whole[name] = start
        else:
            parts.setdefault(start, []).append(f"{step}*{name}" if step else name)
    known = {start: " + ".join(terms) for start, terms in parts.items() if len(terms) == divided[start]}
    return {name: known[start] for name, start in whole.items() if start in known}


def _statements(source: str) -> Iterator[str]:
    """Lines without braces, one statement each."""
    for line in source.splitlines():
        text = line.strip()
        if text and not text.startswith(("//", "#", "@", "for(", "for (", "if(", "if (")):
            yield text


def _assign(statement: str, loads: dict[str, Moved | None]) -> None:
    """Note what a temporary holds."""
    found = _ASSIGNED.match(statement) or _PLAIN.match(statement)
    if found is not None:
        loads[found[1]] = _value(found[2], loads)
        return
    into_array = _ARRAY_STORE.match(statement)
    if into_array is not None:
        loads[into_array[2]] = loads.get(into_array[1])
        return
    element = _ELEMENT_STORE.match(statement)
    if element is not None:
        loads[element[1]] = _value(element[2], loads)
        return
    # `auto tmp0 =`, and on the next lines a function that is called at once: what it returns.
    if (begun := _BEGUN.match(statement)) is not None:
        loads[_PENDING] = Moved(begun[1], "", "", False, "")
        return
    if (returned := _RETURNED.match(statement)) is not None and (pending := loads.pop(_PENDING, None)) is not None:
        loads[pending.source] = _value(returned[1], loads)
        return
    ends = _transposed(statement)
    if ends is not None and (array := _ARRAY.match(ends[1])) is not None:
        loads[array[1]] = _end_value(ends[0], loads)


def _stored(statement: str, loads: dict[str, Moved | None]) -> tuple[str, Moved | None] | None:
    """The pointer that a statement writes, and what; None if it writes none."""
    for pattern in _STORES:
        if found := pattern.match(statement):
            return found[2], _written(loads.get(found[1]), _index(found[3]), statement)
    if found := _SUBSCRIPT_STORE.match(statement):
        return found[1], _written(_value(found[3], loads), _index(found[2]), statement)
    if found := _TRITON_STORE.match(statement):
        index, value = _first_argument(found[2])
        return found[1], _written(loads.get(_first_argument(value)[0].strip()), _index(index), statement)
    ends = _transposed(statement)
    if ends is not None and (pointer := _OFFSET.match(ends[1])) is not None:
        return pointer[1], _written(_end_value(ends[0], loads), _index(pointer[2] or "0"), statement)
    return None


def _transposed(statement: str) -> tuple[str, str] | None:
    """Source and destination of `transpose_mxn(source, stride, destination, stride)`."""
    arguments = _called(statement.removesuffix(";"), _TRANSPOSES)
    parts = _arguments(arguments) if arguments is not None else []
    return (parts[0], parts[2]) if len(parts) >= 4 else None


def _called(text: str, names: tuple[str, ...], method: str = "") -> str | None:
    """The arguments of `name<…>method(…)`, if that is all of a text."""
    name = next((name for name in names if re.match(rf"{re.escape(name)}\s*[<(]", text)), None)
    if name is None:
        return None
    rest = text[len(name) :].lstrip()
    if rest.startswith("<"):
        depth = 0
        for at, letter in enumerate(rest):
            depth += (letter == "<") - (letter == ">")
            if not depth:
                rest = rest[at + 1 :]
                break
    rest = rest.removeprefix(method)
    return rest[1:-1] if rest.startswith("(") and rest.endswith(")") and _closes_at_end(rest) else None


def _end_value(text: str, loads: dict[str, Moved | None]) -> Moved | None:
    """What a transpose reads."""
    pointer = _OFFSET.match(text)
    if pointer is not None:
        return Moved(pointer[1], _index(pointer[2] or "0"), "", False, "")
    array = _ARRAY.match(text)
    return loads.get(array[1]) if array is not None else None


def _value(text: str, loads: dict[str, Moved | None]) -> Moved | None:
    """What an expression holds, if it is a load, or one that was converted; None if it computes."""
    cast = False
    text = text.strip()
    while (inner := _called(text, _CONVERSIONS)) is not None:
        text, cast = _first_argument(inner)[0].strip(), True
    loaded = _called(text, _LOADS, "::loadu")
    subscript = _SUBSCRIPT.match(text)
    if subscript is not None and not _closes_at_end(text[subscript.end(1) :]):
        return None
    source = _OFFSET.match(_first_argument(loaded)[0].strip()) if loaded is not None else subscript
    if source is not None:
        index = source[2] or "0"
        return None if "tmp" in index else Moved(source[1], _index(index), "", cast, "")
    triton = _TRITON_LOAD.match(text)
    if triton is not None:
        index = _first_argument(triton[2])[0]
        return None if "tmp" in index else Moved(triton[1], _index(index), "", bool(triton[3]) or cast, "")
    array = _TRITON_CAST.match(text) or re.match(r"^(tmp\w+)(?:\[[^\]]*\])?$", text)
    if loaded is not None:
        array = _ARRAY.match(loaded)
    if array is not None:
        earlier = loads.get(array[1])
        changed = cast or ".to(" in text
        return earlier and Moved(earlier.source, earlier.read, "", earlier.cast or changed, "")
    return None


def _written(value: Moved | None, index: str, statement: str) -> Moved | None:
    return value and Moved(value.source, value.read, index, value.cast, statement)


def _index(text: str) -> str:
    """An index without its C++ clothes: `x2 + 256*x1`."""
    text = _first_argument(text)[0].strip()
    while (wrapped := re.match(r"^static_cast<\w+>\((.*)\)$", text)) is not None:
        text = wrapped[1]
    text = re.sub(r"\b(\d+)L\b", r"\1", text)
    while text.startswith("(") and text.endswith(")") and _closes_at_end(text):
        text = text[1:-1]
    return text.strip()


def _closes_at_end(text: str) -> bool:
    """Whether the bracket that a text begins with closes at its end."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if not depth:
            return at == len(text) - 1
    return False


def _first_argument(text: str) -> tuple[str, str]:
    """What stands before the first comma that is in no bracket, and what after it."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            return text[:at], text[at + 1 :]
        if depth < 0:
            return text[:at], ""
    return text, ""


def _arguments(text: str) -> list[str]:
    parts = []
    rest = text
    while rest:
        first, rest = _first_argument(rest)
        parts.append(first.strip())
    return parts
