"""`stridewise explain`."""

import re
from textwrap import fill
from typing import Annotated

import typer

from stridewise.cli.output import say
from stridewise.errors import UsageError
from stridewise.layout import Layout, LayoutError, contiguous_strides

_MOST = 10**18 - 1
"""Of a number: the products of larger ones are no address."""
_NUMBERS = re.compile(r"(?:\d{1,18}(?:\s*[,x×]\s*|\s+|$))*", re.IGNORECASE | re.ASCII)


def explain(
    sizes: Annotated[str, typer.Argument(metavar="SIZES", help="As in 2,3,4 or (2, 3, 4) or 2x3x4.")],
    strides: Annotated[
        str | None, typer.Argument(metavar="STRIDES", help="In elements; those of a contiguous tensor unless given.")
    ] = None,
    offset: Annotated[int, typer.Option(min=0, max=_MOST, help="Storage offset, in elements.")] = 0,
) -> None:
    """Say what layout sizes and strides make, and why."""
    from stridewise import api

    size_numbers = parse_numbers(sizes, "sizes")
    stride_numbers = contiguous_strides(size_numbers) if strides is None else parse_numbers(strides, "strides")
    try:
        Layout(size_numbers, stride_numbers, offset)
    except LayoutError as error:
        raise UsageError(f"sizes {size_numbers} and strides {stride_numbers}: {error}") from None
    say(fill(api.explain_layout(size_numbers, stride_numbers, offset), 100))


def parse_numbers(text: str, what: str) -> tuple[int, ...]:
    """Read `2,3,4`, `(2, 3, 4)`, `[2, 3, 4]`, `2x3x4` or `torch.Size([2, 3, 4])`. Raises UsageError."""
    bare = text.strip().removeprefix("torch.Size").strip()
    while bare[:1] + bare[-1:] in ("()", "[]"):
        bare = bare[1:-1].strip()
    if not _NUMBERS.fullmatch(bare) or (bare == "" and text.strip() == ""):
        raise UsageError(f"{what} `{text}`: expected whole numbers from 0 on, such as 2,3,4 or (2, 3, 4)")
    return tuple(int(number) for number in re.findall(r"\d+", bare))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explain)
