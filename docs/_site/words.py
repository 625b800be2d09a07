"""Keeps short code in running text on one line: a browser would break `--quick` behind its hyphens."""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

SHORT = 28
"""Characters that fit on a phone beside nothing else."""
CODE = re.compile(r"<code>([^<\n]+)</code>")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark it for the style sheet."""
    return CODE.sub(lambda code: f'<code class="short">{code[1]}</code>' if len(code[1]) <= SHORT else code[0], html)
