"""The rules on recordings, one file each, in the order in which copies are charged to them."""

import functools

from stridewise.analysis.rule import Rule


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of charging: a copy goes to the first that claims it."""
    from stridewise.analysis.rules import (
        sw101,
        sw102,
        sw103,
        sw105,
        sw106,
        sw107,
        sw108,
        sw110,
        sw111,
        sw112,
        sw113,
        sw114,
    )

    order = (sw107, sw113, sw101, sw102, sw105, sw112, sw111, sw110, sw103, sw114, sw106, sw108)
    return tuple(Rule.from_module(module) for module in order)


__all__ = ["Rule", "all_rules"]
