"""What a collective was given, in the words of the program that calls it."""

from __future__ import annotations

import ast
from typing import Any

from stridewise.checks.ranks.collectives import Collective, Place, role_of
from stridewise.checks.rules.sw201 import Handed
from stridewise.checks.words import layout_of
from stridewise.findings import Site

_KEYWORDS = frozenset(("tensor", "output", "input", "output_tensor", "input_tensor"))


def handed(
    op: str, collective: Collective, tensors: list[tuple[Place, Any]], is_root: bool, site: Site
) -> tuple[Handed, ...]:
    """Each tensor with its layout, except those that have none."""
    found = []
    for place, tensor in tensors:
        given = layout_of(tensor)
        if given is None:
            continue
        operand = collective.operands[place.position]
        several = sum(other.position == place.position for other, _ in tensors) > 1
        number = f" {place.path[-1]}" if several and place.path else ""
        what = {"input": "input", "output": "output", "both": "tensor"}[operand.role]
        source = None if several else _source(op, operand.role, place, site)
        role = role_of(operand, collective, is_root)
        found.append(Handed(f"{what}{number}", given, role, operand.treatment, source))
    return tuple(found)


def _source(op: str, role: str, place: Place, site: Site) -> str | None:
    """The expression that stands in the call for a tensor that is an argument by itself."""
    if len(place.path) > 1 or op in ("alltoall", "allreduce_coalesced") or not site.expression:
        return None
    try:
        tree = ast.parse(site.expression.strip(), mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(tree, ast.Call) or any(isinstance(each, ast.Starred) for each in tree.args):
        return None
    name = getattr(tree.func, "attr", getattr(tree.func, "id", ""))
    # The function takes the input first, the method takes it last.
    position = 1 - place.position if name == "gather" and op == "gather" else place.position
    if position < len(tree.args):
        node = tree.args[position]
    else:
        named = [each.value for each in tree.keywords if each.arg in _KEYWORDS and _fits(each.arg, role)]
        if len(named) != 1:
            return None
        node = named[0]
    if isinstance(node, ast.List) and len(node.elts) == 1:
        node = node.elts[0]
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)) else None


def _fits(keyword: str | None, role: str) -> bool:
    return keyword is not None and (keyword == "tensor" or keyword.startswith(role))
