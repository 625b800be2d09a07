"""Attention written out by hand, as the source of a function has it: what goes into it, however it is spelled."""

import ast
from collections.abc import Callable, Sequence

from msgspec import Struct

from stridewise.repair.reading.applied import Applied, applied, integer, operand_text
from stridewise.repair.reading.imported import Names
from stridewise.repair.reading.links import Links
from stridewise.source.file import Function, SourceFile

Rank = Callable[[ast.expr], int | None]
"""How many dimensions the result of an expression has; None if that is not known."""

_PRODUCTS = frozenset({"matmul", "bmm", "__matmul__"})
_CASTS = {"to": 1, "type_as": 1, "float": 0}
"""Casts, and how many arguments they have."""
_INFINITIES = frozenset({"math.inf", "torch.inf", "numpy.inf"})


class Mask(Struct, frozen=True):
    """What is done to the scores before the softmax."""

    node: ast.expr | ast.stmt
    """Where."""
    value: ast.expr
    """What is added, or which scores are left out, or, if `keeps`, which are kept."""
    is_added: bool
    keeps: bool = False
    condition: ast.expr | None = None
    """Only if this holds."""


class Scale(Struct, frozen=True):
    """What the scores, or the query, are multiplied with or divided by."""

    node: ast.expr | ast.stmt
    value: ast.expr
    divides: bool


class Dropout(Struct, frozen=True):
    """Which part of the weights is left out."""

    node: ast.Call
    module: ast.expr | None = None
    """The module that is called; None for the function."""
    p: ast.expr | None = None
    training: ast.expr | None = None


class Attention(Struct, frozen=True):
    """`softmax(q @ k.transpose(-2, -1) * scale + mask) @ v`."""

    end: ast.expr
    """The second product: what is replaced."""
    query: ast.expr
    key: ast.expr
    """Not transposed, unless `is_transposed`."""
    is_transposed: bool
    value: ast.expr
    products: tuple[ast.expr, ast.expr]
    """The first and the second."""
    softmax: Applied
    scale: Scale | None
    mask: Mask | None
    dropout: Dropout | None
    casts: tuple[ast.expr, ...]
    """Casts of the weights, which have to be without effect."""
    steps: tuple[ast.stmt, ...]
    """Statements that only lead to the end."""


def find_attention(file: SourceFile, names: Names, function: Function, end: ast.expr, rank: Rank) -> Attention | None:
    """The attention that ends in a product; None if it is none, or is used in another way as well."""
    statement = file.statement(end)
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
        return None
    return _Matcher(file, names, Links(file, function, statement), rank).match(end)


class _Matcher:
    def __init__(self, file: SourceFile, names: Names, links: Links, rank: Rank) -> None:
        self.file, self.names, self.links, self.rank = file, names, links, rank
        self.scale: Scale | None = None
        self.mask: Mask | None = None
        self.dropout: Dropout | None = None
        self.casts: list[ast.expr] = []

    def match(self, end: ast.expr) -> Attention | None:
        second = self._product(end)
        softmax = None if second is None else self._softmax(second.subject)
        if second is None or softmax is None:
            return None
        first = self._scores(softmax.subject)
        if first is None:
            return None
        query = self._scaled_operand(first.subject)
        key, is_transposed = self._key(first.args[0])
        parts: list[ast.expr | None] = [query, key, second.args[0]]
        if self.scale is not None:
            parts.append(self.scale.value)
        if self.mask is not None:
            parts += [self.mask.value, self.mask.condition]
        if self.dropout is not None:
            parts += [self.dropout.p, self.dropout.training]
        if not self.links.can_move([part for part in parts if part is not None]):
            return None
        return Attention(
            end=end, query=query, key=key, is_transposed=is_transposed, value=second.args[0],
            products=(first.node, second.node), softmax=softmax, scale=self.scale, mask=self.mask,
            dropout=self.dropout, casts=tuple(self.casts), steps=tuple(self.links.used),
        )  # fmt: skip

    def _product(self, node: ast.expr) -> Applied | None:
        found = applied(node, self.names)
        return found if found and found.name in _PRODUCTS and len(found.args) == 1 and not found.keywords else None

    def _follow(self, node: ast.expr) -> ast.expr:
        """The value of a name that one plain assignment gave it, and so on."""
        while True:
            saved = self.links.save()
            step = self.links.step(node)
            if step is None or step[1] is None:
                self.links.restore(saved)
                return node
            node = step[1]

    # -- from the weights back to the scores --------------------------------------------------------------------------

    def _softmax(self, node: ast.expr) -> Applied | None:
        """Through dropout and casts."""
        while True:
            node = self._follow(node)
            link = applied(node, self.names)
            if link is not None and self._casts(link):
                node = link.subject
            elif isinstance(node, ast.Call) and self._drops(node, link):
                node = node.args[0] if self.dropout and self.dropout.module is not None else _subject(link)
            elif link is not None and link.name == "softmax":
                good = link.has_only(1, "dim", "dtype") and self._dims(node, (link.argument(0, "dim"),)) == [-1]
                return link if good else None
            else:
                return None

    def _casts(self, link: Applied) -> bool:
        """A cast: it is for the recording to say whether it has an effect."""
        found = link.is_method and not link.keywords and _CASTS.get(link.name) == len(link.args)
        if found:
            self.casts.append(link.node)
        return found

    def _drops(self, node: ast.Call, link: Applied | None) -> bool:
        if self.dropout is not None:
            return False
        if link is not None and link.name == "dropout" and not link.is_method:
            if not link.has_only(2, "p", "training"):
                return False
            self.dropout = Dropout(node, None, link.argument(0, "p"), link.argument(1, "training"))
            return True
        if self.names.qualified(node.func) is None and len(node.args) == 1 and not node.keywords:
            if isinstance(node.args[0], ast.Starred) or (link is not None and link.name in ("softmax", "matmul")):
                return False
            self.dropout = Dropout(node, node.func)
            return True
        return False

    # -- from the scores back to the first product --------------------------------------------------------------------

    def _scores(self, node: ast.expr) -> Applied | None:
        """Through the mask, then the scale: masks that are scaled as well are not attention."""
        while True:
            saved = self.links.save()
            step = self.links.step(node)
            if step is not None:
                statement, value = step
                if value is not None:
                    node = value
                    continue
                if self._changed(statement, node):
                    continue
                self.links.restore(saved)
                return None
            if product := self._product(node):
                return product
            link = applied(node, self.names)
            if link is not None and self._casts(link):
                node = link.subject
                continue
            inner = self._unmasked(node) or self._unscaled(node)
            if inner is None:
                return None
            node = inner

    def _changed(self, statement: ast.stmt, node: ast.expr) -> bool:
        """`scores += mask`, `scores /= scale`, and `if mask is not None: scores = scores + mask`."""
        condition: ast.expr | None = None
        inner = statement
        if isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
            condition, inner = statement.test, statement.body[0]
        name = node.id if isinstance(node, ast.Name) else ""
        if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name) and inner.target.id == name:
            pair = _operation(inner.op)
            if pair == "+" and self._may_mask():
                self.mask = Mask(inner, inner.value, True, condition=condition)
                return True
            return pair in ("*", "/") and condition is None and self._set_scale(inner, inner.value, pair == "/")
        if condition is None or not isinstance(inner, ast.Assign) or len(inner.targets) != 1:
            return False
        target = inner.targets[0]
        if not isinstance(target, ast.Name) or target.id != name:
            return False
        before = self._unmasked(inner.value, condition)
        if not isinstance(before, ast.Name) or before.id != name:
            return False
        self.links.reads.append(before)
        return True

    def _may_mask(self) -> bool:
        return self.mask is None and self.scale is None

    def _unmasked(self, node: ast.expr, condition: ast.expr | None = None) -> ast.expr | None:
        """What an expression masks."""
        if not self._may_mask():
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for scores, mask in ((node.left, node.right), (node.right, node.left)):
                if self._leads_to_product(scores):
                    self.mask = Mask(node, mask, True, condition=condition)
                    return scores
            return None
        link = applied(node, self.names)
        if link is None or link.keywords:
            return None
        if link.name in ("masked_fill", "masked_fill_") and len(link.args) == 2 and self._is_minus_inf(link.args[1]):
            self.mask = Mask(node, link.args[0], False, condition=condition)
            return link.subject
        if link.name == "where" and not link.is_method and len(link.args) == 2 and self._is_minus_inf(link.args[1]):
            self.mask = Mask(node, link.subject, False, keeps=True, condition=condition)
            return link.args[0]
        return None

    def _leads_to_product(self, node: ast.expr) -> bool:
        """Whether an operand of a sum is the scores, and not the mask."""
        saved, kept, casts = self.links.save(), (self.scale, self.mask), len(self.casts)
        found = self._scores(node) is not None
        self.links.restore(saved)
        self.scale, self.mask = kept
        del self.casts[casts:]
        return found

    def _unscaled(self, node: ast.expr) -> ast.expr | None:
        """What an expression multiplies or divides."""
        if not isinstance(node, ast.BinOp):
            return None
        operation = _operation(node.op)
        if operation == "/":
            return node.left if self._set_scale(node, node.right, True) else None
        if operation == "*":
            for scores, scale in ((node.left, node.right), (node.right, node.left)):
                if self._leads_to_product(scores):
                    return scores if self._set_scale(node, scale, False) else None
        return None

    def _set_scale(self, node: ast.expr | ast.stmt, value: ast.expr, divides: bool) -> bool:
        if self.scale is not None:
            return False
        self.scale = Scale(node, value, divides)
        return True

    def _scaled_operand(self, node: ast.expr) -> ast.expr:
        """The query, without a factor that is written into the product: `(q * scale) @ k`."""
        if isinstance(node, ast.BinOp) and self.scale is None and isinstance(node.left, ast.Name):
            operation = _operation(node.op)
            if operation in ("*", "/") and self._set_scale(node, node.right, operation == "/"):
                return node.left
        return node

    def _key(self, node: ast.expr) -> tuple[ast.expr, bool]:
        """The key, and whether it still is transposed."""
        link = applied(node, self.names)
        if link is not None and not link.keywords:
            swaps = link.name in ("transpose", "swapaxes", "swapdims")
            if link.name == "mT" or (swaps and sorted(self._dims(node, link.args)) == [-2, -1]):
                return link.subject, False
        return node, True

    def _dims(self, made: ast.expr, dims: Sequence[ast.expr | None]) -> list[int]:
        """Dimensions of what an expression makes, counted from its last, -1; 0 for what is no number."""
        rank, numbers = self.rank(made), [integer(dim) for dim in dims]
        return [0 if dim is None else dim if dim < 0 else dim - rank if rank else 0 for dim in numbers]

    def _is_minus_inf(self, node: ast.expr) -> bool:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.names.qualified(node.operand) in _INFINITIES or _float(node.operand) in ("inf", "infinity")
        return _float(node) in ("-inf", "-infinity")


def _subject(link: Applied | None) -> ast.expr:
    assert link is not None
    return link.subject


def _operation(op: ast.operator) -> str | None:
    return {ast.Add: "+", ast.Mult: "*", ast.Div: "/"}.get(type(op))


def _float(node: ast.expr) -> str | None:
    """The text that `float` is given."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "float":
        return None
    given = node.args[0] if len(node.args) == 1 else None
    return given.value.lower() if isinstance(given, ast.Constant) and isinstance(given.value, str) else None


def call_of(file: SourceFile, found: Attention, function: str, is_default_scale: bool) -> str:
    """The call that does the same."""
    text = file.source
    key = f"{operand_text(file, found.key)}.transpose(-2, -1)" if found.is_transposed else text(found.key)
    arguments = [text(found.query), key, text(found.value)]
    if found.mask is not None:
        arguments.append(f"attn_mask={_mask(file, found.mask)}")
    if found.dropout is not None and (p := _probability(file, found.dropout)):
        arguments.append(f"dropout_p={p}")
    if found.scale is None:
        arguments.append("scale=1.0")
    elif not is_default_scale:
        value = found.scale.value
        divisor = text(value) if isinstance(value, ast.Constant) else operand_text(file, value)
        arguments.append(f"scale=1.0 / {divisor}" if found.scale.divides else f"scale={text(value)}")
    return f"{function}({', '.join(arguments)})"


def _mask(file: SourceFile, mask: Mask) -> str:
    value = mask.value
    if mask.is_added or mask.keeps:
        shown = file.source(value)
    elif isinstance(value, ast.Compare) and len(value.ops) == 1 and isinstance(value.ops[0], ast.Eq):
        shown = f"{file.source(value.left)} != {file.source(value.comparators[0])}"
    elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Invert):
        shown = file.source(value.operand)
    else:
        shown = f"~{operand_text(file, value)}"
    if mask.condition is None or (mask.is_added and _is_not_none(mask.condition, value)):
        return shown
    return f"{shown} if {file.source(mask.condition)} else None"


def _is_not_none(condition: ast.expr, value: ast.expr) -> bool:
    """`mask is not None`, of the mask itself."""
    return (
        isinstance(condition, ast.Compare)
        and len(condition.ops) == 1
        and isinstance(condition.ops[0], ast.IsNot)
        and isinstance(condition.comparators[0], ast.Constant)
        and condition.comparators[0].value is None
        and ast.dump(condition.left) == ast.dump(value)
    )


def _probability(file: SourceFile, dropout: Dropout) -> str | None:
    if dropout.module is not None:
        module = file.source(dropout.module)
        return f"{module}.p if {module}.training else 0.0"
    p = "0.5" if dropout.p is None else file.source(dropout.p)
    training = dropout.training
    if isinstance(training, ast.Constant):
        return p if training.value else None
    return p if training is None else f"{p} if {file.source(training)} else 0.0"
