"""What `doctor` found: what works on this machine, and what to install for the rest."""

from typing import Literal

from msgspec import Struct

from stridewise.results.schema import SCHEMA_VERSION

Health = Literal["works", "fails", "absent"]
"""`absent`: this machine, or this version of torch, does not have it, which is no fault."""


class Ability(Struct, frozen=True):
    """One thing that stridewise needs of the machine, tried in a process of its own."""

    name: str
    """`recording`, `all threads`, `compile`, …"""
    health: Health
    what: str
    """What was seen, or why it does not work, in a sentence."""
    needed_for: str
    """What does not work without it."""
    core: bool = False
    """Without it nothing can be recorded."""
    advice: str | None = None
    """What to do about it."""


class Extra(Struct, frozen=True):
    """An optional part of stridewise, and the packages that it takes."""

    name: str
    installed: bool
    """All of its packages are there, and new enough."""
    versions: dict[str, str | None]
    """Of each package; None for one that is not installed."""
    install: str
    """The command that installs what is missing."""


class Doctor(Struct, frozen=True):
    """What works on this machine."""

    stridewise: str
    """Version."""
    python: str
    """Version."""
    executable: str
    torch: str | None
    """Version; None if it is not installed."""
    build: str | None
    """What torch was built for: `CPU`, `CUDA 12.8`, `ROCm 6.3`, `CPU and MPS`; None if it could not be imported."""
    abilities: tuple[Ability, ...]
    extras: tuple[Extra, ...]
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def ok(self) -> bool:
        """What recording needs works."""
        return self.torch is not None and all(row.health == "works" for row in self.abilities if row.core)
