"""Draws the pictures of docs/explanation/layout.md: `python docs/pictures.py`. A test holds that they are those.

Positions come from tensors, by their strides; what a picture says of them is asked of torch and of stridewise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise, product
from pathlib import Path

import torch

from stridewise import layout

FOLDER = Path(__file__).parent / "images" / "explanation"
WIDTH = 400
CELL = 30
LEFT = 20
SHOWN_WIDTH = 560
"""How wide a picture is where there is room: a phone shows it at about `WIDTH`, and its text stays legible."""

# A picture brings its own ground, so that its text has its contrast on whatever page it stands.
STYLE = """
  svg { --ground: #ffffff; --line: #57606a; --text: #1b1f24; --faint: #6b7280;
        --row0: #cfe3f7; --row1: #fde0b8; --row2: #cdebd3; --row3: #eed3ec;
        --dim0: #b42318; --dim1: #1f5fbf; --dim2: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #1e2129; --line: #9aa4b0; --text: #f0f3f6; --faint: #9aa4b0;
          --row0: #1f4e79; --row1: #7a4a10; --row2: #1f5c3a; --row3: #5d3562;
          --dim0: #ff9d8f; --dim1: #8ac1ff; --dim2: #63d882; }
  }
  text { fill: var(--text); font: 12px ui-monospace, "Roboto Mono", Menlo, Consolas, monospace; }
  .title { font-weight: 700; font-size: 13px; }
  .number { text-anchor: middle; dominant-baseline: central; }
  .hole { fill: var(--faint); }
  .cell { fill: none; stroke: var(--line); stroke-width: 1; }
  .gap { stroke-dasharray: 3 3; }
  .row0 { fill: var(--row0); } .row1 { fill: var(--row1); } .row2 { fill: var(--row2); } .row3 { fill: var(--row3); }
  .arc { fill: none; stroke-width: 1.7; }
  .dim0 { stroke: var(--dim0); } .dim1 { stroke: var(--dim1); } .dim2 { stroke: var(--dim2); }
  .says0 { fill: var(--dim0); } .says1 { fill: var(--dim1); } .says2 { fill: var(--dim2); }
  .tip0 { fill: var(--dim0); } .tip1 { fill: var(--dim1); } .tip2 { fill: var(--dim2); }
"""


@dataclass(frozen=True)
class Shown:
    """A tensor as a picture needs it: where each of its elements lies, and how it came to be."""

    expression: str
    tensor: torch.Tensor

    def position(self, index: Sequence[int]) -> int:
        """Where an element lies in the storage."""
        steps = (at * stride for at, stride in zip(index, self.tensor.stride(), strict=True))
        return self.tensor.storage_offset() + sum(steps)

    def indices(self) -> Iterator[tuple[int, ...]]:
        """All indices, the last dimension fastest."""
        return product(*(range(size) for size in self.tensor.shape))

    @property
    def cells(self) -> int:
        """How many elements the storage holds."""
        return self.tensor.untyped_storage().nbytes() // self.tensor.element_size()

    @property
    def layout(self) -> layout.Layout:
        """What stridewise takes it for."""
        return layout.Layout(tuple(self.tensor.shape), self.tensor.stride(), self.tensor.storage_offset())


def text(x: float, y: float, content: str, classes: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{classes}" text-anchor="{anchor}">{escape(content)}</text>'


def cell(x: float, y: float, number: int, rows: Sequence[int]) -> str:
    """One element: a band for each row that reads it, none where nothing does."""
    height = CELL / (len(rows) or 1)
    bands = "".join(
        f'<rect x="{x:g}" y="{y + at * height:g}" width="{CELL}" height="{height:g}" class="row{row}"/>'
        for at, row in enumerate(rows)
    )
    frame = f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" class="cell{"" if rows else " gap"}"/>'
    return bands + frame + text(x + CELL / 2, y + CELL / 2, str(number), "number" if rows else "number hole", "middle")


def memory(y: float, count: int, readers: dict[int, list[int]]) -> str:
    """The storage: a row of cells, numbered."""
    return "".join(cell(LEFT + at * CELL, y, at, readers.get(at, [])) for at in range(count))


def named(y: float, count: int) -> str:
    """Says of a row of cells what it is."""
    return text(LEFT + count * CELL, y - 8, "memory", "hole", "end")


def middle(position: int) -> float:
    """The x of a cell's middle in the row of the storage."""
    return LEFT + position * CELL + CELL / 2


def arc(x: float, to: float, y: float, dim: int, says: str, *, above: bool, height: float, at_tip: bool = False) -> str:
    """An arrow from cell to cell, bent away from the row, with what it says at its top or its tip."""
    up = -1 if above else 1
    if x == to:  # a loop: it stays where it is
        bent = f"M{x - 7:g} {y:g} C{x - 24:g} {y + up * 30:g} {x + 24:g} {y + up * 30:g} {x + 7:g} {y:g}"
        peak, to = y + up * 24, x + 7
    else:
        bent = f"M{x:g} {y:g} C{x:g} {y + up * height:g} {to:g} {y + up * height:g} {to:g} {y:g}"
        peak, x = y + up * height * 0.75, (x + to) / 2
    line = f'<path d="{bent}" class="arc dim{dim}"/>'
    tip = f'<path d="M{to:g} {y:g} l-4 {up * 8} h8 z" class="tip{dim}"/>'
    if at_tip:
        return line + tip + text(to + 7, y + (-6 if above else 15), says, f"says{dim}")
    return line + tip + text(x, peak + (-5 if above else 14), says, f"says{dim}", "middle")


def straight(x: float, y: float, dx: float, dy: float, dim: int) -> str:
    """An arrow beside the grid."""
    tip = f"M{x + dx:g} {y + dy:g} " + ("l-8 -4 v8 z" if dx else "l-4 -8 h8 z")
    shaft = f"M{x:g} {y:g} l{dx - 6 if dx else 0:g} {dy - 6 if dy else 0:g}"
    return f'<path d="{shaft}" class="arc dim{dim}"/><path d="{tip}" class="tip{dim}"/>'


def grid(x: float, y: float, shown: Shown, row_of: int, plane: tuple[int, ...] = ()) -> str:
    """The last two dimensions, each cell with the position of its element."""
    parts = []
    for i, j in product(*(range(size) for size in shown.tensor.shape[-2:])):
        index = (*plane, i, j)
        parts.append(cell(x + j * CELL, y + i * CELL, shown.position(index), [index[row_of]]))
    return "".join(parts)


def signed(step: int) -> str:
    return f"{'+' if step >= 0 else '−'}{abs(step)}"


def arcs(shown: Shown, dims: Sequence[int], y: float) -> str:
    """From the first element, a step along each dimension: the last one's above the row, the others' below."""
    parts = []
    start = middle(shown.tensor.storage_offset())
    for colour, dim in enumerate(dims):
        stride = shown.tensor.stride(dim)
        above = dim == dims[-1]
        edge = y - 2 if above else y + CELL + 2
        to = start + stride * CELL
        parts.append(arc(start, to, edge, colour, signed(stride), above=above, height=bend(stride), at_tip=True))
    return "".join(parts)


def bend(step: int) -> float:
    """How far an arrow of so many cells is bent: a longer one goes around a shorter."""
    return 24 + min(5 * abs(step), 30)


def readers(shown: Shown, row_of: int) -> dict[int, list[int]]:
    """For each position of the storage, the rows that read it."""
    found: dict[int, set[int]] = {}
    for index in shown.indices():
        found.setdefault(shown.position(index), set()).add(index[row_of])
    return {position: sorted(rows) for position, rows in found.items()}


def header(shown: Shown) -> str:
    tensor = shown.tensor
    facts = f"sizes {tuple(tensor.shape)} · strides {tensor.stride()}"
    facts += f" · offset {tensor.storage_offset()}" if tensor.storage_offset() else ""
    return (
        text(LEFT, 26, shown.expression, "title")
        + text(WIDTH - LEFT, 26, layout.name(shown.layout), "title", "end")
        + text(LEFT, 46, facts)
    )


def page(height: float, says: str, content: str) -> str:
    """A whole picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{SHOWN_WIDTH}"'
        f' height="{SHOWN_WIDTH * height / WIDTH:g}" role="img">\n'
        f"<title>{escape(says)}</title>\n<style>{STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{height:g}" rx="8" style="fill: var(--ground)"/>\n'
        + content.replace("><", ">\n<")
        + "\n</svg>\n"
    )


def matrix(expression: str, tensor: torch.Tensor) -> str:
    """A tensor of two dimensions as a grid, and below it the memory that it reads."""
    shown = Shown(expression, tensor)
    rows, columns = tensor.shape
    down, right = tensor.stride()
    x, y = 56.0, 86.0
    beside = x + columns * CELL + 28
    bottom = y + rows * CELL
    top = bottom + 74
    parts = [
        header(shown),
        straight(x, y - 10, CELL * 1.5, 0, 1),
        straight(x - 12, y, 0, CELL * 1.5, 0),
        grid(x, y, shown, 0),
        text(beside, y + 20, f"one right: {signed(right)} in memory", "says1"),
        text(beside, y + 42, f"one down:  {signed(down)} in memory", "says0"),
        memory(top, shown.cells, readers(shown, 0)),
        named(top, shown.cells),
        arcs(shown, (0, 1), top),
    ]
    says = f"{expression}: sizes {tuple(tensor.shape)}, strides {tensor.stride()}, {layout.name(shown.layout)}"
    return page(top + CELL + max(0.75 * bend(down) + 16, 32), says, "".join(parts))


def image(expression: str, tensor: torch.Tensor) -> str:
    """One picture of three channels as three planes, and below them the memory that they lie in."""
    shown = Shown(expression, tensor)
    _, channels, height, width = tensor.shape
    x, y = 68.0, 92.0
    step = width * CELL + 44
    bottom = y + height * CELL
    top = bottom + 78
    _, c, h, w = tensor.stride()
    parts = [header(shown)]
    for channel in range(channels):
        parts.append(
            text(x + channel * step + width * CELL / 2, y + height * CELL + 16, f"channel {channel}", "", "middle")
        )
        parts.append(grid(x + channel * step, y, shown, 1, (0, channel)))
    parts += [
        straight(x, y - 10, CELL * 1.5, 0, 2),
        straight(x - 12, y, 0, CELL * 1.5, 1),
        straight(x + width * CELL + 6, y + height * CELL / 2, step - width * CELL - 12, 0, 0),
        text(x, y - 18, f"W {signed(w)}", "says2"),
        text(x - 20, y + 24, f"H {signed(h)}", "says1", "end"),
        text(x + (width * CELL + step) / 2, y + height * CELL / 2 - 8, f"C {signed(c)}", "says0", "middle"),
        memory(top, shown.cells, readers(shown, 1)),
        named(top, shown.cells),
        arcs(shown, (1, 2, 3), top),
    ]
    says = f"{expression}: sizes {tuple(tensor.shape)}, strides {tensor.stride()}, {layout.name(shown.layout)}"
    return page(top + CELL + 0.75 * bend(max(c, h)) + 16, says, "".join(parts))


def flat(tensor: torch.Tensor) -> str:
    """What torch says to `view(-1)`."""
    try:
        viewed = tensor.view(-1)
    except RuntimeError:
        return "view(-1) raises"
    return f"view(-1): {tuple(viewed.shape)}, stride {viewed.stride(0)}"


def walks(examples: Sequence[Shown], elements: int) -> str:
    """The way through memory from element to element, in the order of their indices."""
    parts, y = [], 0.0
    for shown in examples:
        positions = [shown.position(index) for index in shown.indices()]
        steps = sorted({to - at for at, to in pairwise(positions)}, reverse=True)
        top = y + 94
        parts += [
            text(LEFT, y + 26, shown.expression, "title"),
            text(WIDTH - LEFT, y + 26, flat(shown.tensor), "", "end"),
            memory(top, shown.cells, readers(shown, 0)),
        ]
        for at, to in pairwise(positions[:elements]):
            forward = to > at
            edge = top - 2 if forward else top + CELL + 2
            colour = steps.index(to - at)
            apart = 5 if forward else -5  # where one ends, the next begins
            start, end = middle(at) + apart, middle(to) - apart
            parts.append(arc(start, end, edge, colour, signed(to - at), above=forward, height=bend(to - at)))
        y = top + CELL + (56 if min(steps) < 0 else 14)
    says = "; ".join(f"{shown.expression}: {flat(shown.tensor)}" for shown in examples)
    return page(y + 12, says, "".join(parts))


def pictures() -> dict[str, str]:
    """All pictures, by the name of their file."""
    x = torch.arange(12.0).reshape(3, 4)
    row, line = torch.arange(4.0), torch.arange(6.0)
    images = torch.arange(12.0).reshape(1, 3, 2, 2)
    nhwc = images.to(memory_format=torch.channels_last)
    viewed = [Shown("x[:, ::2]", x[:, ::2]), Shown("x[:, 1:3]", x[:, 1:3]), Shown("x.t()", x.t())]
    return {
        "contiguous.svg": matrix("x", x),
        "transposed.svg": matrix("x.t()", x.t()),
        "sliced.svg": matrix("x[:, 1:3]", x[:, 1:3]),
        "stepped.svg": matrix("x[:, ::2]", x[:, ::2]),
        "expanded.svg": matrix("row.expand(3, 4)", row.expand(3, 4)),
        "overlapping.svg": matrix("line.unfold(0, 3, 1)", line.unfold(0, 3, 1)),
        "nchw.svg": image("images", images),
        "channels_last.svg": image("nhwc", nhwc),
        "walks.svg": walks(viewed, 6),
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, drawn in pictures().items():
        (FOLDER / name).write_text(drawn, encoding="utf-8")
