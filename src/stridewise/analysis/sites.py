"""Sites of equal layers as one."""

import re
from collections.abc import Sequence

from stridewise.findings import Site


def place_of(site: Site) -> tuple[object, ...]:
    """What makes two sites the same place: of equal layers the module does not count, where the source is known."""
    return (
        site.file,
        site.line,
        site.column,
        site.end_line,
        site.end_column,
        site.via,
        site.module if not site.file else None,
    )


def common_site(sites: Sequence[Site]) -> Site:
    """One site for equal ones: numbers in module paths that differ become `*`."""
    first = sites[0]
    modules = {site.module for site in sites}
    if len(modules) == 1:
        return first
    return Site(
        first.file,
        first.line,
        first.column,
        first.end_line,
        first.end_column,
        first.function,
        common_path([module or "" for module in modules]),
        first.expression,
        first.via,
        first.text,
    )


def common_path(paths: Sequence[str]) -> str:
    """One dotted path for several: what differs becomes `*`."""
    parts = [path.split(".") for path in paths]
    if len({len(entry) for entry in parts}) != 1:
        patterns = {re.sub(r"(?<![^.])\d+(?![^.])|(?<=_)\d+(?![^.])", "*", path) for path in paths}
        return min(sorted(patterns), key=len)
    return ".".join(names[0] if len(set(names)) == 1 else "*" for names in map(list, zip(*parts, strict=True)))
