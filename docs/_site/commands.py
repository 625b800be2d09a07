"""Puts every command with its options into the page on the command line: the words are those of `--help`."""

import re
from collections.abc import Iterator
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from stridewise.cli.app import app

PAGE = "reference/command-line.md"
MARK = "<!-- every command, when the site is built -->"
OPTION = re.compile(r"`[^`]*`|(?<![\w-])--?[a-z][\w-]*")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put them in the place of the mark."""
    return markdown.replace(MARK, listed()) if page.file.src_uri == PAGE else markdown


def listed() -> str:
    """A section for each command."""
    # With markup on, Typer escapes what would be none: here it is for Markdown.
    app.rich_markup_mode = None
    return "".join(_section(words, command) for words, command in _below("stridewise", typer.main.get_command(app)))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _below(f"{words} {name}", below)


def _section(words: str, command: Any) -> str:
    context = typer.Context(command, info_name=words)
    usage = " ".join((words, *command.collect_usage_pieces(context)))
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    listed = "".join(f"`{_name(name)}`\n:   {_text(said)}\n\n" for name, said in filter(None, records))
    return f"### {words}\n\n```text\n{usage}\n```\n\n{OPTION.sub(_coded, command.help or '').strip()}\n\n{listed}"


def _name(text: str) -> str:
    """How an argument or an option is written, without the name of a type of Python."""
    return re.sub(r" <(?:str|list\[str\]|path|file)>$", "", " ".join(text.split()))


def _text(text: str) -> str:
    """Words that mean nothing to Markdown."""
    return OPTION.sub(_coded, " ".join(text.split()).replace("<", "&lt;").replace("*", "\\*"))


def _coded(option: re.Match[str]) -> str:
    return option[0] if option[0].startswith("`") else f"`{option[0]}`"
