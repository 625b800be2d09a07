"""IPython's own syntax in the cells of notebooks, hidden from what reads Python. No torch."""

import ast
import re
import tokenize
from collections.abc import Sequence

from stridewise.source.file import quiet

_PYTHON_CELLS = ("time", "capture", "prun", "debug", "stridewise")
"""Cell magics whose cell does to the notebook's names what it would do without them. `%%timeit` binds none of its."""
_CELL_MAGIC = re.compile(r"(?:[ \t]*(?:\r\n|\r|\n))*%%(\S*)")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_OWN = re.compile(
    r"""[ \t]*(?:
        [%!?,;/]                                                    # magics, shell commands, help, calls
        |[%\w.*\[\]=\ -]+\?\??[ \t]*$                               # help
        |(?:pip|conda|mamba)[ ]+(?:install|uninstall|update|list|show|freeze)\b
        |from[ ]__future__[ ]import[ ][\w, ]+(?:\#.*)?$             # it must stand first only in its own cell
    )""",
    re.VERBOSE,
)
_BOUND = re.compile(
    r"(?P<kept>[ \t]*[^\W\d][^=!<>#()]*=)[ \t]*(?:!|%[^\W\d])"
    r"|(?P<indent>[ \t]*)%time[ \t]+(?P<target>[^=!<>#()]+=)(?!=)"
)
_BLANK = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)


def as_python(code: str) -> str | None:
    """Give a cell's code with other text where it is IPython's own; None if a cell magic makes something else of it.

    Every line stays as many bytes long: names that tell nothing (`____`) stand in the place of what was there, and what
    it assigns is assigned to. Raises SyntaxError, or ValueError, if it is no Python even so.
    """
    magic = _CELL_MAGIC.match(code)
    if magic is not None and magic[1] not in _PYTHON_CELLS:
        return None
    if magic is None and "__future__" not in code:
        try:
            return _parsed(code)
        except SyntaxError:
            pass
    return _parsed("".join(_hidden(_LINE.findall(code))))


def _parsed(code: str) -> str:
    with quiet():
        ast.parse(code.encode())
    return code


def _hidden(lines: Sequence[str]) -> list[str]:
    """The lines with those hidden that begin a statement and are IPython's."""
    found: list[str] = []
    while len(found) < len(lines):
        at = len(found)
        text, end = _parts(lines[at])
        hidden = _hide(text)
        if hidden is None:
            found += lines[at : at + _height(lines, at)]
            continue
        found.append(hidden + end)
        while text.endswith("\\") and len(found) < len(lines):  # such a line goes on in the next, whatever it holds
            text, end = _parts(lines[len(found)])
            found.append("#".ljust(_size(text), "_")[: _size(text)] + end)
    return found


def _hide(text: str) -> str | None:
    """What stands for a line of IPython's; None if it is none."""
    bound = _BOUND.match(text)
    if bound is not None:
        kept = bound["kept"] or bound["indent"] + bound["target"]
    elif _OWN.match(text):
        kept = text[: len(text) - len(text.lstrip(" \t"))]
    else:
        return None
    return kept + "_" * (_size(text) - _size(kept))


def _height(lines: Sequence[str], at: int) -> int:
    """How many lines the statement, or its head, that begins in one of them takes."""
    following = (f"{_parts(lines[number])[0]}\n" for number in range(at, len(lines)))
    begun = False
    try:
        for token in tokenize.generate_tokens(lambda: next(following, "")):
            if token.type == tokenize.NEWLINE or (token.type == tokenize.NL and not begun):
                return token.start[0]
            begun = begun or token.type not in _BLANK
    except (tokenize.TokenError, SyntaxError):
        pass
    return 1


def _parts(line: str) -> tuple[str, str]:
    text = line.rstrip("\r\n")
    return text, line[len(text) :]


def _size(text: str) -> int:
    return len(text.encode())
