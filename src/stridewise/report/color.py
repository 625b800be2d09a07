"""Whether a stream gets colours. Imports nothing: the command line asks before it knows what it will show."""

import os
from typing import TextIO


def wants_color(out: TextIO | None) -> bool:
    """Whether a stream is a terminal that shows colours, or somebody forces them.

    As https://no-color.org, https://force-color.org and https://bixense.com/clicolors have it: what forbids comes
    before what forces.
    """
    if out is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("CLICOLOR") != "0" and out.isatty()
