"""What a copy changes, from the strides of both sides or from the indices that a kernel reads and writes. No torch."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

from stridewise import layout
from stridewise.layout import Layout
from stridewise.recording.dtypes import ITEM_SIZES
from stridewise.results.compiled import Change, Strides

_VARIABLE = re.compile(r"^(?:[xyzr]\d+(?:_\d+)?|[xyzr]\d?_?index)(?:_inner|_tail)?$")
"""What a kernel's loops run over; other names in an index are sizes."""

Product = tuple[int, tuple[str, ...]]
"""A number times dynamic sizes: `(144, ("s27",))`."""


def change(read: Strides | None, written: Strides | None, read_index: str, written_index: str) -> Change | None:
    """What a copy between these does; None if it can't be told."""
    found: set[Change] = set()
    for sizes in _stand_ins(read, written):
        before, after = as_layout(read, sizes), as_layout(written, sizes)
        if before is None or after is None or before.sizes != after.sizes:
            return _of_indices(read_index, written_index)
        found.add(layout.change(before.sizes, before.strides, after.strides) or "none")
    return found.pop() if len(found) == 1 else None


def _stand_ins(*given: Strides | None) -> Iterator[dict[str, int]]:
    """Two values for each dynamic size, in two orders: what holds for both, holds."""
    numbers = [str(number) for strides in given if strides for number in (*strides.sizes, *strides.strides)]
    names = sorted({name for number in numbers for name in re.findall(r"[A-Za-z_]\w*", number)})
    yield {name: 11 + 2 * at for at, name in enumerate(names)}
    yield {name: 101 + 4 * (len(names) - at) for at, name in enumerate(names)}


def as_layout(strides: Strides | None, sizes: Mapping[str, int] | None = None) -> Layout | None:
    """The layout, where all sizes and strides are numbers."""
    if strides is None:
        return None
    numbers = [_evaluated(number, sizes or {}) for number in (*strides.sizes, *strides.strides)]
    known = tuple(number for number in numbers if number is not None)
    count = len(strides.sizes)
    return Layout(known[:count], known[count:]) if len(known) == len(numbers) else None


def _evaluated(number: int | str, sizes: Mapping[str, int]) -> int | None:
    """A size or a stride, where these dynamic sizes are all that it is made of."""
    if isinstance(number, int):
        return number
    factor, names = product(number) or (0, ("",))
    if not sizes.keys() >= set(names):
        return None
    return prod((factor, *(sizes[name] for name in names)))


def same_sizes(one: Strides, other: Strides) -> bool:
    """Whether two tensors have equal sizes, which may be dynamic and written in other ways."""
    return _normal(one.sizes) == _normal(other.sizes)


def differ(one: Strides, other: Strides) -> bool:
    """Whether two tensors of equal sizes lie differently, but for dimensions of size 1 and 0."""
    if not same_sizes(one, other) or 0 in one.sizes:
        return False
    rows = zip(one.sizes, _normal(one.strides), _normal(other.strides), strict=True)
    return any(first != second for size, first, second in rows if size != 1)


def _normal(numbers: tuple[int | str, ...]) -> list[Product | int | str]:
    return [product(number) or number for number in numbers]


def read_through(
    written: Strides, read_index: str, written_index: str, names: Mapping[str, str]
) -> tuple[int | str, ...] | None:
    """The strides with which a kernel reads what it writes so, from its two indices; None where these don't tell.

    `names` are sums that stand for names in the indices, such as `{"ks1": "s27", "y3": "y0 + 3*y1"}`. A
    dimension that only the loop of an inner one goes through (`x0` for two that are one in memory) is read at a
    multiple of that loop's step.
    """
    before, after = _coefficients(read_index, names), _coefficients(written_index, names)
    if before is None or after is None:
        return None
    before, after = _without_inner(before), _without_inner(after)
    if not before.keys() <= after.keys():
        return None
    found: list[int | str] = []
    used: set[str] = set()
    for size, number in zip(written.sizes, written.strides, strict=True):
        stride = product(number)
        if size == 1 or stride is None:
            found.append(number)
            continue
        steps = {name: many for name, step in after.items() if (many := _divided(stride, step)) is not None}
        outermost = [name for name in steps if all(_divided(after[name], after[each]) is not None for each in steps)]
        if len(outermost) != 1:
            return None
        used.add(outermost[0])
        found.append(_text(_times(before.get(outermost[0], (0, ())), steps[outermost[0]])))
    return tuple(found) if used == after.keys() else None


def _of_indices(read: str, written: str) -> Change | None:
    """The same from two sums such as `x2 + 256*x1`: whose variables step through memory in which order."""
    before, after = _steps(read), _steps(written)
    if before is None or after is None:
        return None
    if before == after:
        return "none"
    if not after.keys() <= before.keys():
        return "materialize"
    orders = [sorted(after, key=lambda name, of=of: (of.get(name, 0), name)) for of in (before, after)]  # type: ignore[misc]
    if orders[0] != orders[1]:
        return "reorder"
    gaps = {name: before[name] - after[name] for name in after}
    return "pack" if all(gap >= 0 for gap in gaps.values()) else "unpack"


def _steps(index: str) -> dict[str, int] | None:
    """How far each variable of an index steps, where no size is dynamic."""
    found = _coefficients(index, {})
    if found is None or any(names for _, names in found.values()):
        return None
    return {name: step for name, (step, _) in _without_inner(found).items()}


def same_steps(one: str, other: str) -> bool:
    """Whether two indices go through memory alike, from wherever they begin."""
    first, second = _coefficients(one, {}), _coefficients(other, {})
    return one == other or (
        first is not None and second is not None and _without_inner(first) == _without_inner(second)
    )


def _without_inner(found: Mapping[str, Product]) -> dict[str, Product]:
    """Without the variables that go through a vector, which step as the loop around them does; ends count as loops."""
    return {name.removesuffix("_tail"): step for name, step in found.items() if not name.endswith("_inner")}


def _coefficients(index: str, names: Mapping[str, str]) -> dict[str, Product] | None:
    """`{"x2": (1, ()), "x1": (256, ("s27",))}`; None for what is no sum of multiples."""
    tree, found = _parsed(index), dict[str, Product]()
    return found if tree is not None and _add(tree, (1, ()), found, names) else None


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


def _add(node: ast.expr, factor: Product, found: dict[str, Product], names: Mapping[str, str]) -> bool:
    """Add a part of an index to what its variables have as factors; False if it is none that can be added."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _add(node.left, factor, found, names) and _add(node.right, factor, found, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for number, other in ((node.left, node.right), (node.right, node.left)):
            if (many := _product(number, names)) is not None:
                return _add(other, _times(factor, many), found, names)
        return False
    if isinstance(node, ast.Name) and _VARIABLE.match(node.id):
        if (meant := names.get(node.id)) is not None:
            inner = _parsed(meant)
            rest = {name: text for name, text in names.items() if name != node.id}
            return inner is not None and _add(inner, factor, found, rest)
        earlier = found.get(node.id, (0, factor[1]))
        found[node.id] = earlier[0] + factor[0], factor[1]
        return earlier[1] == factor[1]
    return not any(
        isinstance(each, ast.Name) and _VARIABLE.match(each.id) for each in ast.walk(node)
    )  # where it begins


def product(number: int | str) -> Product | None:
    """A size or a stride as a number times dynamic sizes; None for what is none, such as a sum."""
    tree = _parsed(str(number))
    return _product(tree, {}) if tree is not None else None


def _product(node: ast.expr, names: Mapping[str, str]) -> Product | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value, ()
    if isinstance(node, ast.Name) and not _VARIABLE.match(node.id):
        return product(names[node.id]) if node.id in names else (1, (node.id,))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _product(node.left, names), _product(node.right, names)
        return _times(left, right) if left is not None and right is not None else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
        base, times = _product(node.left, names), node.right.value
        return (base[0] ** times, tuple(sorted(base[1] * times))) if base and isinstance(times, int) else None
    return None


def _times(one: Product, other: Product) -> Product:
    return one[0] * other[0], tuple(sorted(one[1] + other[1]))


def _divided(one: Product, other: Product) -> Product | None:
    """What the second has to be multiplied by; None where nothing whole does."""
    names, of = Counter(one[1]), Counter(other[1])
    if not other[0] or one[0] % other[0] or not of <= names:
        return None
    return one[0] // other[0], tuple(sorted((names - of).elements()))


def _text(many: Product) -> int | str:
    factor, names = many
    if not names or not factor:
        return factor
    powers = [name if times == 1 else f"{name}**{times}" for name, times in Counter(names).items()]
    return "*".join([*([str(factor)] if factor != 1 else []), *powers])


def moved_bytes(read: Strides | None, written: Strides | None) -> int | None:
    """Bytes that a copy reads and writes; an element that is read more than once counts once. None where unknown."""
    after, before = as_layout(written), as_layout(read)
    if after is None or written is None or written.dtype is None:
        return None
    writes = ITEM_SIZES.get(written.dtype)
    reads = ITEM_SIZES.get(read.dtype) if read is not None and read.dtype else writes
    if writes is None or reads is None:
        return None
    source = before if before is not None and before.sizes == after.sizes else after
    return layout.bytes_moved(after.sizes, source.strides, reads, after.strides, writes)
