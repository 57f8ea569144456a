"""Which non-relevant pairs become negatives: none, all, or n at random for each relevant one.

QA-DocRank samples as many non-relevant pairs as it has relevant ones and leaves open from where. Here each
pair of the pool draws a lot from (seed, query, document, passage), and the smallest lots win: the choice does
not depend on the order of work, on chunks, or on what else is in the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from rankhouse.core.arguments import check_whole
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import write

Scope = Literal["query", "collection", "document"]


@dataclass(frozen=True)
class Negatives:
    """How negatives are chosen; make one with :data:`NEGATIVES`.

    Attributes:
        kind: "none", "all" or "random".
        per: How many for each relevant pair.
        depths: First and last place in the run (from 1) that they may come from; None is the end.
        scope: "query": as many as the query has relevant pairs, times ``per``. "collection": as many as there
            are relevant pairs in all, from any query. "document": as many as the document has relevant pairs,
            times ``per``, from that document: what a teacher of passages has to tell apart.
        seed: Changes the draw.
    """

    kind: Literal["none", "all", "random"]
    per: int = 1
    depths: tuple[int, int | None] = (1, None)
    scope: Scope = "query"
    seed: int = 0

    def allows(self, rank: int) -> bool:
        """Return whether a document at this place of the run may give negatives."""
        first, last = self.depths
        return self.kind != "none" and first <= rank and (last is None or rank <= last)

    def __str__(self) -> str:
        depths = {} if self.depths == (1, None) else {"depths": self.depths}
        if self.kind != "random":
            return write(self.kind, **depths)
        scope: dict[str, object] = {} if self.scope == "query" else {"scope": self.scope}
        return write("random", self.per, **depths, **scope, **({"seed": self.seed} if self.seed else {}))


def none() -> Negatives:
    """Write relevant pairs only, as a loss with in-batch negatives wants them."""
    return Negatives("none")


def every(depths: tuple[int, int | None] = (1, None)) -> Negatives:
    """Write all non-relevant pairs of these depths, as hard pairs for a cross-encoder."""
    return Negatives("all", depths=_depths(depths))


def random(
    per: int = 1,
    depths: tuple[int, int | None] = (1, None),
    scope: Scope = "query",
    seed: int = 0,
) -> Negatives:
    """Draw ``per`` negatives for each relevant pair.

    Args:
        depths: First and last place in the run that they may come from, from 1.
        scope: "query", "collection" or "document".

    Raises:
        WrongUse: A number below 1, depths that are no range, or another scope.
    """
    check_whole("random", 1, per=per)
    check_whole("random", seed=seed)
    if scope not in get_args(Scope):
        raise WrongUse(f'random: scope={scope!r}; choose "query", "collection" or "document"')
    return Negatives("random", per, _depths(depths), scope, seed=seed)


NEGATIVES: dict[str, Callable[..., Negatives]] = {"none": none, "all": every, "random": random}
"""The table of names, for :func:`rankhouse.core.notation.make`."""


def _depths(depths: object) -> tuple[int, int | None]:
    match depths:
        case (int(first), None) if first >= 1:
            return first, None
        case (int(first), int(last)) if 1 <= first <= last:
            return first, last
    raise WrongUse(
        f"depths={depths!r}, but it is the first and the last place in the run, from 1, like (10, 100); "
        "(10, None) goes to the end"
    )
