"""Comments that tell the tests how to run a block are no part of the site."""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

COMMENT = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave out comments that have lines of their own."""
    return COMMENT.sub("", markdown)
