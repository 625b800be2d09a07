"""The lines of a program that shows what is wrong with an operator: its operands, its calls, and what has to hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from stridewise.checks.operators.case import Arrangement, Described, Operand, Outcome
from stridewise.checks.operators.expressions import Fill, Kind, counted, drawn, laid_out, literal, zeros
from stridewise.checks.operators.grid import CONTIGUOUS, place
from stridewise.layout import is_contiguous

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.checks.operators.operands import Bound

Values = Literal["counted", "drawn", "sample"]
"""0, 1, 2 …; random ones; those that the operator was checked with."""
_GUARD = 8
_LONGEST = 90
_GRADIENTS = {
    "expanded, as behind sum()": "torch.ones((), dtype=out.dtype, device=out.device).expand(out.shape)  # as of sum()",
    "transposed": "g.mT.contiguous().mT",
    "a part of a cat on the last dimension": "torch.cat([g, g], -1).chunk(2, -1)[0]",
    "every second element": "g.repeat_interleave(2, -1)[..., ::2]",
    "expanded over the last dimension": "g[..., :1].expand(out.shape)",
    "a part of a cat on the first dimension": "torch.cat([g, g])[len(g) :]",
}
FAKE = "from torch._subclasses.fake_tensor import FakeTensorMode"
"""What a program needs besides torch, if it does; a line of its own."""
_CLOSE = "torch.testing.assert_close"


class Program:
    """What can be written down of one outcome, with values of one style."""

    def __init__(self, outcome: Outcome, described: Described, bound: Bound, values: Values) -> None:
        self._outcome, self._case, self._bound, self._values = outcome, outcome.case, bound, values
        given = {operand.name: operand for operand in described.operands}
        self._own = [o for o in given.values() if o.role not in ("parameter", "buffer")]
        self._of_module = [o for o in given.values() if o.role in ("parameter", "buffer")]
        self._written = [o.name for o in self._own if o.role in ("in place", "out")]
        self._names = {name: _variable(name) for name in given}
        self._operands = given

    def candidates(self) -> Iterator[list[str]]:
        """Programs that may show it, the simplest first."""
        outcome = self._outcome
        verdicts = {fault.verdict for fault in outcome.faults}
        if outcome.status != "ran":
            yield [*self._made(), *self._ends()]
        elif outcome.case.aspect in ("gradient", "second order"):
            yield from ([*self._made(leaves=True), *self._gradient(suffix)] for suffix in ("", "[0]"))
        elif outcome.case.aspect == "fake":
            yield from ([*self._made(), *self._fake(suffix)] for suffix in self._suffixes())
        elif "writes outside" in verdicts:
            what = next(fault.what for fault in outcome.faults if fault.verdict == "writes outside")
            if what in self._names:
                yield [*self._made(surrounded=what), *self._outside(what)]
                yield [*self._made(), *self._only_read(what)]
        elif self._written:
            yield [*self._made(), *self._in_place()]
        else:
            yield from ([*self._made(), *self._compared(suffix)] for suffix in self._suffixes())
        if outcome.status == "ran" and outcome.case.aspect == "values":
            yield from (list(self._with_neighbours(operand.name)) for operand in self._own)

    # ---------------------------------------------------------------------------------------------------- operands

    def _made(self, *, surrounded: str | None = None, leaves: bool = False) -> Iterator[str]:
        """A line for each operand. `surrounded` is one that lies in a memory of which all can be seen."""
        if self._values == "drawn":
            yield "torch.manual_seed(0)"
        for operand in self._own:
            if operand.name == surrounded:
                yield from self._surrounded(operand)
                continue
            text = self._expression(operand)
            if leaves and self._is_leaf(operand):
                text += ".requires_grad_()"
            yield f"{self._names[operand.name]} = {text}{self._comment(operand)}"
        for operand in self._of_module:
            arrangement = self._arrangement(operand.name)
            if arrangement != CONTIGUOUS:
                made = laid_out(operand.sizes, arrangement, zeros(self._kind(operand)))
                values = f".copy_(op.{operand.name}.data)" if arrangement.writable else ""
                yield f"op.{operand.name}.data = {made}{values}{self._comment(operand)}"
        yield from self._others()
        yield ""

    def _expression(self, operand: Operand) -> str:
        sizes, arrangement, kind = self._sizes(operand), self._arrangement(operand.name), self._kind(operand)
        if operand.role == "out" and self._values != "sample":
            return laid_out(sizes, arrangement, zeros(kind))
        if self._values == "sample":
            known = literal(self._sample(operand), sizes, arrangement, kind)
            if known is not None:
                return known
        return laid_out(sizes, arrangement, self._fill(operand))

    def _fill(self, operand: Operand) -> Fill:
        kind = self._kind(operand)
        return drawn(kind) if self._values != "counted" and operand.is_float else counted(kind)

    def _surrounded(self, operand: Operand) -> Iterator[str]:
        """A memory with room around the operand, which lies at some of its places."""
        sizes, name = self._sizes(operand), self._names[operand.name]
        layout = place(self._arrangement(operand.name), sizes).layout
        reach = sum(max(s - 1, 0) * t for s, t in zip(sizes, layout.strides, strict=True)) + 1
        guard = max(_GUARD, math.prod(sizes))
        view = f".as_strided({layout.sizes}, {layout.strides}, {guard})"
        held = counted(self._kind(operand))((guard + reach + guard,))
        # Of both signs: what clamps or rectifies leaves the others as they are.
        yield f"memory = {held}{'.cos()' if operand.dtype in ('float32', 'float64') else ''}"
        yield f"{name} = memory{view}"
        yield "outside = torch.ones_like(memory, dtype=torch.bool)"
        yield f"outside[torch.arange(len(memory)){view}] = False"

    def _others(self) -> Iterator[str]:
        """Arguments that can't be written down."""
        for name, value in self._unwritten().items():
            yield f"{name} = ...  # {_article(type(value).__name__)}: as in the sample"

    # ------------------------------------------------------------------------------------------------- what has to hold

    def _ends(self) -> Iterator[str]:
        outcome = self._outcome
        if self._case.aspect == "values" and self._moved():
            yield f"{self._call(contiguous=True)}  # comes back"
        said = " ".join((outcome.message or outcome.status).split())
        said = "".join(char if char.isprintable() else "?" for char in said)[:_LONGEST]
        yield f"{self._call()}  # {'raises ' if outcome.status == 'raised' else ''}{said}"

    def _compared(self, suffix: str) -> Iterator[str]:
        moved = [f"op.{operand.name}.data" for operand in self._of_module if self._is_moved(operand)]
        for at, weight in enumerate(moved):
            yield f"strided_{at} = {weight}"
            yield f"{weight} = strided_{at}.clone(memory_format=torch.contiguous_format)"
        yield f"expected = {self._call(contiguous=True)}{suffix}"
        for at, weight in enumerate(moved):
            yield f"{weight} = strided_{at}"
        yield f"{_CLOSE}({self._call()}{suffix}, expected)"

    def _in_place(self) -> Iterator[str]:
        renamed = {name: f"expected_{self._names[name]}" for name in self._written}
        for name, other in renamed.items():
            yield f"{other} = {self._names[name]}.clone(memory_format=torch.contiguous_format)"
        yield self._call(contiguous=True, renamed=renamed)
        yield self._call()
        for name, other in renamed.items():
            yield f"{_CLOSE}({self._names[name]}, {other})"

    def _outside(self, what: str) -> Iterator[str]:
        yield "before = memory.clone()"
        yield self._call()
        yield "changed = ((memory != before) & outside).nonzero().flatten().tolist()"
        yield f'assert not changed, f"elements {{changed}} of memory are not those of `{self._names[what]}`"'

    def _only_read(self, what: str) -> Iterator[str]:
        yield f"before = {self._names[what]}.clone()"
        yield self._call()
        yield f"{_CLOSE}({self._names[what]}, before)"

    def _with_neighbours(self, what: str) -> Iterator[str]:
        """The same operand between other neighbours: it is not for them to say what the result is."""
        operand = self._operands[what]
        name = self._names[what]
        yield from self._made(surrounded=what)
        yield "values = memory.clone()"
        yield "results = []"
        yield "for neighbours in (0, 100):"
        yield "    memory.copy_(torch.where(outside, neighbours, values))"
        result = name if what in self._written else self._call()
        if what in self._written:
            yield f"    {self._call()}"
        yield f"    results.append({result}.clone())"
        yield f"{_CLOSE}(results[0], results[1])  # what lies around `{operand.name}` decides"

    def _fake(self, suffix: str) -> Iterator[str]:
        yield FAKE
        yield "mode = FakeTensorMode(allow_non_fake_inputs=True)"
        renamed = {}
        for operand in self._own:
            name = self._names[operand.name]
            renamed[operand.name] = f"fake_{name}"
            yield f"fake_{name} = mode.from_tensor({name})"
        yield "with mode:"
        yield f"    promised = {self._call(renamed=renamed)}{suffix}.stride()"
        yield f"given = {self._call()}{suffix}.stride()"
        yield 'assert promised == given, f"{promised} are promised, and {given} given"'

    def _gradient(self, suffix: str) -> Iterator[str]:
        leaves = [self._names[o.name] for o in self._own if self._is_leaf(o)]
        leaves += [f"op.{o.name}" for o in self._of_module if o.role == "parameter" and o.requires_grad]
        dense = {o.name: f"dense_{self._names[o.name]}" for o in self._own if self._is_leaf(o) and self._is_moved(o)}
        yield f"out = {self._call()}{suffix}"
        kind = self._case.gradient.name if self._case.gradient else "contiguous"
        grad = _GRADIENTS.get(kind, "g")
        if grad.startswith(("g", "torch.cat")):
            yield "g = torch.linspace(-1, 1.5, out.numel()).reshape(out.shape).to(out)"
        yield f"grad = {grad}"
        for name, other in dense.items():
            yield f"{other} = {self._contiguous(name, detach=True)}.requires_grad_()"
        expected = [dense.get(name, text) for name, text in self._leaf_names(leaves)]
        again = f"{self._call(contiguous=True, renamed=dense)}{suffix}"
        yield from self._backward("expected", again, expected, "grad.contiguous()")
        yield from self._backward("result", f"{self._call()}{suffix}", leaves, "grad")
        yield f"{_CLOSE}(result, expected)"

    def _backward(self, name: str, output: str, leaves: list[str], grad: str) -> Iterator[str]:
        wrt, unused = f"[{', '.join(leaves)}]", ", allow_unused=True, materialize_grads=True"
        if len(leaves) == 1:
            name, wrt, unused = f"({name},)", leaves[0], ""
        if self._case.aspect != "second order":
            yield f"{name} = torch.autograd.grad({output}, {wrt}, {grad}{unused})"
            return
        yield f"first = torch.autograd.grad({output}, {wrt}, {grad}, create_graph=True{unused})"
        yield f"{name} = torch.autograd.grad(sum(each.square().sum() for each in first), {wrt}{unused})"

    # --------------------------------------------------------------------------------------------------------- calls

    def _call(self, *, contiguous: bool = False, renamed: Mapping[str, str] | None = None) -> str:
        """`op(x, y)`, with contiguous copies in the place of operands that are not, or with other names."""
        renamed = renamed or {}
        texts = {}
        for name, tensor in self._bound.tensors.items():
            text = renamed.get(name, self._names[name])
            if contiguous and name in self._case.arrangements and name not in renamed:
                text = self._contiguous(name)
            texts[id(tensor)] = text
        texts |= {id(value): name for name, value in self._unwritten().items()}
        args = [_argument(value, texts) for value in self._bound.args]
        args += [f"{key}={_argument(value, texts)}" for key, value in self._bound.kwargs.items()]
        return f"op({', '.join(args)})"

    def _contiguous(self, name: str, *, detach: bool = False) -> str:
        layout = place(self._arrangement(name), self._sizes(self._operands[name])).layout
        text = self._names[name] + (".detach()" if detach else "")
        # Of what is contiguous in some memory, `contiguous()` makes no copy.
        return text + (".clone(memory_format=torch.contiguous_format)" if is_contiguous(layout) else ".contiguous()")

    def _unwritten(self) -> dict[str, Any]:
        """Arguments that can't be written down, by the names that they get."""
        return {
            f"argument_{at}": value
            for at, value in enumerate((*self._bound.args, *self._bound.kwargs.values()))
            if not self._is_written_down(value)
        }

    def _is_written_down(self, value: Any) -> bool:
        import torch

        if isinstance(value, torch.Tensor):
            return any(value is tensor for tensor in self._bound.tensors.values())
        if type(value) in (list, tuple):
            return all(map(self._is_written_down, value))
        if type(value) is dict:
            return all(map(self._is_written_down, value.values()))
        return _literal(value) is not None

    def _suffixes(self) -> Iterator[str]:
        """What may follow a call to give the result that is at fault."""
        yield ""
        what = self._outcome.faults[0].what if self._outcome.faults else ""
        path = re.sub(r"^output ?", "", what)
        if path and what.startswith("output"):
            yield path
            if path.startswith("."):
                yield f"[{path[1:]!r}]"

    def _leaf_names(self, leaves: list[str]) -> Iterator[tuple[str, str]]:
        back = {text: name for name, text in self._names.items()}
        return ((back.get(text, ""), text) for text in leaves)

    def _is_leaf(self, operand: Operand) -> bool:
        return operand.is_float and operand.role == "input"

    def _is_moved(self, operand: Operand) -> bool:
        return self._arrangement(operand.name) != CONTIGUOUS

    def _moved(self) -> bool:
        return bool(self._case.arrangements)

    def _arrangement(self, name: str) -> Arrangement:
        return self._case.arrangements.get(name, CONTIGUOUS)

    def _sizes(self, operand: Operand) -> tuple[int, ...]:
        return self._case.sizes.get(operand.name, operand.sizes)

    def _kind(self, operand: Operand) -> Kind:
        return Kind(operand.dtype, str(self._bound.tensors[operand.name].device))

    def _sample(self, operand: Operand) -> Tensor:
        return self._bound.tensors[operand.name].detach()[tuple(slice(size) for size in self._sizes(operand))]

    def _comment(self, operand: Operand) -> str:
        if not self._is_moved(operand):
            return ""
        layout = place(self._arrangement(operand.name), self._sizes(operand)).layout
        offset = f" at offset {layout.offset}" if layout.offset else ""
        return f"  # {layout.sizes} with strides {layout.strides}{offset}"


def _argument(value: Any, texts: Mapping[int, str]) -> str:
    """An argument as source: tensors, and what can't be written down, by their names."""
    if id(value) in texts:
        return texts[id(value)]
    if type(value) in (list, tuple):
        inside = ", ".join(_argument(entry, texts) for entry in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_argument(entry, texts)}" for key, entry in value.items()) + "}"
    return _literal(value) or "..."


def _literal(value: Any) -> str | None:
    """A value as source; None for one that has none."""
    import torch

    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    plain = bool, int, float, complex, str, bytes, range, slice, torch.dtype, torch.memory_format, torch.layout
    return repr(value) if value is None or value is ... or type(value) in plain else None


def _variable(name: str) -> str:
    found = re.sub(r"\W+", "_", name).strip("_") or "x"
    return f"{found}_" if found in ("op", "torch", "memory", "before", "out_", "in", "is", "lambda") else found


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
