"""Links from a page to files of the repository outside docs/ work on a code host as they are, and on the site by this.

Each such file gets a page of the site that shows it; a link to one that does not exist fails the build.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^[ \t]*(`{3,})[^\n]*\n.*?^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".cpp": "cpp", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml", ".sh": "bash"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside that some page, or a page added here, links to."""
    waiting = [file for file in files.documentation_pages() if not file.generated_by]
    while waiting:
        file = waiting.pop()
        for target in _outside(file.content_string, _source(file)):
            added = File.generated(config, _page_of(target), content=_shown(target))
            if files.get_file_from_path(added.src_uri) is None:
                files.append(added)
                waiting.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ to those pages."""
    source = _source(page.file)

    def replaced(match: re.Match[str]) -> str:
        target = _target(match["path"], source)
        if target is None:
            return match[0]
        inside = target.parts[0] == "docs"
        goal = "/".join(target.parts[1:]) if inside else _page_of(target)
        if source.parts[0] == "docs" and inside:
            return match[0]
        return os.path.relpath(goal, PurePosixPath(page.file.src_uri).parent) + (match["anchor"] or "")

    return _outside_fences(markdown, lambda text: LINK.sub(replaced, text))


def _source(file: File) -> PurePosixPath:
    """Where a page's text stands in the repository."""
    uri = PurePosixPath(file.src_uri)
    return PurePosixPath(*uri.parts[1:]).with_suffix("") if uri.parts[0] == "repository" else "docs" / uri


def _target(path: str, source: PurePosixPath) -> PurePosixPath | None:
    """What a relative link names, from the repository's root; None for what lies beyond it."""
    found = PurePosixPath(os.path.normpath(source.parent / path))
    return None if found.is_absolute() or found.parts[:1] == ("..",) else found


def _outside(text: str, source: PurePosixPath) -> list[PurePosixPath]:
    found = [_target(match["path"], source) for match in LINK.finditer(FENCE.sub("", text))]
    outside = [target for target in found if target is not None and target.parts[0] != "docs"]
    for target in outside:
        if not (ROOT / target).exists():
            raise PluginError(f"{source} links to {target}, which does not exist")
    return outside


def _page_of(target: PurePosixPath) -> str:
    return f"repository/{target}.md"


def _shown(target: PurePosixPath) -> str:
    """A page that shows a file, or lists a folder."""
    path = ROOT / target
    if path.is_dir():
        rows = [f"- [{entry.name}]({target.name}/{entry.name})" for entry in sorted(path.iterdir()) if _listed(entry)]
        return f"# {target}\n\n" + "\n".join(rows) + "\n"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    fence = "`" * 5
    return f"# {target}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def _listed(entry: Path) -> bool:
    return not entry.name.startswith((".", "__pycache__")) and (entry.is_dir() or entry.suffix in (*LANGUAGES, ".md"))


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(text[at:])])
