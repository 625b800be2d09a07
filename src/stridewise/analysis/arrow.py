"""A recording's copies as an Arrow table, beside those of its operators and calls."""

from pathlib import Path
from typing import Any

import numpy as np

from stridewise.analysis.assemble import report_of
from stridewise.analysis.case import Case
from stridewise.analysis.source_tree import SourceTree
from stridewise.findings import Site
from stridewise.recording.arrow import COPIES, ArrowTables, calls_table, maybe, ops_table, table
from stridewise.recording.trace import Trace
from stridewise.results import Copy

_NOWHERE = Site()
_OF_SITE = ("file", "line", "column", "end_line", "end_column", "expression", "via", "module")


def tables(trace: Trace, *, min_share: float, source_root: Path | None = None) -> ArrowTables:
    """The three tables of a recording, trace or log. Raises UsageError without pyarrow."""
    ops, rows = ops_table(trace)
    return ArrowTables(_copies(trace, rows, min_share, source_root), calls_table(trace), ops)


def _copies(trace: Trace, rows: Any, min_share: float, source_root: Path | None) -> Any:
    case = Case(trace, (), SourceTree(source_root) if source_root is not None else None)
    copies = report_of(case, min_share=min_share).copies
    sites = [copy.site or _NOWHERE for copy in copies]
    ops = np.array([copy.op for copy in case.copies], np.int64)
    calls = np.array([copy.call for copy in case.copies], np.int64)
    known = (ops >= 0) & (ops < len(rows))
    columns: dict[str, Any] = {
        field.name: [getattr(copy, field.name) for copy in copies]
        for field in COPIES
        if field.name in Copy.__struct_fields__
    }
    columns |= {name: [getattr(site, name) for site in sites] for name in _OF_SITE}
    columns |= {
        "copy": np.arange(len(copies)),
        "op": maybe(np.where(known, rows[np.where(known, ops, 0)] if len(rows) else -1, -1)),
        "op_name": [copy.op for copy in copies],
        "call": maybe(calls),
        "function": [copy.call for copy in copies],
        "in_function": [site.function for site in sites],
    }
    return table(COPIES, columns)
