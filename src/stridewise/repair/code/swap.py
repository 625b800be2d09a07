"""Live functions run the code of an edited file, and then their own again. Nothing is written. No torch.

The edited text is compiled as an import would compile it. Functions that are alive and hold code of the file get the
code that stands in its place there. What has run already (module level, class bodies), runs just now, or can't be found
is refused: a trial of it would measure something else than the program as it starts afresh.
"""

import ast
import functools
import gc
import operator
import os
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from itertools import repeat
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    ModuleType,
)
from typing import Any, NamedTuple, Self

from stridewise.repair.code.code_objects import Pair, exact, meaning, pairs_of
from stridewise.repair.code.compiling import by_statement, compiled
from stridewise.repair.refused import Refused
from stridewise.source.file import SourceFile

_SUSPENDABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE
_FROZEN_AT_START = 1000
"""More objects than a fresh interpreter has out of the garbage collector's sight (3.12: some 400)."""


class Arms(NamedTuple):
    """A function, its own code, and what it runs in either arm of a trial."""

    function: FunctionType
    own: CodeType
    before: CodeType
    after: CodeType


class Swap:
    """The functions that an edit changes. As a context it runs the edited code.

    Both arms of a trial assign code, so that both pay alike for what the interpreter forgets when that happens.
    Assignments are made in one call of C: no other thread that waits for the GIL sees half of them, and a signal's
    handler runs before or after. Calls that are under way go on with the code that they began with.
    """

    def __init__(self, arms: Iterable[Arms]) -> None:
        self._arms = tuple(arms)
        self._functions = [function for function, *_ in self._arms]
        self._own = [arm.own for arm in self._arms]
        self._codes = {False: [arm.before for arm in self._arms], True: [arm.after for arm in self._arms]}

    @property
    def functions(self) -> tuple[FunctionType, ...]:
        """The functions whose code is swapped; with torch.compile in use also those that may have them inlined."""
        return tuple(self._functions)

    def enter(self, edited: bool = True) -> Self:
        """Run the edited code, or the code as it was: the other arm."""
        try:
            self._assign(self._codes[edited])
        except BaseException:
            self.leave()
            raise
        return self

    def leave(self) -> None:
        """Give every function its own code object back. May be called any number of times."""
        try:
            self._assign(self._own)
        except BaseException:  # an interrupt: after this one it is raised
            self._assign(self._own)
            raise

    def __enter__(self) -> Self:
        return self.enter()

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _assign(self, codes: list[CodeType]) -> None:
        deque(map(setattr, self._functions, repeat("__code__"), codes), maxlen=0)


def plan(file: SourceFile, after: bytes) -> Swap:
    """What makes the program run a file's edited content. Raises Refused where that can't be done."""
    return plan_all([(file, after)])


def plan_all(edited: Iterable[tuple[SourceFile, bytes]]) -> Swap:
    """What makes the program run the edited content of some files at once. Raises Refused where that can't be done.

    To be called when the program has run: what torch.compile compiles only later may hold code of the other arm.
    """
    try:
        return _planned(list(edited))
    except Refused as refused:
        reason = str(refused)
    raise Refused(reason)  # a new one, whose traceback holds nothing that was looked at


def _planned(edited: list[tuple[SourceFile, bytes]]) -> Swap:
    if gc.get_freeze_count() > _FROZEN_AT_START:
        raise Refused("the program hides its objects from the garbage collector (`gc.freeze`)")
    changed: dict[int, Arms] = {}
    """By the identity of the function."""
    codes: set[Hashable] = set()
    """All that changes."""
    for file, after in edited:
        lives = _Lives(file)
        for filename in lives.filenames:
            pairs = _pairs(file, after, filename, lives)
            _refuse_other_variables(pairs, lives)
            _refuse_what_has_run(file, after, pairs)
            _refuse_twins(pairs)
            _refuse_unreached(pairs, lives)
            for pair in pairs:
                if pair.changed and not pair.is_body:
                    codes.add(exact(pair.old))
                    changed |= {id(arm.function): arm for arm in _arms(pair, lives)}
        lives.refuse_running(codes)
    if not codes:
        raise Refused("the edit changes nothing that runs")
    _refuse_kept(changed)
    return Swap(_apart(changed))


def _pairs(file: SourceFile, after: bytes, filename: str, lives: "_Lives") -> list[Pair]:
    """What runs, with what stands in its place. Raises Refused unless the file reads as what runs."""
    before, after = file.content[file.above :], after[file.above :]  # what is above are line ends
    pairs = pairs_of(_compiled_once(before, filename), compiled(after, filename))
    if not file.on_disk and not lives.run(pairs):
        pairs = pairs_of(by_statement(before, filename), by_statement(after, filename))
    lives.check(pairs)
    return pairs


_compiled_once = functools.lru_cache(maxsize=8)(compiled)
"""For code that is only compared. What runs is compiled anew each time: torch.compile keeps things with it."""


# -- from old code to new ----------------------------------------------------------------------------------------------


def _arms(pair: Pair, lives: "_Lives") -> Iterator[Arms]:
    old, new = pair.old, pair.new
    for function in lives.of(old) if pair.is_function else ():
        if new is None:
            raise Refused(f"it can't be told what becomes of `{old.co_qualname}`, which is alive")
        if (old.co_flags ^ new.co_flags) & _SUSPENDABLE:
            raise Refused(f"the edit changes whether `{old.co_qualname}` is a generator or a coroutine")
        yield Arms(function, function.__code__, function.__code__, new)


def _refuse_other_variables(pairs: list[Pair], lives: "_Lives") -> None:
    for pair in pairs:
        if pair.new is not None and pair.old.co_freevars != pair.new.co_freevars and lives.of(pair.old):
            raise Refused(f"the edit changes what `{pair.old.co_qualname}` takes from around it")


def _refuse_unreached(pairs: list[Pair], lives: "_Lives") -> None:
    for pair in pairs:
        # What isn't alive is defined anew by a function around it that is.
        if pair.changed_itself and not any(lives.of(around.old) for around in pair.outward()):
            raise Refused(f"nothing that is alive runs `{pair.old.co_qualname}`")


def _refuse_twins(pairs: list[Pair]) -> None:
    """Refuse where old code could be either of two functions that the edit makes differ."""
    becomes: dict[Hashable, Hashable] = {}
    for pair in pairs:
        new = pair.new and meaning(pair.new)
        if becomes.setdefault(exact(pair.old), new) != new:
            raise Refused(f"there are two `{pair.old.co_qualname}` on one line, which can't be told apart")


def _refuse_what_has_run(file: SourceFile, after: bytes, pairs: list[Pair]) -> None:
    for pair in pairs:
        runs_in = next(around for around in pair.outward() if around.is_body or around.is_function)
        if pair.changed_itself and runs_in.is_body:
            what = _first_statement(file.tree, ast.parse(after)) or runs_in.old.co_qualname
            where = "at module level" if runs_in.above is None else "in a class's body"
            raise Refused(f"`{what}` stands {where}, which has run")


def _first_statement(old: ast.Module, new: ast.Module) -> str | None:
    """The first line of the first statement that differs, of those that run with the module."""
    olds, news = list(_run_with(old.body)), list(_run_with(new.body))
    for position, (statement, key) in enumerate(news):
        if position >= len(olds) or olds[position][1] != key:
            return ast.unparse(statement).lstrip().splitlines()[0]
    return None


def _run_with(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    for statement in body:
        match statement:
            case ast.ClassDef():
                head = [*statement.decorator_list, *statement.bases, *statement.keywords]
                yield statement, statement.name + "".join(map(ast.dump, head))
                yield from _run_with(statement.body)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                head = [*statement.decorator_list, statement.args, *filter(None, [statement.returns])]
                yield statement, statement.name + "".join(map(ast.dump, head))
            case _:
                yield statement, ast.dump(statement)


# -- what is alive -----------------------------------------------------------------------------------------------------


def _functions_of(namespaces: list[dict[str, Any]]) -> list[FunctionType]:
    """The functions that are alive and have these globals.

    `gc.get_objects` would find them too, but hold what other threads are building: a tuple that somebody else holds
    can't be resized, and their code would fail.
    """
    known = set(map(id, namespaces))
    found = gc.get_referrers(*namespaces) if namespaces else []
    return [thing for thing in found if type(thing) is FunctionType and id(thing.__globals__) in known]


def _namespaces(is_of: Callable[[Any], bool]) -> list[dict[str, Any]]:
    """The globals of the modules whose `__file__` passes a test."""
    known: list[object] = list(sys.modules.values())  # which may hold anything
    modules = [module for module in known if isinstance(module, ModuleType)]
    return [vars(module) for module in modules if is_of(vars(module).get("__file__"))]


class _Lives:
    """The functions that are alive and hold code of a file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._is_of = _file_test(file)
        self._by_code: dict[tuple[Hashable, str], list[FunctionType]] = defaultdict(list)
        self._elsewhere: list[FunctionType] = []
        """Functions of its modules whose code is of another file."""
        self.filenames: set[str] = set()
        # A notebook's cells have run in a module that has no file.
        namespaces = _namespaces(self._is_of if file.on_disk else _is_no_file)
        for function in _functions_of(namespaces):
            code = function.__code__
            if not self._is_of(code.co_filename, function.__globals__):
                self._elsewhere.append(function)
            elif not _is_of_dynamo(code):
                self.filenames.add(code.co_filename)
                self._by_code[exact(code), code.co_filename].append(function)
        if not self.filenames:
            raise Refused(f"nothing that is alive runs {file.name}")

    def of(self, code: CodeType) -> list[FunctionType]:
        """Those that run this code, as it was compiled from the file."""
        return self._by_code.get((exact(code), code.co_filename), [])

    def run(self, pairs: list[Pair]) -> bool:
        """Whether all that is alive is code of the file, as it was compiled."""
        (filename,) = {pair.old.co_filename for pair in pairs}
        known = {(exact(pair.old), filename) for pair in pairs}
        return all(key in known for key in self._by_code if key[1] == filename)

    def check(self, pairs: list[Pair]) -> None:
        """Refuse unless the file reads as what runs."""
        if not self.run(pairs):
            name = self._file.name
            raise Refused(f"{name} is not what runs: it was edited after it was imported, or a tool rewrote it")
        names = {pair.old.co_qualname for pair in pairs if pair.is_function and pair.changed}
        for function in self._elsewhere:
            if function.__qualname__ in names and function.__code__.co_qualname != function.__qualname__:
                raise Refused(f"something replaced the code of `{function.__qualname__}`")

    def refuse_running(self, changed: Container[Hashable]) -> None:
        """Refuse what goes on with old code, whatever new calls do."""
        functions = [function for (key, _), held in self._by_code.items() if key in changed for function in held]
        for code, namespace, how in _under_way(functions):
            if self._is_of(code.co_filename, namespace) and exact(code) in changed:
                raise Refused(f"`{code.co_qualname}` {how}")


def _is_no_file(filename: object) -> bool:
    return not isinstance(filename, str) or not os.path.isfile(filename)


def _file_test(file: SourceFile) -> Callable[..., bool]:
    """A test of whether a code's file name, or the `__file__` of its globals if that is relative, means this file."""
    real = os.path.realpath(file.path)
    basenames = {os.path.basename(real), file.path.name}

    @functools.cache
    def is_named_so(filename: str) -> bool:
        return os.path.basename(filename) in basenames

    @functools.cache
    def means(filename: str) -> bool:
        return is_named_so(filename) and os.path.realpath(filename) == real

    def test(filename: Any, namespace: Mapping[str, Any] = MappingProxyType({})) -> bool:
        if not isinstance(filename, str) or not is_named_so(filename):
            return False
        if means(filename):
            return True
        # Python may have been started with a relative path, in another directory than it is in now.
        at = namespace.get("__file__") if not os.path.isabs(filename) else None
        return isinstance(at, str) and means(at)

    return test


def _is_of_dynamo(code: CodeType) -> bool:
    """What torch.compile goes on with behind a graph break: only code that it generated calls that."""
    return code.co_name.startswith("torch_dynamo_resume_in_")


def _under_way(functions: list[FunctionType]) -> list[tuple[CodeType, dict[str, Any], str]]:
    """The code of frames that run, and of those of functions that wait, with its globals. The frames stay in here."""
    found = []
    frame: FrameType | None
    for frame in sys._current_frames().values():
        while frame is not None:
            found.append((frame.f_code, frame.f_globals, "is running now"))
            frame = frame.f_back
    for thing in gc.get_referrers(*functions) if functions else ():
        kind = type(thing)
        if kind is GeneratorType:
            frame = thing.gi_frame
        elif kind is CoroutineType:
            frame = thing.cr_frame
        elif kind is AsyncGeneratorType:
            frame = thing.ag_frame
        else:
            continue
        if frame is not None:  # a finished one has none
            found.append((frame.f_code, frame.f_globals, "is under way and waits to go on"))
    return found


def _refuse_kept(changed: dict[int, Arms]) -> None:
    """Refuse functions that are alive but seldom called, if at all: their results are kept, or a compiled form."""
    scripted = getattr(sys.modules.get("torch._C"), "ScriptFunction", None)
    inner: dict[int, FunctionType] = {key: function for key, (function, *_) in changed.items()}
    while inner:
        outer: dict[int, FunctionType] = {}
        for thing in gc.get_referrers(*inner.values()):
            kind = type(thing)
            if kind is functools._lru_cache_wrapper:
                if thing.cache_info().currsize:
                    raise Refused(f"results of `{thing.__wrapped__.__qualname__}` are kept in a cache")
            elif kind is dict and id(original := thing.get("_torchdynamo_inline")) in inner:
                if any(type(owner) is scripted for owner in gc.get_referrers(thing)):
                    raise Refused(f"torch.jit has compiled `{original.__qualname__}`")
            elif kind is dict and id(thing.get("__wrapped__")) in inner:
                owners = [owner for owner in gc.get_referrers(thing) if type(owner) is FunctionType]
                outer |= {id(owner): owner for owner in owners if owner.__dict__ is thing}
        inner = outer


# -- torch.compile -----------------------------------------------------------------------------------------------------


def _apart(changed: dict[int, Arms]) -> list[Arms]:
    """Keep what torch.compile makes of either arm apart.

    It keeps what it compiled with the code object of the outermost function. For a method that it inlined there it sets
    no guard on the code, and would go on with what it has. So whatever it has compiled runs, in either arm, a code
    object of its own: it is compiled afresh there, once, and both arms begin alike.
    """
    arms = list(changed.values())
    compiled = _roots()  # keeps them alive while they are known by address
    roots = {id(code) for code in compiled}
    if not roots:
        return arms
    before, after = dict[int, CodeType](), dict[int, CodeType]()
    arms = [arm._replace(before=_renewed(arm.own, roots, before)) for arm in arms]
    arms = [arm._replace(before=arm.own.replace()) if arm.before is arm.own else arm for arm in arms]
    more: dict[int, Arms] = {}
    filenames = {code.co_filename for code in compiled}
    for function in _functions_of(_namespaces(filenames.__contains__)) + _holders(compiled):
        code = function.__code__
        if id(function) not in changed and _renewed(code, roots, before) is not code:
            more[id(function)] = Arms(function, code, before[id(code)], _renewed(code, roots, after))
    return [*arms, *more.values()]


def _holders(codes: list[CodeType]) -> list[FunctionType]:
    return [thing for thing in gc.get_referrers(*codes) if type(thing) is FunctionType]


def _renewed(code: CodeType, roots: Container[int], known: dict[int, CodeType]) -> CodeType:
    """Code as another object if it is a root or defines one, and those in it likewise; else the very same."""
    if id(code) not in known:
        constants = tuple(
            _renewed(value, roots, known) if isinstance(value, CodeType) else value for value in code.co_consts
        )
        same = all(map(operator.is_, constants, code.co_consts)) and id(code) not in roots
        known[id(code)] = code if same else code.replace(co_consts=constants)
    return known[id(code)]


def _roots() -> list[CodeType]:
    """The code that torch.compile holds something for. Private to torch; tried on 2.13."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    if dynamo is None:
        return []
    try:
        seen = [reference() for reference in dynamo.input_codes.seen]
        entries = sys.modules["torch._C._dynamo.eval_frame"]._debug_get_cache_entry_list
    except (AttributeError, KeyError):
        raise Refused("this version of torch does not tell what torch.compile has compiled") from None
    return [code for code in seen if code is not None and not _is_of_dynamo(code) and entries(code)]
