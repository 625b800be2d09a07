"""A page for every code, from its rule: what `stridewise rule CODE` says, and programs that it names or not."""

import re
from collections.abc import Iterable, Iterator
from textwrap import dedent, indent
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from stridewise.analysis.rules import all_rules as of_recordings
from stridewise.checks.rules import all_rules as of_objects
from stridewise.codes import Doc
from stridewise.compiled.rules import all_rules as of_compiled_code
from stridewise.linter.rules import all_rules as of_source
from stridewise.repair.rules import all_rules as of_trials
from stridewise.report.codes import all_docs

FOLDER = "reference/codes"
FAMILIES = {
    "SW1": ("Cost", "found in recordings and traces, or by trying edits: `stridewise run`, `trace` and `fix`"),
    "SW2": ("Hazards", "found in live models, loaders and ranks: `stridewise check`, `preflight` and the guards"),
    "SW3": ("Source", "found in the text of a program: `stridewise lint`"),
    "SW4": ("Operators", "found by running an operator over layouts: `stridewise check op`, `expect_layout`"),
    "SW5": ("Compiled code", "found in what `torch.compile` made: `stridewise run --compiled`, `explain_compile`"),
}
"""By the beginning of a code: what its family is called, and where it comes from."""

CODE = re.compile(r"\bSW\d{3}\b")
# What a link may not be put into: fences, code, links, headings, comments and other markup.
KEPT = re.compile(
    r"^[ \t]*(`{3,})[^\n]*\n.*?^[ \t]*\1[ \t]*$|(`+)[^`]+?\2|!?\[[^\]]*\]\([^)]*\)|^#[^\n]*|<[^>]+>"
    r"|^:::[^\n]*(?:\n[ ]{4}[^\n]*)*",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the table of them."""
    rules: dict[str, Any] = {
        rule.code: rule
        for found in (of_recordings, of_objects, of_compiled_code, of_source, of_trials)
        for rule in found()
    }
    for doc in all_docs():
        text = page(doc, rules.get(doc.code))
        files.append(File.generated(config, f"{FOLDER}/{doc.code}.md", content=text))
    files.append(File.generated(config, f"{FOLDER}/index.md", content=index(all_docs())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make every code that a page names in its text a link to its page."""
    here = page.file.src_uri
    up = "../" * here.count("/")
    known = {doc.code for doc in all_docs()} - {here.removeprefix(FOLDER + "/").removesuffix(".md")}

    def linked(match: re.Match[str]) -> str:
        return f"[{match[0]}]({up}{FOLDER}/{match[0]}.md)" if match[0] in known else match[0]

    parts, at = [], 0
    for kept in KEPT.finditer(markdown):
        parts += [CODE.sub(linked, markdown[at : kept.start()]), kept[0]]
        at = kept.end()
    return "".join([*parts, CODE.sub(linked, markdown[at:])])


_INDEX = """# Codes

`stridewise rule CODE` prints what a page says. `--select` and `--ignore` take codes, and beginnings such as `SW3`.
"""


def index(docs: Iterable[Doc]) -> str:
    """The table of all codes, a family at a time."""
    docs = list(docs)
    parts = [_INDEX]
    for beginning, (name, where) in FAMILIES.items():
        parts.append(f"\n## {name}: {beginning}xx\n\n{where[0].upper()}{where[1:]}.\n\n")
        parts.append("| code | name | what it says |\n|---|---|---|\n")
        mine = (doc for doc in docs if doc.code.startswith(beginning))
        parts += [f"| [{doc.code}]({doc.code}.md) | {doc.title} | {doc.summary} |\n" for doc in mine]
    return "".join(parts)


def page(doc: Doc, rule: Any) -> str:
    """The page of one code. `rule` is None for what is no rule of its own, as a file that can't be read."""
    name, where = FAMILIES[doc.code[:3]]
    facts = [f"{name}, {where}"]
    if rule is not None and hasattr(rule, "severity"):
        facts.append(f"Usual severity: {rule.severity}")
    if not getattr(rule, "default", True):
        facts.append(f"Off unless asked for: `--select {doc.code}`")
    head = f"# {doc.code} {doc.title}\n\n{doc.summary[0].upper()}{doc.summary[1:]}\n{{ .summary }}\n\n"
    return head + "".join(f"- {fact}.\n" for fact in facts) + "\n" + _body(doc.doc) + "".join(_examples(rule))


def _body(text: str) -> str:
    """The sections of a docstring: a line that is not indented is a heading."""
    sections = (part.partition("\n") for part in re.split(r"^(?=\S)", text, flags=re.MULTILINE) if part)
    return "".join(f"## {heading}\n\n{dedent(body).strip()}\n\n" for heading, _, body in sections)


def _examples(rule: Any) -> Iterator[str]:
    fires = [_firing(example) for example in getattr(rule, "fires", ())]
    quiet = [_fence(example) for example in getattr(rule, "quiet", ())]
    if fires:
        yield "## Where it fires\n\n"
        yield "\n".join(fires)
    if quiet:
        yield "\n## Where it is quiet\n\n"
        yield "\n".join(quiet)


def _firing(example: Any) -> str:
    if isinstance(example, str):
        return _fence(example)
    if example.fixed is None:
        return _fence(example.source)
    before, after = (indent(_fence(text), "    ") for text in (example.source, example.fixed))
    return f'=== "Before"\n\n{before}\n=== "After the fix"\n\n{after}'


def _fence(source: str) -> str:
    return f"```python\n{source.strip()}\n```\n"
