"""What can be chosen about an explanation, and what every method of explanation looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.explanation.answer import Explanation

UNITS = {"": "", "sentence": "sentence", "word": "word"}


@dataclass(frozen=True)
class ExplainOptions:
    """How a score is explained.

    Attributes:
        method: "removal", "shapley" or "gradients"; "": the one that suits the ranker's family.
        unit: What is left out at a time, "sentence" or "word"; "": what suits ranker and text.
        passes: Most pairs scored for one set of parts; where a text has more units, neighbours are joined.
        steps: Steps of integrated gradients; the more, the smaller their gap.

    Raises:
        WrongUse: An unknown unit, or numbers below their least.
    """

    method: str = ""
    unit: str = ""
    passes: int = 1024
    steps: int = 32

    def __post_init__(self) -> None:
        """Refuse an unknown unit and numbers that leave nothing to compute."""
        choose(self.unit, UNITS, "unit of an explanation")
        for name, least in (("passes", 2), ("steps", 1)):
            if getattr(self, name) < least:
                raise WrongUse(f"{name}={getattr(self, name)}: give {least} or more")


Method = Callable[[Ranker, Pair, ExplainOptions], Explanation]
"""One way to explain the score of one passage."""
