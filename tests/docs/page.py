"""The blocks of a page of the documentation, as CONTRIBUTING.md says they are written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

# Not Sybil: its lexer of fences also gives those that stand inside a longer fence.
FENCE = re.compile(r"^(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,})[ ]*(?P<info>[^`\n]*)$")
INFO = re.compile(r"(?P<language>[\w+-]+)(?P<options>(?:[ ]+\w+=\"[^\"]*\")*)")
OPTION = re.compile(r"(\w+)=\"([^\"]*)\"")
COMMENT = re.compile(r"<!--(?P<said>.*?)-->", re.DOTALL)
OPTIONS = frozenset({"title", "hl_lines", "linenums"})
COMMANDS = frozenset({"bash", "sh", "shell", "zsh", "pycon", "py"})
"""Languages in which a block looks like one that is run, and would not be."""
SHOWN = frozenset({"text", "diff", "yaml", "toml", "json", "cpp", "lua", "ini", "html", "markdown", "c", "cuda"})
"""Languages of blocks that people read, or that are files."""


class PageError(AssertionError):
    """A page is not written as agreed, or does not do what it says."""

    def __init__(self, page: Path, line: int, *said: str) -> None:
        super().__init__("\n".join((f"{page}:{line}: {said[0]}", *said[1:])))


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    line: int
    """The line of its fence, from 1."""
    language: str
    text: str
    title: str | None = None
    skipped: str | None = None
    """Why it is not run."""
    exit_code: int = 0

    def fail(self, *said: str, line: int | None = None) -> PageError:
        """The error to raise about it."""
        return PageError(self.page, self.line if line is None else line, *said)


@dataclass(frozen=True)
class Command:
    """A command of a console block, and what it prints."""

    line: int
    text: str
    output: list[str] = field(default_factory=list)


def blocks(page: Path) -> list[Block]:
    """Every block of a page, from top to bottom. Raises PageError for what is not written as agreed."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Block] = []
    outside: list[str] = []
    """Lines that are in no block, the others empty."""
    marked: set[int] = set()
    at = 0
    while at < len(lines):
        opening = FENCE.match(lines[at])
        if opening is None:
            outside.append(lines[at])
            at += 1
            continue
        end = _end(page, lines, at, opening)
        body = [line.removeprefix(opening["indent"]) for line in lines[at + 1 : end]]
        markers = list(_above(page, outside))
        marked.update(line for line, _ in markers)
        found.append(_block(page, at + 1, opening["info"].strip(), body, [said for _, said in markers]))
        outside += [""] * (end + 1 - at)
        at = end + 1
    _no_stray_markers(page, outside, marked)
    return found


def _end(page: Path, lines: list[str], start: int, opening: re.Match[str]) -> int:
    for at in range(start + 1, len(lines)):
        closing = lines[at].strip()
        if set(closing) == {opening["fence"][0]} and len(closing) >= len(opening["fence"]):
            return at
    raise PageError(page, start + 1, "this block is not closed")


def _above(page: Path, before: list[str]) -> Iterator[tuple[int, str]]:
    """The comments on the lines right above a block, each with its first line's number."""
    at = len(before)
    while at and before[at - 1].rstrip().endswith("-->"):
        end = at
        while at and "<!--" not in before[at - 1]:
            at -= 1
        at -= 1
        if at < 0:
            raise PageError(page, end, "this comment has no beginning")
        comment = COMMENT.search("\n".join(before[at:end]))
        assert comment is not None
        yield at + 1, " ".join(comment["said"].split())


def _block(page: Path, line: int, info: str, body: list[str], markers: list[str]) -> Block:
    parsed = INFO.fullmatch(info)
    if parsed is None:
        raise PageError(page, line, f'a block needs a language, and options as title="…", not `{info}`')
    options = dict(OPTION.findall(parsed["options"]))
    if unknown := options.keys() - OPTIONS:
        raise PageError(page, line, f"no block has the option {', '.join(sorted(unknown))}")
    language, title = parsed["language"], options.get("title")
    if language in COMMANDS and title is None:
        raise PageError(page, line, f"`{language}` would not be run: commands stand in `console`, programs in `python`")
    if language not in SHOWN | COMMANDS | {"python", "console"}:
        raise PageError(page, line, f"`{language}` is no language of these pages; add it to tests/docs/page.py")
    if title is not None and (language == "console" or not _inside(title)):
        raise PageError(page, line, f'title="{title}" is no file in the page\'s folder')
    skipped, exit_code = None, 0
    for said in markers:
        if reason := re.fullmatch(r"not run:(.*)", said):
            skipped = reason[1].strip()
            if len(skipped) < 4:
                raise PageError(page, line, "`not run` needs a reason: <!-- not run: it takes a cluster -->")
        elif code := re.fullmatch(r"exits with (\d+)", said):
            exit_code = int(code[1])
        else:
            raise PageError(
                page, line, f"`<!-- {said} -->` is no marker: there are `not run: REASON` and `exits with N`"
            )
    text = "".join(f"{text}\n" for text in body)
    return Block(page, line, language, text, title, skipped, exit_code)


def _inside(title: str) -> bool:
    path = PurePosixPath(title)
    return bool(title) and not path.is_absolute() and ".." not in path.parts


def _no_stray_markers(page: Path, outside: list[str], marked: set[int]) -> None:
    for comment in COMMENT.finditer("\n".join(outside)):
        line = "\n".join(outside).count("\n", 0, comment.start()) + 1
        if line not in marked and re.match(r"\s*(not run|exits? )", comment["said"]):
            raise PageError(page, line, "this marker stands before no block: put it on the line right above one")


def commands(block: Block) -> list[Command]:
    """The commands of a console block. A command that ends with a backslash goes on in the next line."""
    found: list[Command] = []
    goes_on = False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if goes_on:
            text = f"{found[-1].text}\n{line.removeprefix('> ')}"
            found[-1] = Command(found[-1].line, text)
            goes_on = line.endswith("\\")
        elif line.startswith("$ "):
            found.append(Command(number, line[2:]))
            goes_on = line.endswith("\\")
        elif found:
            found[-1].output.append(line)
        else:
            raise block.fail("a console block begins with a command, `$ …`", line=number)
    if not found:
        raise block.fail("a console block without a command")
    return found
