"""The check as an assertion, for tests."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from stridewise.checks.operators.check import check_op
from stridewise.config.reading import is_wanted


def assert_honours_layout(
    fn: Callable[..., Any],
    *sample: Any,
    refusals: bool = True,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    **options: Any,
) -> None:
    """See `stridewise.api.assert_honours_layout`."""
    __tracebackhide__ = True
    found = check_op(fn, *sample, **options)
    wanted = [finding for finding in found.findings if is_wanted(finding.code, select, ignore)]
    unwanted = [f for f in wanted if f.severity != "note" or (f.code == "SW407" and not refusals)]
    if unwanted or found.left:
        raise AssertionError(_text(replace(found, findings=tuple(unwanted))))
    if not found.compared:
        raise AssertionError(f"Nothing was compared: {found.op} gives no tensor, or other values at each call.")


def _text(found: Any) -> str:
    out = io.StringIO()
    for finding in found.findings:
        out.write(f"{finding.code} {finding.title}: {finding.message}\n")
        out.writelines(f"  {evidence}\n" for evidence in finding.evidence)
        for snippet in found.snippets:
            if snippet.finding == finding.fingerprint:
                out.write(f"The smallest layout, {snippet.layout}:\n\n{snippet.code}\n")
        out.write(f"{finding.advice}\n" if finding.advice else "")
    out.writelines(f"{note}\n" for note in found.notes if found.left)
    return out.getvalue().rstrip("\n")
