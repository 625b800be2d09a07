"""Where in the program a call was made, found from Python's frames while it runs. No torch."""

import os
import sys
import sysconfig
from importlib.util import find_spec
from types import CodeType, FrameType
from typing import Any


def _torch_folder() -> str:
    loaded = sys.modules.get("torch")
    try:
        origin = loaded.__file__ if loaded is not None else getattr(find_spec("torch"), "origin", None)
    except ImportError:
        origin = None
    return os.path.dirname(origin or "<torch>") + os.sep


_TORCH = _torch_folder()
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO = os.path.join(_OURS, "demo", "")
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = os.sep + "site-packages" + os.sep
_GENERATED = frozenset({"<attrs generated init>", "<__array_function__ internals>"})
_COMPILED = os.sep + "torchinductor_"
"""Part of the folder in which inductor keeps what it generates."""
_HANDLERS = frozenset(
    {"handle_torch_function", "wrapped", "_handle_torch_function_and_wrap_type_error_to_not_implemented"}
)


def is_foreign_to_program(filename: str) -> bool:
    """Whether a frame of this file is torch's, the standard library's, ours or generated: never a call's site."""
    if filename.startswith(_DEMO):  # it stands for a program
        return False
    return (
        filename.startswith((_TORCH, _OURS, "<eval_with_key>", "<frozen", "<string>", "<torch_package"))
        or (filename.startswith(_STDLIB) and _PACKAGES not in filename)
        or filename in _GENERATED
        or _COMPILED in filename
    )


def _is_command_line(frame: FrameType) -> bool:
    """Whether a frame is of `python -c`; other code of its file name was made by `exec`, as dataclasses do."""
    main = sys.modules.get("__main__")
    if (
        frame.f_code.co_filename != "<string>"
        or main is None
        or hasattr(main, "__file__")
        or frame.f_globals is not vars(main)
    ):
        return False
    return not frame.f_code.co_name.startswith("__")


_PROGRAM, _FOREIGN, _VIA = 1, 2, 3
"""Kinds of code: a call's site, no site, and no site but worth telling how the call got to torch."""


class Place:
    """The expression that a call is made from: its number as a site (-1: it is not the program's), and a stand-in."""

    __slots__ = ("code", "site", "stand_in")

    def __init__(self, code: CodeType, site: int, stand_in: CodeType) -> None:
        self.code = code
        """Kept alive, since places are known by its address."""
        self.site = site
        self.stand_in = stand_in


class FrameTable:
    """Numbers the expressions that calls come from."""

    def __init__(self) -> None:
        self.places: dict[tuple[int, int], Place] = {}
        """By the address of a code object and the index of its instruction."""
        self.site_codes: list[tuple[CodeType, int]] = []
        self._vias: dict[tuple[int, int], int] = {}
        self._kinds: dict[int, int] = {}
        """By the address of a code object."""
        self._codes: list[CodeType] = []
        """Keeps alive what `_kinds` knows by address."""

    def place(self, frame: FrameType) -> Place:
        """The expression that a frame is at."""
        code, at = frame.f_code, frame.f_lasti
        key = (id(code), at)
        known = self.places.get(key)
        if known is None:
            site = self._number(code, at) if self._kind(frame) == _PROGRAM else -1
            known = self.places[key] = Place(code, site, _stand_in(code, frame.f_lineno))
        return known

    def find(self, frame: FrameType | None) -> tuple[int, int]:
        """The sites of the nearest frame of the program's own, and of torch's innermost below it; -1 for none."""
        kinds, via = self._kinds, -1
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code)) or self._kind(frame)
            if kind == _PROGRAM:
                return self.place(frame).site, via
            if kind == _VIA and via < 0:
                via = self._via(code, frame.f_lasti)
            frame = frame.f_back
        return -1, via

    def _kind(self, frame: FrameType) -> int:
        code = frame.f_code
        known = self._kinds.get(id(code))
        if known is not None:
            return known
        kind = _PROGRAM
        # The program's own modes and subclasses hand calls on: what called them is the site.
        if code.co_name == "__torch_function__":
            kind = _FOREIGN
        elif is_foreign_to_program(code.co_filename) and not _is_command_line(frame):
            is_via = code.co_name not in _HANDLERS and code.co_filename.startswith(_TORCH)
            kind = _VIA if is_via else _FOREIGN
        self._codes.append(code)
        self._kinds[id(code)] = kind
        return kind

    def _via(self, code: CodeType, at: int) -> int:
        key = (id(code), at)
        known = self._vias.get(key)
        if known is None:
            known = self._vias[key] = self._number(code, at)
        return known

    def _number(self, code: CodeType, at: int) -> int:
        # Two threads may number the same expression twice; both numbers are good.
        entry = (code, at)
        self.site_codes.append(entry)
        number = len(self.site_codes) - 1
        while self.site_codes[number] is not entry:
            number -= 1
        return number


# -- a frame that stands in for the caller's -----------------------------------------------------------------------


def _call(function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs) if kwargs else function(*args)


def _lines_without_columns(code: CodeType) -> bytes:
    """A line table, as CPython's `Objects/locations.md` describes it, in which all is on the first line."""
    units = len(code.co_code) // 2
    table = bytearray()
    while units:
        length = min(units, 8)
        table += bytes([0x80 | 13 << 3 | (length - 1), 0])
        units -= length
    return bytes(table)


_LINES = _lines_without_columns(_call.__code__)


def _stand_in(code: CodeType, line: int | None) -> CodeType:
    """Code that makes a call and looks as if it were at the caller's own line.

    A warning is attributed to a frame by the frame's file, line and globals. Torch's warnings would all come from one
    line of ours: other text on stderr, other filters, and most of them taken for repetitions of the first.
    """
    return _call.__code__.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=line or code.co_firstlineno,
        co_linetable=_LINES,
    )


def forget_frames_below(error: BaseException) -> None:
    """Cut the frame that made the call out of a traceback: it would keep the call's arguments alive.

    To be called where the exception was caught, by the frame that called the stand-in.
    """
    own = error.__traceback__
    if own is not None and own.tb_next is not None and own.tb_next.tb_frame.f_code.co_code == _call.__code__.co_code:
        own.tb_next = own.tb_next.tb_next
