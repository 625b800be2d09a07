"""Where a region of autocast is entered: of a `with` statement the item alone, not what it holds."""

import ast
import re

import msgspec

from stridewise.findings import Site
from stridewise.recording.model import SiteRow

_MOST_COLONS = 20


def entry_site(row: SiteRow) -> Site:
    """The place of an entry as a site. Before Python 3.12 a `with` statement is all that Python tells."""
    site = row.to_site()
    if row.expression is None or row.line is None or row.column is None:
        return site
    item = _item(row.expression)
    if item is None:
        return site
    first, last = item.lineno, item.end_lineno or item.lineno
    return msgspec.structs.replace(
        site,
        line=row.line + first - 1,
        end_line=row.line + last - 1,
        column=item.col_offset + (row.column if first == 1 else 0),
        end_column=(item.end_col_offset or 0) + (row.column if last == 1 else 0),
        expression=ast.get_source_segment(row.expression, item),
        text=row.text if first == 1 else None,
    )


def _item(statement: str) -> ast.expr | None:
    """The only item of a `with` statement that can be a region of autocast, else the first that is named so."""
    if not statement.startswith("with"):
        return None
    for colon in list(re.finditer(":", statement))[:_MOST_COLONS]:  # the one that ends its head is the first that can
        try:
            parsed = ast.parse(statement[: colon.end()] + " pass").body[0]
        except (SyntaxError, ValueError):
            continue
        if not isinstance(parsed, ast.With):
            return None
        items = [item.context_expr for item in parsed.items]
        named = [item for item in items if "autocast" in ast.unparse(item)]
        return items[0] if len(items) == 1 else named[0] if len(named) == 1 else None
    return None
