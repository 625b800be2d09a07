"""The page of results: every struct that a function gives, with its fields, read from the source."""

from collections.abc import Iterator

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGE = "reference/results.md"
PARTS = {
    "Findings": ("stridewise.findings", ()),
    "A report": ("stridewise.results.report", ("analyze", "diagnose")),
    "The timeline of a report": ("stridewise.results.timeline", ()),
    "Autocast in a report": ("stridewise.results.autocast", ()),
    "A comparison": ("stridewise.results.diff", ("diff",)),
    "A fleet": ("stridewise.results.fleet", ("analyze_fleet",)),
    "A repair": ("stridewise.results.repair", ("fix",)),
    "A run of lint": ("stridewise.results.lint", ("lint",)),
    "Checks": ("stridewise.results.checks", ("check_op", "preflight", "inspect_loader")),
    "Compiled code": ("stridewise.results.compiled", ("explain_compile",)),
    "An exported program": ("stridewise.results.artefacts", ("check_export",)),
    "The lab": ("stridewise.results.lab", ("run_lab", "compare_labs")),
    "A machine": ("stridewise.results.doctor", ("doctor",)),
}
"""Each part with its module, and the functions of `stridewise` that give what it holds."""

HEAD = """# Results

What [the functions of stridewise](api.md) give, and `--format json` writes. All are frozen values, free of torch. A
figure that was not measured is None.

A result prints itself as text and shows itself in a notebook; `to_json()` gives what `--format json` writes, and
`to_html()` a page. `.ok` says that it has no error and no warning. A repair can also `write()` its edits into the
files, or `apply()` them in this process only.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, PAGE, content="".join(page())))
    return files


def page() -> Iterator[str]:
    """The page, in pieces."""
    package = griffe.load("stridewise", search_paths=["src"], allow_inspection=False)
    yield HEAD
    for title, (path, functions) in PARTS.items():
        yield f"\n## {title}\n\n"
        if functions:
            yield "Of " + ", ".join(f"[`{name}`][stridewise.{name}]" for name in functions) + ".\n\n"
        module = package[path.removeprefix("stridewise.")]
        for member in module.members.values():
            if member.name.startswith("_") or member.is_alias:
                continue
            if member.is_class:
                yield from _struct(member)
            elif member.is_attribute and "Literal" in str(member.value):
                yield from _choice(member)


def _struct(struct: griffe.Object) -> Iterator[str]:
    yield f"### {struct.name} {{ #{struct.path} }}\n\n{_said(struct)}\n\n"
    rows = [member for member in struct.members.values() if member.is_attribute and not member.name.startswith("_")]
    said = [" ".join(_said(field).split()) for field in rows]
    if any(said):
        yield "| field | type | what it is |\n|---|---|---|\n"
        yield from (f"| `{f.name}` | `{f.annotation}` | {words} |\n" for f, words in zip(rows, said, strict=True))
    elif rows:
        yield "| field | type |\n|---|---|\n"
        yield from (f"| `{field.name}` | `{field.annotation}` |\n" for field in rows)
    yield "\n"


def _choice(choice: griffe.Object) -> Iterator[str]:
    yield f"### {choice.name} {{ #{choice.path} }}\n\n`{choice.value}`\n\n{_said(choice)}\n\n"


def _said(thing: griffe.Object) -> str:
    return thing.docstring.value if thing.docstring else ""
