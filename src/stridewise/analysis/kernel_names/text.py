"""Kernel names as text: how much of one is read, and which part is the function's own name."""

import re

LENGTH = 4096
"""Characters of a name that are looked at: what comes later repeats the arguments, and a name can be hostile."""

_IDENTIFIER = re.compile(r"(\d{1,3})(?=[A-Za-z_])")
_MANGLED = re.compile(r"_ZN?[KVr]*(?:S[ta])?")
_ANONYMOUS = ("(anonymous namespace)", "_GLOBAL__N_1")


def function_name(name: str) -> str:
    """Name of the function without return type, template arguments and parameters: they name other functions.

    Reads Itanium mangling as far as nested names go (https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling).
    """
    text = name[:LENGTH]
    if mangled := _MANGLED.match(text):
        parts = []
        position = mangled.end()
        while length := _IDENTIFIER.match(text, position):
            position = length.end() + int(length[1])
            parts.append(text[length.end() : position])
            if not mangled[0].startswith("_ZN"):
                break
        if parts:
            return "::".join(part for part in parts if part not in _ANONYMOUS)
    return _outside_brackets(text.replace(_ANONYMOUS[0] + "::", "")).split(" ")[-1]


def _outside_brackets(text: str) -> str:
    kept = []
    depth = 0
    for piece in re.split(r"([<>()])", text):
        if piece in ("<", "("):
            depth += 1
        elif piece in (">", ")"):
            depth = max(0, depth - 1)
        elif not depth:
            kept.append(piece)
    return "".join(kept).strip()
