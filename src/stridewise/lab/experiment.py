"""What an experiment is: claims, a way to test them, and sizes. No torch.

One file under `experiments` each, which defines `EXPERIMENT`: `linear_strides.py` is one that counts,
`bmm_transposed.py` one that measures times.

Its `run` makes operands, measures with a `Bench`, and makes at least one prediction for each of its claims. A
prediction says what is seen if the claim is true; if the claim is wrong it does not come true. An operator that refuses
an operand (RuntimeError) is something seen: `Bench.compare` and `tried` keep it. Random numbers are the same in every
run. The words and figures of a prediction are read beside the claim, without the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct


class Claim(Struct, frozen=True):
    """Something that the article says, in a sentence of our own."""

    section: str
    """Of the article: `3.2`."""
    text: str
    """What is claimed; code in backquotes."""
    correct: str
    """The right statement, whatever this machine measures; if the claim is right, what follows from it."""


class Experiment(Struct, frozen=True):
    """Claims that are tested together."""

    name: str
    """As on the command line: lower case, words joined by hyphens."""
    title: str
    """What it is about, in a few words."""
    method: str
    """How it is tested, in a sentence or two."""
    claims: Mapping[str, Claim]
    """By number."""
    run: Callable[..., None]
    """Is given a `Bench`, and sizes by name. What it raises ends this experiment, whose claims are untested then."""
    cpu: Mapping[str, int] = {}
    """Sizes of a full run; every size is named here."""
    cuda: Mapping[str, int] = {}
    """Those that differ on a GPU, in a quick run too: on smaller tensors launches would be all that is timed there."""
    quick: Mapping[str, int] = {}
    """Those that differ in a quick run."""

    told: frozenset[str] | None = None
    """The claims that are asked for; None: all."""

    def sizes(self, device: str, *, quick: bool) -> dict[str, int]:
        """What `run` is given."""
        return {**self.cpu, **(self.quick if quick else {}), **(self.cuda if device == "cuda" else {})}
