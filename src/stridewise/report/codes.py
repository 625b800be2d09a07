"""Every code that a finding can have, with what it means, whichever part of stridewise finds it."""

import functools

from stridewise.codes import Doc


@functools.cache
def all_docs() -> tuple[Doc, ...]:
    """What each code means, in the order of codes."""
    from stridewise.analysis.rules import all_rules
    from stridewise.repair.rules import all_rules as all_trial_rules

    return tuple(sorted((*all_rules(), *all_trial_rules()), key=lambda doc: doc.code))
