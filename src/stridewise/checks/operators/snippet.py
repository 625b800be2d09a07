"""The smallest layout that shows a fault, as a program to run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stridewise.checks.operators.case import Arrangement, Case, Described, Operand, Outcome
from stridewise.checks.operators.grid import CONTIGUOUS, place
from stridewise.checks.operators.group import in_words
from stridewise.results.checks import Snippet
from stridewise.source.target import split_target

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.checks.operators.operands import Bound

_MOST_VALUES = 24
_NEIGHBOUR = -9
_GRADIENTS = {
    "expanded, as behind sum()": "torch.ones((), dtype=out.dtype).expand(out.shape)",
    "transposed": "g.mT.contiguous().mT",
    "a part of a cat on the last dimension": "torch.cat([g, g], -1).chunk(2, -1)[0]",
    "every second element": "g.repeat_interleave(2, -1)[..., ::2]",
    "expanded over the last dimension": "g[..., :1].expand(out.shape)",
    "a part of a cat on the first dimension": "torch.cat([g, g])[len(g) :]",
}


def snippet(
    finding: str, outcome: Outcome, described: Described, bound: Bound, target: str | None, *, again: bool
) -> Snippet:
    """The program for an outcome. `again` is whether it was seen more than once."""
    program = _Program(outcome.case, described, bound)
    lines = [*program.imports(target), "", *program.operands(), "", *program.body(outcome)]
    if not again:
        lines.insert(0, "# It was seen once, and not again: whether it shows may change from run to run.")
    return Snippet(finding, in_words(outcome), "\n".join(lines) + "\n")


class _Program:
    def __init__(self, case: Case, described: Described, bound: Bound) -> None:
        self._case = case
        self._described = described
        self._bound = bound
        self._op = "op"
        self._own = [operand for operand in described.operands if operand.role not in ("parameter", "buffer")]
        self._names = {operand.name: _variable(operand.name) for operand in described.operands}

    def imports(self, target: str | None) -> Iterator[str]:
        """What it needs, the operator last."""
        yield "import torch"
        parts = None if target is None else split_target(target)
        if parts is None:
            yield "# op = …: define or import the operator here"
            return
        where, name = parts
        first = name.partition(".")[0]
        if not where.endswith(".py") and os.sep not in where:
            yield f"from {where} import {first}"
        elif os.path.dirname(where):
            yield "import runpy"
            yield f"{first} = runpy.run_path({where!r})[{first!r}]"
        else:
            yield f"from {os.path.basename(where).removesuffix('.py')} import {first}  # run it beside {where}"
        self._op = name if not self._is_made_from_class() else f"{name}()"
        if self._is_function_class():
            self._op += ".apply"
        elif "(" in self._op:
            yield f"op = {self._op}"
            self._op = "op"

    def _is_function_class(self) -> bool:
        import torch

        return isinstance(self._bound.fn, type) and issubclass(self._bound.fn, torch.autograd.Function)

    def _is_made_from_class(self) -> bool:
        """Whether the target names a class, of which the operator is an instance."""
        return self._bound.module is not None and self._described.op == type(self._bound.module).__name__

    # --------------------------------------------------------------------------------------------------- operands

    def operands(self) -> Iterator[str]:
        """A line or two for each tensor."""
        for operand in self._described.operands:
            arrangement = self._case.arrangements.get(operand.name, CONTIGUOUS)
            name = self._names[operand.name]
            if operand.role in ("parameter", "buffer"):
                if arrangement != CONTIGUOUS:
                    value = f"{self._op}.{operand.name}.detach()"
                    sizes = operand.sizes
                    yield from _laid_out(f"{self._op}.{operand.name}.data", value, sizes, arrangement, operand.dtype)
                continue
            sizes = self._case.sizes.get(operand.name, operand.sizes)
            yield from _laid_out(name, self._values(operand, sizes), sizes, arrangement, operand.dtype)

    def _values(self, operand: Operand, sizes: tuple[int, ...]) -> str:
        """An expression for the values of the sample's first positions."""
        import torch

        value = self._bound.tensors[operand.name].detach()[tuple(slice(size) for size in sizes)]
        kind = "" if value.dtype in (torch.float32, torch.int64, torch.bool) else f", dtype={value.dtype}"
        count = value.numel()
        if operand.is_float and not value.is_complex() and count:
            counted = torch.arange(count, device=value.device).reshape(value.shape)
            for start in (0, 1):
                if torch.equal(value, (counted + start).to(value.dtype)):
                    text = (
                        f"torch.arange({start}.0, {count + start}{kind})" if start else f"torch.arange({count}.0{kind})"
                    )
                    return text if value.dim() == 1 else f"{text}.reshape{tuple(sizes)}"
        if count and value.is_floating_point() and bool((value == value.reshape(-1)[0]).all()):
            same = value.reshape(-1)[0].item()
            return f"torch.full({tuple(sizes)}, {same:.4g}{kind})" if same else f"torch.zeros({tuple(sizes)}{kind})"
        if 0 < count <= _MOST_VALUES and not value.is_complex():
            return f"torch.tensor({_literal(value)}{kind})"
        if operand.is_float:
            return f"torch.randn{tuple(sizes)}" if not kind else f"torch.randn({tuple(sizes)}{kind})"
        return f"torch.zeros({tuple(sizes)}, dtype={value.dtype})"

    # ------------------------------------------------------------------------------------------------------- what for

    def body(self, outcome: Outcome) -> Iterator[str]:
        """The call, and what of it is wrong."""
        verdicts = {fault.verdict for fault in outcome.faults}
        if outcome.status in ("crashed", "hung"):
            does = "the process ends here" if outcome.status == "crashed" else "does not come back"
            yield f"{self._call()}  # {does}"
        elif outcome.status == "raised":
            yield f"{self._call()}  # raises"
        elif outcome.case.aspect in ("gradient", "second order"):
            yield from self._gradient(outcome)
        elif outcome.case.aspect == "fake":
            yield from self._fake()
        elif "writes outside" in verdicts:
            yield from self._neighbours(next(f.what for f in outcome.faults if f.verdict == "writes outside"))
        else:
            yield from self._compared()

    def _compared(self) -> Iterator[str]:
        written = [operand.name for operand in self._own if operand.role in ("in place", "out")]
        if not written:
            yield f"expected = {self._call(contiguous=True)}"
            yield f"torch.testing.assert_close({self._call()}, expected)"
            return
        for name in written:
            yield f"expected_{self._names[name]} = {self._names[name]}.clone(memory_format=torch.contiguous_format)"
        renamed = {name: f"expected_{self._names[name]}" for name in written}
        yield self._call(contiguous=True, renamed=renamed)
        yield self._call()
        for name in written:
            yield f"torch.testing.assert_close({self._names[name]}, {renamed[name]})"

    def _neighbours(self, what: str) -> Iterator[str]:
        name = self._names.get(what, _variable(what))
        if self._case.arrangements.get(what, CONTIGUOUS) == CONTIGUOUS:  # room for what it writes past its end
            yield f"room = torch.full((3 * {name}.numel() + 16,), {_NEIGHBOUR}).to({name})"
            yield f"{name} = room.as_strided({name}.shape, {name}.stride(), {name}.numel() + 8).copy_({name})"
        yield f"memory = {name}.as_strided(({name}.untyped_storage().nbytes() // {name}.element_size(),), (1,), 0)"
        yield "others = torch.ones_like(memory, dtype=torch.bool)"
        yield f"others.as_strided({name}.shape, {name}.stride(), {name}.storage_offset()).fill_(False)"
        yield "before = memory[others]"
        yield self._call()
        yield "torch.testing.assert_close(memory[others], before)  # what lies around it and between its elements"

    def _fake(self) -> Iterator[str]:
        yield "from torch._subclasses.fake_tensor import FakeTensorMode"
        yield "with FakeTensorMode() as mode:"
        renamed = {operand.name: f"mode.from_tensor({self._names[operand.name]})" for operand in self._own}
        yield f"    promised = {self._call(renamed=renamed)}"
        yield f"given = {self._call()}"
        yield "assert given.stride() == promised.stride(), (given.stride(), promised.stride())"

    def _gradient(self, outcome: Outcome) -> Iterator[str]:
        leaves = [self._names[o.name] for o in self._own if o.is_float and o.role == "input"]
        for name in leaves:
            yield f"{name} = {name}.detach().requires_grad_()"
        yield f"out = {self._call()}"
        yield "g = torch.linspace(-1, 1.5, out.numel(), dtype=out.dtype).reshape(out.shape)"
        kind = outcome.case.gradient.name if outcome.case.gradient else "contiguous"
        yield f"grad = {_GRADIENTS.get(kind, 'g')}"
        wrt = f"[{', '.join(leaves)}]"
        again = "out" if not outcome.case.arrangements else self._call(contiguous=True)
        yield f"expected = torch.autograd.grad({again}, {wrt}, grad.contiguous(), retain_graph=True)"
        yield f"torch.testing.assert_close(torch.autograd.grad(out, {wrt}, grad), expected)"

    def _call(self, *, contiguous: bool = False, renamed: Mapping[str, str] | None = None) -> str:
        names = dict(self._names) | dict(renamed or {})
        moved = self._case.arrangements if contiguous else {}
        texts = {}
        for operand, tensor in self._bound.tensors.items():
            text = names[operand]
            if operand in moved and operand not in (renamed or {}):
                text += ".contiguous()"
            texts[id(tensor)] = text
        args = [_argument(value, texts) for value in self._bound.args]
        args += [f"{key}={_argument(value, texts)}" for key, value in self._bound.kwargs.items()]
        return f"{self._op}({', '.join(args)})"


def _argument(value: Any, texts: Mapping[int, str]) -> str:
    """An argument as source: tensors by their names."""
    import torch

    if isinstance(value, torch.Tensor):
        return texts.get(id(value), "…")
    if type(value) in (list, tuple):
        inside = ", ".join(_argument(entry, texts) for entry in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_argument(entry, texts)}" for key, entry in value.items()) + "}"
    if value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype)):
        return repr(value)
    return "…"


def _laid_out(name: str, values: str, sizes: tuple[int, ...], arrangement: Arrangement, dtype: str) -> Iterator[str]:
    """Lines that give a tensor of these values in an arrangement, as a person would write them."""
    if arrangement == CONTIGUOUS:
        yield f"{name} = {values}"
        return
    layout = place(arrangement, sizes).layout
    padded = (
        any(arrangement.before or ()) or any(arrangement.after or ()) or any(s > 1 for s in arrangement.steps or ())
    )
    kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if arrangement.windows is not None or arrangement.odd_ones or arrangement.offset:
        extent = (
            layout.offset + sum((size - 1) * stride for size, stride in zip(sizes, layout.strides, strict=True)) + 1
        )
        whole = f"torch.full(({max(extent, 1) + 8},), {_NEIGHBOUR}{kind or '.0'})"
        yield f"{name} = {whole}.as_strided({sizes}, {layout.strides}, {layout.offset}).copy_({values})"
    elif arrangement.expanded:
        dims = {dim % len(sizes) for dim in arrangement.expanded}
        index = ", ".join(":1" if dim in dims else ":" for dim in range(len(sizes)))
        yield f"{name} = ({values})[{index}].expand{sizes}  # stride 0"
    elif not padded and arrangement.order is not None:
        yield f"{name} = {_reordered(values, arrangement, len(sizes))}  # strides {layout.strides}"
    else:
        yield from _cut(name, values, sizes, arrangement, kind)


def _reordered(values: str, arrangement: Arrangement, ndim: int) -> str:
    order = arrangement.order or tuple(range(ndim))
    if "channels_last" in arrangement.name:
        return f"{values}.contiguous(memory_format=torch.{arrangement.name.rpartition(' ')[2]})"
    if ndim == 2:
        return f"{values}.t().contiguous().t()"
    back = tuple(order.index(dim) for dim in range(ndim))
    return f"{values}.permute{order}.contiguous().permute{back}"


def _cut(name: str, values: str, sizes: tuple[int, ...], arrangement: Arrangement, kind: str) -> Iterator[str]:
    """A part of a larger tensor, whose other elements are neighbours."""
    ndim = len(sizes)
    before = arrangement.before or (0,) * ndim
    after = arrangement.after or (0,) * ndim
    steps = arrangement.steps or (1,) * ndim
    extents = [b + max(s - 1, 0) * t + 1 + a for b, s, t, a in zip(before, sizes, steps, after, strict=True)]
    slices = []
    for first, size, step, extent in zip(before, sizes, steps, extents, strict=True):
        last = first + max(size - 1, 0) * step + 1
        text = ":" if (first, last, step) == (0, extent, 1) else f"{first}:{last}" + (f":{step}" if step > 1 else "")
        slices.append(text if size else f"{first}:{first}")
    order = arrangement.order or tuple(range(ndim))
    whole = f"torch.full({tuple(extents[dim] for dim in order)}, {_NEIGHBOUR}{kind or '.0'})"
    if order != tuple(range(ndim)):
        whole += f".permute{tuple(order.index(dim) for dim in range(ndim))}"
    yield f"{name} = {whole}[{', '.join(slices)}]"
    yield f"{name}.copy_({values})"


def _literal(value: Tensor) -> str:
    nested = value.tolist()
    return repr(_rounded(nested))


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _variable(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_") or "x"
