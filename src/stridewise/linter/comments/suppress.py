"""Leaves out the findings that comments of their file name: `# noqa: SW304`, `# stridewise: ignore[SW304]`.

A comment counts from the first to the last line of the finding's expression, and on the last line of its statement,
where formatters put it. `# stridewise: ignore[...]` on a line of its own counts for the statement below,
`# stridewise: skip-file` for the whole file. Without codes they leave out everything. Codes may be beginnings of codes.
"""

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from stridewise.findings import Finding
from stridewise.linter.comments.directives import Directive, Directives, directives_of, mentioned
from stridewise.linter.comments.unused import Functions, unused
from stridewise.linter.engine import numbered
from stridewise.linter.files.settings import Settings
from stridewise.linter.rules import UNUSED, all_rules
from stridewise.source.file import SourceFile

_OTHER_FAMILIES = ("SW1", "SW2", "SW4", "SW5")
"""Codes of what is found in recordings and live objects: whether they are in use can't be told from source."""


class Suppressed(Struct, frozen=True):
    """The findings of a file after its comments were heard."""

    kept: tuple[Finding, ...]
    """In the order given."""
    count: int
    """How many were left out, by comments or `per-file-ignores`."""
    unused: tuple[Finding, ...]
    """SW300: comments that leave out nothing."""


def has_comments(content: bytes) -> bool:
    """Whether a file may hold comments that `apply` reports although there are no findings in it."""
    return mentioned(content, ours=True)


def apply(source: SourceFile, findings: Sequence[Finding], settings: Settings) -> Suppressed:
    """Leave out the findings that comments in the file or its `per-file-ignores` name, and find idle comments."""
    kept = tuple(finding for finding in findings if finding.code not in settings.ignored)
    if not mentioned(source.content, ours=not kept):
        return Suppressed(kept, len(findings) - len(kept), ())
    directives = directives_of(source)
    if any(directive.kind == "skip-file" for directive in directives.found):
        return Suppressed((), len(findings), ())
    left: list[Finding] = []
    used: dict[int, set[str]] = defaultdict(set)
    covers = _Covers(directives)
    for finding in kept:
        heard = [*covers.of(finding)]
        for at in heard:
            used[at].add(finding.code)
        if not heard:
            left.append(finding)
    idle = _idle(source, directives, used, settings) if settings.unused else ()
    return Suppressed(tuple(left), len(findings) - len(left), idle)


class _Covers:
    """Which comments leave findings out, looked up by their lines. A comment is named by its number in the file."""

    def __init__(self, directives: Directives) -> None:
        self._directives = directives
        self._above_line: dict[int, list[int]] = defaultdict(list)
        on: dict[int, list[int]] = defaultdict(list)
        above: dict[int, list[int]] = defaultdict(list)
        for at, directive in enumerate(directives.found):
            if directive.kind == "mistake":
                continue
            if directive.below is None:
                on[directive.line].append(at)
            elif directive.below[0] == directive.below[1]:
                self._above_line[directive.below[0]].append(at)
            else:
                above[directive.below[1]].append(at)
        self._on, self._above = dict(on), dict(above)
        self._lines, self._lasts = sorted(on), sorted(above)

    def of(self, finding: Finding) -> Iterator[int]:
        """The comments that leave a finding out."""
        line, end = finding.site.line, finding.site.end_line or finding.site.line
        if line is None or end is None:
            return
        if (finding.site.expression or "").startswith(("def ", "async def ", "class ")):
            end = line  # only its head: a comment in its body is about something else
        for at in (*self._beside(line, end), *self._over(line)):
            if self._directives.found[at].names(finding.code):
                yield at

    def _beside(self, line: int, end: int) -> Iterator[int]:
        """Those on the lines of an expression, and on the last one of its statement."""
        for number in self._lines[bisect.bisect_left(self._lines, line) : bisect.bisect_right(self._lines, end)]:
            yield from self._on[number]
        last = self._directives.end(end)
        if not line <= last <= end:
            yield from self._on.get(last, ())

    def _over(self, line: int) -> Iterator[int]:
        """Those on lines of their own above it."""
        yield from self._above_line.get(line, ())
        # Statements of several lines follow each other; those with decorators end where what they decorate does.
        at = bisect.bisect_left(self._lasts, line)
        for number in self._above[self._lasts[at]] if at < len(self._lasts) else ():
            below = self._directives.found[number].below
            if below is not None and below[0] <= line:
                yield number


def _idle(
    source: SourceFile, directives: Directives, used: Mapping[int, Collection[str]], settings: Settings
) -> tuple[Finding, ...]:
    """SW300 for the comments of which something was not used."""
    if not directives.certain or UNUSED.code in settings.ignored:
        return ()
    found = []
    functions = Functions(source.tree)
    wanted = {directive.line for directive in directives.found if UNUSED.code in _codes(directive)}
    for at, directive in enumerate(directives.found):
        if directive.line in wanted:
            continue
        hits = used.get(at, ())
        unknown = [code for code in _codes(directive) if _is_unknown(code, ours=directive.kind == "ignore")]
        idle = [code for code in _codes(directive) if _is_idle(code, hits, settings)]
        bare = directive.kind == "ignore" and directive.codes is None and _is_idle("SW3", hits, settings)
        if directive.kind == "mistake" or unknown or idle or bare:
            found.append(unused(source, directive, idle, unknown, functions))
    return tuple(numbered(found))


def _codes(directive: Directive) -> tuple[str, ...]:
    return tuple(dict.fromkeys(code for code, _ in directive.codes or ()))


def _is_unknown(code: str, *, ours: bool) -> bool:
    """Whether no rule has a code. Unless it is `ours`, one that looks otherwise may be another tool's."""
    if not (ours or code.startswith("SW")) or code.startswith(_OTHER_FAMILIES):
        return False
    return not any(known.startswith(code) for known in (UNUSED.code, *(rule.code for rule in all_rules())))


def _is_idle(code: str, hits: Collection[str], settings: Settings) -> bool:
    """Whether the rules that a code, or a beginning of codes, stands for ran and found nothing there."""
    ran = {name for name in settings.codes if name not in settings.ignored}
    meant = {rule.code for rule in all_rules() if rule.code.startswith(code)}
    if not meant or any(hit.startswith(code) for hit in hits):
        return False
    usual = meant if code in meant else {rule.code for rule in all_rules() if rule.code in meant and rule.default}
    return bool(meant & ran) and usual <= ran
