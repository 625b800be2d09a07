"""Which part of an expression a payer's operand is."""

import ast

from stridewise.analysis.lineage import Stream
from stridewise.repair.context import Context
from stridewise.source.file import SourceFile

_NO_TENSORS = (ast.Constant, ast.UnaryOp, ast.Tuple, ast.List)


def operand_of(context: Context, file: SourceFile, node: ast.expr, call: int, stream: Stream) -> ast.expr | None:
    """The argument of the expression at a call's site that a stream's operand came in by; None if it can't be told."""
    if stream.operand is None or stream.ref is None:
        return None
    inner = _made_inside(context, file, node, call, stream.operand)
    if inner is not None:
        return inner
    if context.case.log.calls[call].via >= 0:
        return _given_to_module(context, node, call, stream.ref)
    is_method = context.case.function(call).startswith("torch.Tensor.")
    given = [one for one in _arguments(node, is_method) if not isinstance(one, _NO_TENSORS)]
    if stream.operand >= len(given) or any(isinstance(one, ast.Starred) for one in given):
        return None
    return given[stream.operand]


def _made_inside(context: Context, file: SourceFile, node: ast.expr, call: int, place: int) -> ast.expr | None:
    """The part that made the operand, if that is a call of its own: `self.table.t()` in `norm(self.table.t())`."""
    producer = context.case.flow.producers[call][place]
    if producer < 0 or not context.is_what_its_site_gives(producer):
        return None
    site = context.case.site(producer)
    inner = file.expression(site) if site.file == file.name else None
    return inner if inner is not None and inner is not node and any(part is inner for part in ast.walk(node)) else None


def _arguments(node: ast.expr, is_method: bool) -> list[ast.expr]:
    """What a function or an operator is given, in the order in which the log has it."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Call(func=ast.Attribute(value=value), args=args) if is_method:
            return [value, *args]
        case ast.Call(args=args):
            return args
        case ast.Subscript(value=value) | ast.Attribute(value=value):
            return [value]
    return []


def _given_to_module(context: Context, node: ast.expr, call: int, ref: int) -> ast.expr | None:
    """The argument by which the module that the expression calls was given the operand."""
    module = context.called_module(call)
    if module is None or not isinstance(node, ast.Call) or any(isinstance(one, ast.Starred) for one in node.args):
        return None
    refs = context.case.log.refs
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    named |= {str(place): one for place, one in enumerate(node.args)}
    given = context.case.log.module_calls[module].inputs
    return next((named.get(path) for path, at in given if refs[at].object == refs[ref].object), None)
