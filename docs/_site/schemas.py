"""A page for every JSON schema, with its objects as tables; the schema itself stays beside it."""

import json
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from stridewise.report.schema import RESULTS, schema

FOLDER = "reference/schema"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for name in RESULTS:
        files.append(File.generated(config, f"{FOLDER}/{name}.md", content="".join(_page(name))))
    return files


def _page(name: str) -> Iterator[str]:
    whole = schema(name)
    top = RESULTS[name].type.__name__
    yield f"# {name}\n\n{whole['description']} "
    yield f"The schema: [{name}.json]({name}.json), or `stridewise schema {name}`.\n\n"
    definitions = whole["$defs"]
    for key in [top, *(other for other in definitions if other != top)]:
        yield from _object(key, definitions[key])


def _object(name: str, fields: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}\n\n"
    if fields.get("description"):
        yield f"{fields['description']}\n\n"
    if "properties" not in fields:
        yield f"{_type(fields)}\n\n"
        return
    required = set(fields.get("required", ()))
    yield "| field | type | what it is |\n|---|---|---|\n"
    for key, field in fields["properties"].items():
        said = " ".join(str(field.get("description", "")).split()).replace("|", "\\|")
        always = "" if key in required else " *may be left out*"
        yield f"| `{key}` | {_type(field)} | {said}{always} |\n"
    yield "\n"


def _type(field: dict[str, Any]) -> str:
    """A type in words, with a link to the object that it names."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(_type(option) for option in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    kind = field.get("type")
    if kind == "array":
        items = field.get("items") or {}
        return f"array of {_type(items)}" if items else "array"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"object of {_type(field['additionalProperties'])}"
    return str(kind or "any")
