"""What the tensors that go into a graph are called in the program. No torch."""

import re
from collections.abc import Iterable, Mapping, Sequence

_STEP = re.compile(r"\._modules\['([^']*)'\]|\._(parameters|buffers)\['([^']*)'\]|\['([^']*)'\]|\[(\d+)\]|\.(\w+)")


def of_inputs(placeholders: Sequence[str], sources: Iterable[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """What the placeholders of a graph are, by name: `` parameter `fc.weight` ``, `` input `x` ``.

    `sources` are Dynamo's: `L['self']._modules['fc']._parameters['weight']`. A placeholder's name is one of them with
    all that is no letter, digit or underscore as an underscore. `renamed` says what the sources' roots are called.
    """
    known: dict[str, str] = {}
    for source in sources:
        known.setdefault(_squeezed(source), source)
    return {name: described(known[key], renamed) for name in placeholders if (key := _squeezed(name)) in known}


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text).strip("_").lower()


def described(source: str, renamed: Mapping[str, str] | None = None) -> str:
    """A source in words."""
    for before, name in (renamed or {}).items():
        if source == before or source.startswith((f"{before}.", f"{before}[")):
            source = f"L['{name}']{source[len(before) :]}"
            break
    text, role = _path(source), "input"
    for kind in ("parameters", "buffers"):
        if f"._{kind}[" in source:
            role = kind[:-1]
    return f"{role} `{text}`"


def _path(source: str) -> str:
    """`fc.weight`, `x`, `batch[0]`."""
    root = re.match(r"^[LG]\['([^']*)'\]", source)
    if root is None:
        return source
    parts: list[str] = []
    is_module = False
    for step in _STEP.finditer(source, root.end()):
        module, kind, tensor, key, index, attribute = step.groups()
        if module is not None or kind is not None:
            is_module = True
            parts.append(f".{module or tensor}")
        elif key is not None:
            parts.append(f"[{key!r}]")
        elif index is not None:
            parts.append(f"[{index}]")
        elif attribute is not None:
            parts.append(f".{attribute}")
    path = "".join(parts)
    return path.lstrip(".") if is_module else f"{root[1]}{path}"
