"""A graph as the compiler prints it: nodes, their source lines, and the layouts that eager mode has. No torch."""

import re

from msgspec import Struct

from stridewise.results.compiled import Strides

_LINE = re.compile(r"^\s*# File: (.*):(\d+) in (.*?), code: (.*)$")
_NODE = re.compile(r"^\s*(\w+)(?:: \"([^\"]*)\")? = ([\w.$]+)(?:\((.*)\))?(\[\d+\])?;?")
_PLACEHOLDER = re.compile(r"(\w+): \"([^\"]*)\"")
_TYPE = re.compile(r"^(?:Sym\(.*\)|(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?(.*))$")
_DTYPES = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex", "b": "bool"}


class Place(Struct, frozen=True):
    """A line of the program."""

    file: str
    line: int
    function: str
    text: str


class Node(Struct, frozen=True):
    """A node: a placeholder, or an operator's call."""

    name: str
    target: str
    """`torch.ops.aten.clone.default`; `placeholder`."""
    arguments: tuple[str, ...]
    """The nodes among its arguments, in order."""
    strides: Strides | None
    place: Place | None
    text: str


def nodes(text: str) -> dict[str, Node]:
    """The nodes of a printed graph, by name, in order."""
    found: dict[str, Node] = {}
    place: Place | None = None
    is_signature = False
    for line in text.splitlines():
        stripped = line.strip()
        is_signature = is_signature or stripped.startswith("def forward(")
        if is_signature:
            for name, kind in _PLACEHOLDER.findall(line):
                found[name] = Node(name, "placeholder", (), _strides(kind), None, stripped)
            is_signature = not (stripped.endswith("):") or "):" in stripped)
            continue
        if stripped.startswith("#"):
            comment = _LINE.match(line)
            if comment is not None:
                place = Place(comment[1], int(comment[2]), comment[3], comment[4])
            elif stripped.startswith("# No stacktrace"):
                place = None
            continue
        node = _NODE.match(line)
        if node is not None and node[1] != "return":
            names = re.findall(r"\b[a-zA-Z_]\w*\b", f"{node[3] if node[5] else ''} {node[4] or ''}")
            arguments = tuple(name for name in names if name in found and name != node[1])
            found[node[1]] = Node(node[1], node[3], arguments, _strides(node[2] or ""), place, stripped)
    return found


def results(text: str) -> tuple[str, ...]:
    """The names of what a printed graph returns, in order; without None and numbers."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("return ")]
    names = re.findall(r"\b[a-zA-Z_]\w*\b", lines[-1].removeprefix("return ")) if lines else []
    return tuple(name for name in names if name != "None")


def _strides(text: str) -> Strides | None:
    """`f32[2, 8][8, 1]cpu`; None without strides."""
    found = _TYPE.match(text.strip())
    if found is None or found[1] is None or found[3] is None:
        return None
    sizes, strides = _numbers(found[2]), _numbers(found[3])
    return Strides(sizes, strides, _dtype(found[1])) if len(sizes) == len(strides) else None


def _numbers(text: str) -> tuple[int | str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(int(part) if re.fullmatch(r"-?\d+", part) else part for part in parts)


def _dtype(short: str) -> str:
    """`float32` for `f32`."""
    letters = re.match(r"^[a-z]+", short)
    if letters is None or letters[0] not in _DTYPES:
        return short
    return _DTYPES[letters[0]] if letters[0] == "b" else _DTYPES[letters[0]] + short[letters.end() :]
