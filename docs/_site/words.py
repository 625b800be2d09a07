"""Keeps short code in running text on one line: a browser would break `--quick` behind its hyphens."""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

SHORT = 28
"""Characters that fit on a phone beside nothing else."""
LONG = 48
"""Characters that leave the other columns of a table no room: such code is broken even in the first."""
CODE = re.compile(r"<code>([^<\n]+)</code>")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark it for the style sheet."""
    return CODE.sub(_marked, html)


def _marked(code: re.Match[str]) -> str:
    kind = "short" if len(code[1]) <= SHORT else "long" if len(code[1]) > LONG else None
    return f'<code class="{kind}">{code[1]}</code>' if kind else code[0]
