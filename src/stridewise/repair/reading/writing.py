"""Where a function may write to a tensor's memory: by a name of it, by a view of it, or by code that torch doesn't see.

A recording knows the writes that ran. What a branch would do that it did not take only the source can tell. Names that
may share memory count as one group, wherever in the function they are bound so: an assignment joins its target with all
that its value may be a view of. A call joins them too, unless each recorded call there gave memory of its own.
"""

import ast
import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from stridewise.analysis.functions import CASTS, IMPLICIT, VIEWS, short_name
from stridewise.findings import Site
from stridewise.repair.context import Context
from stridewise.repair.reading.imported import Names
from stridewise.source.file import Function, SourceFile

_SAME_MEMORY = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})
"""Attributes of a tensor that are views of it, or itself. A test runs each."""
_DEPENDS = VIEWS | IMPLICIT | CASTS | {"contiguous", "asarray", "as_tensor"}
"""Functions that give their operand's memory for some layouts and dtypes. So does dropout, where it does not train."""
_HANDS_OUT = frozenset(
    {
        *("numpy", "__array__", "__array_interface__", "__cuda_array_interface__", "asarray", "asanyarray"),
        *("data_ptr", "const_data_ptr", "mutable_data_ptr", "untyped_storage", "storage", "_typed_storage"),
        *("__dlpack__", "to_dlpack", "from_dlpack", "memoryview"),
    }
)
"""Names of attributes and functions by which other code than torch's gets at a tensor's memory."""
_OPERATORS = frozenset(
    name
    for name in vars(operator)
    if name.startswith("__i") and (hasattr(operator, f"__{name[3:]}") or hasattr(operator, f"{name[3:-2]}_"))
) | {"__setitem__", "__delitem__"}
"""Methods behind `x += y` and `x[0] = y`."""
_WRITERS = frozenset({"setattr", "delattr", *(name.strip("_") for name in _OPERATORS)})
"""Functions that do the same to their first argument."""
_NODE = "<expression>"
"""Stands for what the expressions in question give, among the names."""

_Roots = frozenset[str]
"""Names, attributes (`self.table`) and `_NODE`: what an expression may share memory with."""
_NOTHING: _Roots = frozenset()


def may_be_written(
    context: Context,
    file: SourceFile,
    function: Function,
    what: Iterable[ast.expr | str],
    *,
    although_recorded: bool = False,
) -> bool:
    """Whether a function may write to what expressions and names of it stand for, or what they are made of.

    Writes that ran are left to whoever asks, since the recording knows what they wrote to; unless `although_recorded`,
    or it did not see how their target came to be.
    """
    return _Memory(context, file, function, list(what)).may_be_written(although_recorded)


class _Memory:
    """What in a function may be the memory of some of its expressions."""

    def __init__(self, context: Context, file: SourceFile, function: Function, what: Sequence[ast.expr | str]) -> None:
        self._context = context
        self._file = file
        self._function = function
        self._nodes = [one for one in what if isinstance(one, ast.expr)]
        self._texts = frozenset(one for one in what if isinstance(one, str))
        self._names = Names(file)

    def may_be_written(self, although_recorded: bool) -> bool:
        group, certain = self._group
        exempt = certain and not although_recorded
        return any(
            group.intersection(self._roots(target))
            for part in ast.walk(self._function)
            for target in [
                *self._handed_out_by(part),
                *(() if exempt and self._calls(part) else _written_by(part, self._names)),
            ]
        )

    # -- what shares memory ----------------------------------------------------------------------------------------

    @cached_property
    def _group(self) -> tuple[_Roots, bool]:
        """All that may share the memory, and whether the recording saw each of the bindings that make it so."""
        group = self._texts.union(*map(self._roots, self._nodes))
        joins = [join for part in ast.walk(self._function) for join in self._joins(part)]
        certain, grows = True, True
        while grows:
            touched = [join for join in joins if group & join[0]]
            larger = group.union(*(roots for roots, _ in touched))
            certain, grows, group = all(ran for _, ran in touched), larger != group, larger
        return group, certain

    def _joins(self, part: ast.AST) -> Iterator[tuple[_Roots, bool]]:
        """What a binding joins."""
        match part:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                targets = [target]
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                targets = [target]
            case ast.comprehension(target=target, iter=value):
                targets = [target]
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                targets = [target]
            case _:
                return
        roots = self._roots(value)
        if roots:
            ran = self._is_certain(value) or self._always_runs(part, value)
            yield from ((roots | self._bound(target), ran) for target in targets)

    def _bound(self, target: ast.expr) -> _Roots:
        """What an assignment binds; nothing for an item, whose assignment copies into a tensor, or fills a list."""
        match target:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return _NOTHING.union(*map(self._bound, elts))
            case ast.Starred(value=value):
                return self._bound(value)
            case ast.Name(id=name):
                return frozenset({name})
            case ast.Attribute(value=value, attr=attr):
                return self._roots(value) if attr in _SAME_MEMORY else frozenset({ast.unparse(target)})
        return _NOTHING

    def _is_certain(self, value: ast.expr) -> bool:
        """Whether an expression was recorded, and gives what it gave then in other runs too, as far as memory goes."""
        chosen = any(isinstance(part, ast.IfExp | ast.BoolOp) for part in ast.walk(value))
        return bool(self._calls(value)) and not chosen and not self._drops_out(value)

    def _always_runs(self, part: ast.AST, value: ast.expr) -> bool:
        """Whether it is `y = x`, and not in a branch."""
        return isinstance(value, ast.Name | ast.Attribute) and self._file.parent(part) is self._function

    def _drops_out(self, value: ast.AST) -> bool:
        parts = (part for part in ast.walk(value) if isinstance(part, ast.expr))
        return any("drop" in self._context.case.function(call) for part in parts for call in self._calls(part))

    def _roots(self, node: ast.expr) -> _Roots:
        """What an expression may be a view of, or hold."""
        own = frozenset({_NODE}) if any(node is one for one in self._nodes) else _NOTHING
        match node:
            case ast.Name(id=name):
                return own | frozenset({name} - self._self)
            case ast.Attribute(value=value, attr=attr):
                if attr in _SAME_MEMORY | _HANDS_OUT or self._calls(node):
                    return own | self._roots(value)
                return own | {ast.unparse(node)}
            case ast.BinOp(left=left, right=right):
                # Of tensors the result is new; of lists it holds what they hold.
                held = [side for side in (left, right) if isinstance(side, ast.List | ast.Tuple | ast.ListComp)]
                return own.union(*map(self._roots, held))
            case ast.UnaryOp(op=op, operand=value):
                return own | self._roots(value) if isinstance(op, ast.UAdd) else own
            case ast.Call():
                return own | self._roots_of_call(node)
            case ast.Compare() | ast.Constant() | ast.JoinedStr() | ast.Lambda():
                return own
            case ast.Subscript(value=value):
                return own | self._roots(value)
            case ast.IfExp(body=body, orelse=other):
                return own | self._roots(body) | self._roots(other)
        inside = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.comprehension))
        return own.union(
            *(self._roots(child.iter if isinstance(child, ast.comprehension) else child) for child in inside)
        )

    def _roots_of_call(self, node: ast.Call) -> _Roots:
        if self._gave_new_memory(node):
            return _NOTHING
        given = [*node.args, *(word.value for word in node.keywords)]
        if isinstance(node.func, ast.Attribute) and self._names.qualified(node.func) is None:
            given.append(node.func.value)
        return _NOTHING.union(*map(self._roots, given))

    def _gave_new_memory(self, node: ast.Call) -> bool:
        """Whether what an expression called gave memory of its own each time, and not for its operands' layouts."""
        case, log = self._context.case, self._context.case.log
        calls = self._calls(node)
        for call in calls:
            module = self._context.called_module(call)
            row = log.calls[call]
            if log.calls[call].via >= 0 and module is not None:
                given, made = ([ref for _, ref in refs] for refs in (log.module_calls[module].inputs,
                                                                     log.module_calls[module].outputs))  # fmt: skip
            else:
                given, made = row.inputs, row.outputs
            name = short_name(case.function(call))
            if name in _DEPENDS or "drop" in name or not made:
                return False
            storages = {log.refs[ref].storage for ref in given}
            if any(log.refs[ref].storage in storages or log.refs[ref].storage < 0 for ref in made):
                return False
        return bool(calls)

    def _calls(self, node: ast.AST) -> list[int]:
        """The calls that were recorded of an expression or a statement."""
        if not isinstance(node, ast.expr | ast.stmt):
            return []
        site = Site(
            file=self._file.name,
            line=node.lineno,
            column=node.col_offset,
            end_line=node.end_lineno,
            end_column=node.end_col_offset,
        )
        return self._context.calls_of([site])[site]

    @cached_property
    def _self(self) -> set[str]:
        """What the function's method is called on: its attributes are told apart."""
        given = [*self._function.args.posonlyargs, *self._function.args.args]
        in_class = isinstance(self._file.parent(self._function), ast.ClassDef)
        return {given[0].arg} if given and in_class else set()

    # -- what hands memory out -------------------------------------------------------------------------------------

    def _handed_out_by(self, part: ast.AST) -> Iterable[ast.expr]:
        """The expressions whose memory a node gives to code that torch does not see."""
        match part:
            case ast.Attribute(value=value, attr=attr) if attr in _HANDS_OUT and self._names.qualified(part) is None:
                return [value]
            case ast.Call(func=func, args=args) if self._called(func) in _HANDS_OUT:
                return args
        return []

    def _called(self, func: ast.expr) -> str:
        """The name of a function; for torch's own, which share memory with what torch sees, nothing."""
        name = self._names.qualified(func) or (func.id if isinstance(func, ast.Name) else "")
        return "" if name in ("torch.asarray", "torch.from_dlpack") else name.rpartition(".")[2]


# -- what writes ---------------------------------------------------------------------------------------------------


def _written_by(part: ast.AST, names: Names) -> Iterable[ast.expr]:
    """The expressions whose memory a node writes to."""
    match part:
        case ast.AugAssign(target=target):
            return [target]
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            return [value]
        case ast.Attribute(value=value, ctx=ast.Store() | ast.Del()):
            return [value]
        case ast.Call(func=func, args=args, keywords=keywords):
            given = {word.arg: word.value for word in keywords}
            written = [given["out"]] if "out" in given else []
            match given.get("inplace"):
                case None | ast.Constant(value=False):
                    pass
                case _:
                    written += [*args, *given.values()]
            if isinstance(func, ast.Attribute) and names.qualified(func) is None:
                return [*written, func.value] if _is_in_place(func.attr) or func.attr in _OPERATORS else written
            name = (names.qualified(func) or ast.unparse(func)).rpartition(".")[2]
            in_place = _is_in_place(name) or name in _WRITERS
            return [*written, *[*args, *given.values()][:1]] if in_place else written
    return []


def _is_in_place(name: str) -> bool:
    return (name.endswith("_") and not name.startswith("_")) or name.startswith("_foreach_")


__all__ = ["may_be_written"]
