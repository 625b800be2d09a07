"""JSON Schemas of what `--format json` writes, made from the results themselves: nothing of them is written by hand."""

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any, get_args

import msgspec
from msgspec import Struct

from stridewise.report import Table
from stridewise.results import (
    SCHEMA_VERSION,
    Compiled,
    Diff,
    Doctor,
    Fleet,
    Lab,
    LabComparison,
    LintRun,
    LintStatistics,
    Repair,
    Report,
)
from stridewise.results.artefacts import Artefact
from stridewise.results.checks import Conformance, LoaderReport, Preflight

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Written(Struct, frozen=True):
    """A kind of result, and what writes it."""

    type: type[Struct]
    by: str
    """The command or the function, in words."""
    several: bool = False
    """It may be one object that holds several, each under its file's name."""


RESULTS: dict[str, Written] = {
    "artefact": Written(Artefact, "stridewise check artefact, stridewise.check_export()"),
    "compiled": Written(
        Compiled, "stridewise trace --compiled, stridewise.explain_compile(); in a report, what --compiled adds", True
    ),
    "conformance": Written(Conformance, "stridewise check op, stridewise.check_op()"),
    "diff": Written(Diff, "stridewise diff, stridewise.diff()"),
    "doctor": Written(Doctor, "stridewise doctor, stridewise.doctor()"),
    "fleet": Written(Fleet, "stridewise trace with several files, stridewise.analyze_fleet()"),
    "lab": Written(Lab, "stridewise lab, stridewise.run_lab()"),
    "lab-comparison": Written(LabComparison, "stridewise lab --compare, stridewise.compare_labs()"),
    "lint": Written(LintRun, "stridewise lint, stridewise.lint()"),
    "lint-statistics": Written(LintStatistics, "stridewise lint --statistics"),
    "loader": Written(LoaderReport, "stridewise.inspect_loader()"),
    "preflight": Written(Preflight, "stridewise check model, stridewise.preflight()"),
    "repair": Written(Repair, "stridewise fix, stridewise.fix()"),
    "report": Written(Report, "stridewise run, trace and demo, stridewise.analyze()"),
}
"""Every result that is written as JSON, by the name that `stridewise schema` takes."""

_TABLES = frozenset(get_args(Table)) - {"kernels"}
"""Fields of a report that are there only when somebody asks for them."""
_WORDS = {"None": "null", "True": "true", "False": "false"}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of one kind of result, a key of `RESULTS`.

    What has no default is required, but for tables that are left out unless asked for. Fields that later versions add
    are allowed: `schema_version` changes when one is renamed, removed, or changes its meaning.
    """
    written = RESULTS[name]
    (whole,), definitions = msgspec.json.schema_components([written.type], ref_template="#/$defs/{name}")
    by_name = {type.__name__: type for type in _structs(written.type)}
    for key, fields in definitions.items():
        _describe(fields, by_name[key])
    top = definitions[written.type.__name__]
    if written.type is Report:
        top["required"] = [field for field in top["required"] if field not in _TABLES]
    if written.several:
        whole = {"anyOf": [whole, {"type": "object", "additionalProperties": whole, "not": {"required": ["findings"]}}]}
    made = {
        "$schema": DIALECT,
        "$id": f"urn:stridewise:schema:{SCHEMA_VERSION}:{name}",
        "title": f"stridewise {name}",
        "description": f"What {written.by.split('; ')[0]} write{'s' if ',' not in written.by else ''} as JSON.",
        **whole,
        "$defs": dict(sorted(definitions.items())),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))  # defaults are tuples
    return plain


def _describe(fields: dict[str, Any], type: type[Struct]) -> None:
    """Put in what the fields' docstrings say."""
    docs = field_docs(type)
    for field, value in fields.get("properties", {}).items():
        if field == "schema_version":
            fields["properties"][field] = {"const": SCHEMA_VERSION}
        elif field in docs:
            # Beside a reference a description would be read as part of it by old tools: 2020-12 allows it.
            value["description"] = re.sub(r"\b(None|True|False)\b", lambda match: _WORDS[match[0]], docs[field])


def _structs(type: type[Struct]) -> Iterator[type[Struct]]:
    """A struct and all that its fields are made of."""
    seen: set[Any] = set()
    waiting = [msgspec.inspect.type_info(type)]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls not in seen:
                seen.add(kind.cls)
                yield kind.cls
                waiting += [field.type for field in kind.fields]
            continue
        for name in kind.__struct_fields__:  # of lists, unions and mappings
            value = getattr(kind, name)
            parts = value if isinstance(value, tuple) else (value,)
            waiting += [part for part in parts if isinstance(part, msgspec.inspect.Type)]


@functools.cache
def field_docs(type: type[Struct]) -> dict[str, str]:
    """The docstrings of a struct's fields, its bases' too; none where there is no source, as in a frozen program."""
    docs: dict[str, str] = {}
    for base in reversed(type.__mro__):
        if not base.__module__.startswith("stridewise"):
            continue
        try:
            tree = ast.parse(dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        body = tree.body[0]
        assert isinstance(body, ast.ClassDef)
        for field, said in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(said, ast.Expr)
                and isinstance(said.value, ast.Constant)
                and isinstance(said.value.value, str)
            ):
                docs[field.target.id] = " ".join(inspect.cleandoc(said.value.value).split())
    return docs
