"""Judge against teacher: what they agree on, who errs where truth is known, and what a rule changes.

With a = both yes, b = only the first, c = only the second, d = neither, n = a + b + c + d:

    agreement p_o = (a + d) / n        chance p_e = ((a + b)(a + c) + (c + d)(b + d)) / n^2
    Cohen's kappa = (p_o - p_e) / (1 - p_e)                    (Cohen 1960)
    precision = a / (a + c), recall = a / (a + b)              the second measured by the first

With more grades, p_ij the share of pairs graded i by the first and j by the second, w_ij what such a pair
counts as disagreement: kappa = 1 - sum(w_ij p_ij) / sum(w_ij p_i. p_.j). w_ij = 1 for i != j gives Cohen's
kappa, w_ij = (i - j)^2 the weighted one (Cohen 1968), in which the next grade is a small disagreement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.fitted_scales import BINS, Reliability, bin_of, bin_sums
from rankhouse.core.nouns import Pair
from rankhouse.core.scores import Doubles, is_probable, probabilities
from rankhouse.labels.leaf_rules import TeacherRule
from rankhouse.labels.votes import ASKED, JUDGE, TEACHER, TRUTH, YES, Counts, Panel, Votes

_HISTOGRAM_BINS: Final = 20


class Histogram(NamedTuple):
    """The teacher's scores of the pairs it was asked about.

    Attributes:
        scale: "probability", or the raw scale of the scores.
        edges: (bins + 1,) borders.
        yes: (bins,) pairs that the reference calls relevant.
        no: (bins,) the others.
        reference: Who tells them apart: "truth", "judge", or "" where nobody does and all are in ``no``.
        threshold: The least score of the teacher's yes.
        lowest: The lowest score it gave, on this scale; NaN where it was never asked.
    """

    scale: str
    edges: tuple[float, ...]
    yes: tuple[int, ...]
    no: tuple[int, ...]
    reference: str
    threshold: float
    lowest: float
    highest: float


def _blocks(
    teacher: TeacherRule, votes: Votes, reference: str
) -> Iterator[tuple[Doubles, NDArray[np.bool_]]]:
    """Stream what the teacher read: probabilities or raw scores (m,), and the reference's yes (m,)."""
    bit = {"truth": TRUTH, "judge": JUDGE, "": 0}[reference]
    for block in votes.blocks():
        asked = (block.marks & ASKED) > 0
        values = probabilities(np.asarray(block.scores[asked]), teacher.score_scale)
        yield values, (block.marks[asked] & bit) > 0


def histogram(teacher: TeacherRule, votes: Votes, reference: str) -> Histogram:
    """Count a teacher's scores by their height."""
    ends = [(float(v.min()), float(v.max())) for v, _ in _blocks(teacher, votes, reference) if len(v)]
    lowest = min((low for low, _ in ends), default=math.nan)
    highest = max((high for _, high in ends), default=math.nan)
    low, high = (0.0, 1.0) if is_probable(teacher.score_scale) else _finite(lowest, highest)
    counts = np.zeros((2, _HISTOGRAM_BINS), np.int64)
    for values, yes in _blocks(teacher, votes, reference):
        places = bin_of(values, low, high, _HISTOGRAM_BINS)
        for row, chosen in enumerate((~yes, yes)):
            counts[row] += np.bincount(places[chosen], minlength=_HISTOGRAM_BINS)
    return Histogram(
        "probability" if is_probable(teacher.score_scale) else teacher.score_scale,
        tuple(np.linspace(low, high, _HISTOGRAM_BINS + 1).tolist()),
        tuple(counts[1].tolist()),
        tuple(counts[0].tolist()),
        reference=reference,
        threshold=teacher.threshold,
        lowest=lowest,
        highest=highest,
    )


def _finite(lowest: float, highest: float) -> tuple[float, float]:
    """Return borders for raw scores; infinite ones go into the outer bins of what lies within +-1e6."""
    low = max(-1e6, lowest) if not math.isnan(lowest) else 0.0
    high = min(1e6, highest) if not math.isnan(highest) else 1.0
    return (low, high) if high > low else (low, low + 1.0)


def calibration(teacher: TeacherRule, votes: Votes, reference: str) -> Reliability | None:
    """Compare a teacher's probabilities with what came true; None without any, or for pairs of one kind."""
    if not is_probable(teacher.score_scale) or not reference:
        return None
    sums = sum((bin_sums(*block) for block in _blocks(teacher, votes, reference)), np.zeros((3, BINS)))
    pairs, hits = sums[:2].sum(1)
    # all yes or all no: nothing to come true
    return Reliability.of(sums, reference) if 0 < hits < pairs else None


def cohens_kappa(counts: Mapping[tuple[int, int], int], power: int = 0) -> float:
    """Return kappa of counted pairs of grades; NaN where chance leaves no disagreement."""
    n = sum(counts.values())
    rows, columns = Counter[int](), Counter[int]()
    for (a, b), count in counts.items():
        rows[a] += count
        columns[b] += count
    seen = sum(abs(a - b) ** power * count for (a, b), count in counts.items() if a != b)
    chance = sum(abs(a - b) ** power * x * y for a, x in rows.items() for b, y in columns.items() if a != b)
    return (chance - seen * n) / chance if chance else math.nan  # whole numbers up to the division


class Confusion(NamedTuple):
    """Two that answered the same pairs.

    Attributes:
        first: Name of the one that counts as right.
        second: Name of the one measured by it.
        only_first: The second misses it.
        only_second: The second adds it.
    """

    first: str
    second: str
    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def pairs(self) -> int:
        """Number of pairs that both were asked about."""
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
    """Stream judge against teacher; truth against judge, teacher and rule; as far as there are such."""
    known = {"judge": panel.judge, "teacher": panel.teacher, "truth": panel.truth, "rule": panel.rule}
    bits = {"judge": JUDGE, "teacher": TEACHER, "truth": TRUTH, "rule": YES}
    for first, second in (("judge", "teacher"), ("truth", "judge"), ("truth", "teacher"), ("truth", "rule")):
        if known[first] and known[second]:
            one, other, among = bits[first], bits[second], ASKED if second == "teacher" else 0
            both, only_first = counts.having(among | one | other), counts.having(among | one, other)
            only_second, neither = counts.having(among | other, one), counts.having(among, one | other)
            yield Confusion(first, second, both, only_first, only_second=only_second, neither=neither)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


class Change(NamedTuple):
    """A pair that the rule labels otherwise than the judge does.

    Attributes:
        kind: "removed" or "added".
        score: The teacher's, NaN where it was not asked.
        truth: Its true label; None where that is not known.
    """

    kind: str
    pair: Pair
    score: float
    truth: bool | None


class Agreement(NamedTuple):
    """All that was found.

    Attributes:
        judge: In its notation; "" where there is none.
        judged: How many the judge calls relevant.
        asked: How many the teacher read.
        accepted: How many of these it says yes to.
        confusions: Judge against teacher; truth against judge, teacher and rule; as far as there are such.
        positives: Query id -> pairs that the rule calls relevant.
        histogram: The teacher's scores; None without a teacher.
        calibration: None unless the teacher gives probabilities and was asked about both kinds of pairs.
        removed: How many pairs the judge calls relevant and the rule does not.
        added: How many the rule calls relevant and the judge does not.
        changes: The clearest of both, with their texts: removed ones with the lowest scores, added ones with
            the highest.
    """

    rule: str
    judge: str
    teacher: str
    truth: str
    pairs: int
    judged: int
    asked: int
    accepted: int
    confusions: tuple[Confusion, ...]
    positives: Mapping[str, int]
    histogram: Histogram | None
    calibration: Reliability | None
    removed: int
    added: int
    changes: tuple[Change, ...]

    @property
    def relevant(self) -> int:
        """Number of pairs that the rule calls relevant."""
        return sum(self.positives.values())

    @property
    def within_judge(self) -> bool:
        """Return whether the teacher read only what the judge calls relevant.

        Then a precision of 1 and a kappa of 0 say nothing: what it would add elsewhere is not known.
        """
        both = [c for c in self.confusions if (c.first, c.second) == ("judge", "teacher")]
        return self.asked < self.pairs and any(not c.only_second + c.neither for c in both)

    def rates(self, compared: Confusion) -> dict[str, float]:
        """Return the rates of one comparison by name; NaN for those that ``within_judge`` leaves open."""
        rates = {name: getattr(compared, name) for name in ("agreement", "kappa", "precision", "recall")}
        if self.within_judge and compared.first == "judge":
            rates |= {"kappa": math.nan, "precision": math.nan}
        return rates

    @property
    def without(self) -> list[str]:
        """The queries left without any relevant pair."""
        return [query_id for query_id, count in self.positives.items() if not count]


def summarise(
    panel: Panel,
    votes: Votes,
    positives: Mapping[str, int],
    texts: Callable[[list[int]], list[Pair]],
    most: int = 25,
) -> Agreement:
    """Compare what a panel said of n pairs; reads the votes block by block, so they may lie on disk."""
    counts, teacher = votes.counts(), panel.teacher
    changes = [
        Change(kind, pair, score, bool(mark & TRUTH) if panel.truth else None)
        for kind in ("removed", "added")
        if panel.judge is not None
        for pair, score, mark in _clearest(kind, votes, texts, most)
    ]
    reference = "truth" if panel.truth else "judge" if panel.judge else ""
    return Agreement(
        rule=str(panel.rule),
        judge=str(panel.judge or ""),
        teacher=str(teacher or ""),
        truth=str(panel.truth or ""),
        pairs=len(votes.marks),
        judged=counts.having(JUDGE),
        asked=counts.having(ASKED),
        accepted=counts.having(TEACHER),
        confusions=tuple(confusions(panel, counts)),
        positives=positives,
        histogram=None if teacher is None else histogram(teacher, votes, reference),
        calibration=None if teacher is None else calibration(teacher, votes, reference),
        removed=counts.having(JUDGE, lacking=YES) if panel.judge else 0,
        added=counts.having(YES, lacking=JUDGE) if panel.judge else 0,
        changes=tuple(changes),
    )


def _clearest(
    kind: str, votes: Votes, texts: Callable[[list[int]], list[Pair]], most: int
) -> Iterator[tuple[Pair, float, int]]:
    """Return the pairs that judge and rule differ on, clearest first, with the score and the mark of each."""
    wanted, sign = (JUDGE, 1) if kind == "removed" else (YES, -1)
    places, keys, start = np.empty(0, np.int64), np.empty(0, np.float32), 0
    for block in votes.blocks():
        rows = np.flatnonzero((block.marks & (JUDGE | YES)) == wanted)
        places = np.concatenate([places, start + rows])
        keys = np.concatenate([keys, sign * block.scores[rows]])
        order = np.argsort(keys, kind="stable")[:most]  # NaN, not asked, comes last
        places, keys, start = places[order], keys[order], start + len(block.marks)
    chosen = places.tolist()
    for place, pair in zip(chosen, texts(chosen), strict=True):
        yield pair, float(votes.scores[place]), int(votes.marks[place])
