"""Two that answered the same pairs: how often they agree, and who errs by the other's word.

With a = both yes, b = only the first, c = only the second, d = neither, n = a + b + c + d:

    agreement p_o = (a + d) / n        chance p_e = ((a + b)(a + c) + (c + d)(b + d)) / n^2
    Cohen's kappa = (p_o - p_e) / (1 - p_e)                    (Cohen 1960)
    precision = a / (a + c), recall = a / (a + b)              the second measured by the first
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from rankhouse.labels.kappa import cohens_kappa
from rankhouse.labels.votes import ASKED, JUDGE, TEACHER, TRUTH, YES, Counts, Panel


class Confusion(NamedTuple):
    """Two that answered the same pairs.

    Attributes:
        first: Name of the one that counts as right.
        second: Name of the one measured by it.
        both: Both say yes.
        only_first: The second misses it.
        only_second: The second adds it.
        neither: Both say no.
    """

    first: str
    second: str
    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def pairs(self) -> int:
        """How many pairs both were asked about."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def agreement(self) -> float:
        """Share of pairs with the same answer; NaN without pairs."""
        return _share(self.both + self.neither, self.pairs)

    @property
    def kappa(self) -> float:
        """Cohen's kappa; NaN where chance alone agrees fully, as when both always say yes."""
        answers = ((1, 1), (1, 0), (0, 1), (0, 0))
        return cohens_kappa(dict(zip(answers, self[2:], strict=True)))

    @property
    def precision(self) -> float:
        """Share of the second's yes that the first confirms; NaN where it never says yes."""
        return _share(self.both, self.both + self.only_second)

    @property
    def recall(self) -> float:
        """Share of the first's yes that the second finds; NaN where the first never says yes."""
        return _share(self.both, self.both + self.only_first)


def confusions(panel: Panel, counts: Counts) -> Iterator[Confusion]:
    """Stream judge against teacher; truth against judge, teacher and rule; as far as there are such.

    Args:
        panel: Who was asked.
        counts: How many pairs have each mark.
    """
    if panel.judge and panel.teacher:
        yield _confusion(counts, ("judge", JUDGE), ("teacher", TEACHER), ASKED)
    if panel.truth and panel.judge:
        yield _confusion(counts, ("truth", TRUTH), ("judge", JUDGE))
    if panel.truth and panel.teacher:
        yield _confusion(counts, ("truth", TRUTH), ("teacher", TEACHER), ASKED)
    if panel.truth:
        yield _confusion(counts, ("truth", TRUTH), ("rule", YES))


def _confusion(counts: Counts, first: tuple[str, int], second: tuple[str, int], among: int = 0) -> Confusion:
    (name_1, bit_1), (name_2, bit_2) = first, second
    return Confusion(
        name_1,
        name_2,
        counts.having(among | bit_1 | bit_2),
        counts.having(among | bit_1, bit_2),
        counts.having(among | bit_2, bit_1),
        counts.having(among, bit_1 | bit_2),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
