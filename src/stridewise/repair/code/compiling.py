"""Source as the code objects that an import makes of it, or that a notebook makes of a cell. No torch."""

import __future__

import ast
import warnings
from collections import defaultdict, deque
from types import CodeType

from stridewise.repair.refused import Refused

_FUTURES = [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]


def compiled(content: bytes, filename: str) -> CodeType:
    """A file's code. Raises Refused for what is no Python."""
    return _compile(content, filename, 0)


def by_statement(content: bytes, filename: str) -> CodeType:
    """A cell's code as IPython makes it: of each statement by itself, which differs in what the cell imports.

    Python calls a function of a name that the same text imports in another way than one of any other name.
    """
    whole = compiled(content, filename)
    flags = sum(flag for flag in _FUTURES if whole.co_flags & flag)
    apart: dict[tuple[str, int], deque[CodeType]] = defaultdict(deque)
    for statement in ast.parse(content).body:
        for value in _compile(ast.Module([statement], []), filename, flags).co_consts:
            if isinstance(value, CodeType):
                apart[value.co_qualname, value.co_firstlineno].append(value)
    constants = []
    for value in whole.co_consts:
        same = apart[value.co_qualname, value.co_firstlineno] if isinstance(value, CodeType) else None
        constants.append(same.popleft() if same else value)
    return whole.replace(co_consts=tuple(constants))


def _compile(source: bytes | ast.Module, filename: str, flags: int) -> CodeType:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import has given them
            # A cell may wait at its top level; a file that does has not run.
            flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code: CodeType = compile(source, filename, "exec", flags=flags, dont_inherit=True)
            return code
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Refused(f"the edited text is no Python: {error}") from None


__all__ = ["by_statement", "compiled"]
