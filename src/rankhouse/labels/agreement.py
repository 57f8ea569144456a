"""Judge against teacher: what they agree on, who errs where truth is known, and what a rule changes.

With a = both yes, b = only the first, c = only the second, d = neither, n = a + b + c + d:

    agreement p_o = (a + d) / n        chance p_e = ((a + b)(a + c) + (c + d)(b + d)) / n^2
    Cohen's kappa = (p_o - p_e) / (1 - p_e)                    (Cohen 1960)
    precision = a / (a + c), recall = a / (a + b)              the second measured by the first
    expected calibration error = sum over bins of n_bin / n * |mean probability - share of yes|
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.core.scores import PROBABLE, probabilities
from rankhouse.labels.rules import Taught
from rankhouse.labels.votes import ASKED, JUDGE, TEACHER, TRUTH, YES, Marks, Parties, mark

Counts = NDArray[np.int64]

BINS: Final = 20
_CALIBRATION_BINS: Final = 10
_BLOCK: Final = 1 << 18  # pairs looked at together: bounds the memory


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
        n, yes_1, yes_2 = self.pairs, self.both + self.only_first, self.both + self.only_second
        chance = yes_1 * yes_2 + (n - yes_1) * (n - yes_2)  # times n squared, to stay with whole numbers
        if not n or chance == n * n:
            return math.nan
        return ((self.both + self.neither) * n - chance) / (n * n - chance)

    @property
    def precision(self) -> float:
        """Share of the second's yes that the first confirms; NaN where it never says yes."""
        return _share(self.both, self.both + self.only_second)

    @property
    def recall(self) -> float:
        """Share of the first's yes that the second finds; NaN where the first never says yes."""
        return _share(self.both, self.both + self.only_first)


class Histogram(NamedTuple):
    """The teacher's scores of the pairs it was asked about.

    Attributes:
        scale: "probability", or the raw scale of the scores.
        edges: (bins + 1,) borders.
        yes: (bins,) pairs that the reference calls relevant.
        no: (bins,) the others.
        reference: Who tells them apart: "truth", "judge", or "" where nobody does and all are in ``no``.
        threshold: Where the teacher's yes begins.
        lowest: The lowest score it gave, on this scale; NaN where it was never asked.
        highest: The highest.
    """

    scale: str
    edges: tuple[float, ...]
    yes: tuple[int, ...]
    no: tuple[int, ...]
    reference: str
    threshold: float
    lowest: float
    highest: float


class Calibration(NamedTuple):
    """Whether the teacher's probabilities come true.

    Attributes:
        reference: By whose word: "truth" or "judge".
        pairs: (bins,) how many pairs lie in each tenth.
        predicted: (bins,) their mean probability; NaN without pairs.
        observed: (bins,) their share of yes; NaN without pairs.
    """

    reference: str
    pairs: tuple[int, ...]
    predicted: tuple[float, ...]
    observed: tuple[float, ...]

    @property
    def error(self) -> float:
        """Expected calibration error, from 0 to 1."""
        gaps = [
            n * abs(p - o) for n, p, o in zip(self.pairs, self.predicted, self.observed, strict=True) if n
        ]
        return math.fsum(gaps) / sum(self.pairs)


class Change(NamedTuple):
    """A pair that the rule labels otherwise than the judge does.

    Attributes:
        kind: "removed" or "added".
        pair: With its texts.
        score: The teacher's, NaN where it was not asked.
        truth: What is true of it; None where that is not known.
    """

    kind: str
    pair: Pair
    score: float
    truth: bool | None


class Agreement(NamedTuple):
    """All that was found.

    Attributes:
        rule: In its notation.
        judge: In its notation; "" where there is none.
        teacher: Likewise.
        truth: Likewise.
        pairs: How many there were.
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
    calibration: Calibration | None
    removed: int
    added: int
    changes: tuple[Change, ...]

    @property
    def relevant(self) -> int:
        """How many pairs the rule calls relevant."""
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


def agree(who: Parties, pairs: Sequence[Pair], *, most: int = 25, chunk: int = 4096) -> Agreement:
    """Ask all parties about pairs in memory, and compare what they say.

    Args:
        who: The rule and those compared; see :func:`rankhouse.labels.votes.parties`.
        pairs: In any order.
        most: How many removed, and how many added pairs to show.
        chunk: How many to ask about at once.
    """
    parts = [mark(who, pairs[start : start + chunk]) for start in range(0, len(pairs), chunk)]
    marks = np.concatenate([np.empty(0, np.uint8), *(part[0] for part in parts)])
    scores = np.concatenate([np.empty(0, np.float32), *(part[1] for part in parts)])
    positives: dict[str, int] = {}
    for pair, one in zip(pairs, marks.tolist(), strict=True):
        positives[pair.query.id] = positives.get(pair.query.id, 0) + (one & YES)
    return summarise(who, (marks, scores), positives, lambda places: [pairs[i] for i in places], most)


def summarise(
    who: Parties,
    said: tuple[Marks, FloatArray],
    positives: Mapping[str, int],
    texts: Callable[[list[int]], list[Pair]],
    most: int = 25,
) -> Agreement:
    """Compare what was said of n pairs; reads marks and scores block by block, so both may lie on disk.

    Args:
        who: Who said it.
        said: Marks (n,) and the teacher's scores (n,).
        positives: Query id -> pairs that the rule calls relevant.
        texts: Gives the pairs at some places.
        most: How many removed, and how many added pairs to show.
    """
    marks = said[0]
    counts = np.zeros(256, np.int64)
    for start in range(0, len(marks), _BLOCK):
        counts += np.bincount(marks[start : start + _BLOCK], minlength=256)
    changes = [
        Change(kind, pair, score, bool(one & TRUTH) if who.truth else None)
        for kind in ("removed", "added")
        if who.judge is not None
        for pair, score, one in _clearest(kind, said, texts, most)
    ]
    reference = "truth" if who.truth else "judge" if who.judge else ""
    return Agreement(
        str(who.rule),
        str(who.judge or ""),
        str(who.teacher or ""),
        str(who.truth or ""),
        len(marks),
        _count(counts, JUDGE),
        _count(counts, ASKED),
        _count(counts, TEACHER),
        tuple(_confusions(who, counts)),
        positives,
        None if who.teacher is None else _histogram(who.teacher, said, reference),
        None if who.teacher is None else _calibration(who.teacher, said, reference),
        _count(counts, JUDGE, YES) if who.judge else 0,
        _count(counts, YES, JUDGE) if who.judge else 0,
        tuple(changes),
    )


def _count(counts: Counts, having: int, lacking: int = 0) -> int:
    """Count pairs whose marks have all of these bits and none of those: counts (256,) of each mark."""
    kinds = np.arange(256)
    return int(counts[((kinds & having) == having) & ((kinds & lacking) == 0)].sum())


def _confusions(who: Parties, counts: Counts) -> Iterator[Confusion]:
    if who.judge and who.teacher:
        yield _confusion(counts, ("judge", JUDGE), ("teacher", TEACHER), ASKED)
    if who.truth and who.judge:
        yield _confusion(counts, ("truth", TRUTH), ("judge", JUDGE))
    if who.truth and who.teacher:
        yield _confusion(counts, ("truth", TRUTH), ("teacher", TEACHER), ASKED)
    if who.truth:
        yield _confusion(counts, ("truth", TRUTH), ("rule", YES))


def _confusion(counts: Counts, first: tuple[str, int], second: tuple[str, int], among: int = 0) -> Confusion:
    (name_1, bit_1), (name_2, bit_2) = first, second
    return Confusion(
        name_1,
        name_2,
        _count(counts, among | bit_1 | bit_2),
        _count(counts, among | bit_1, bit_2),
        _count(counts, among | bit_2, bit_1),
        _count(counts, among, bit_1 | bit_2),
    )


def _clearest(
    kind: str, said: tuple[Marks, FloatArray], texts: Callable[[list[int]], list[Pair]], most: int
) -> Iterator[tuple[Pair, float, int]]:
    """Return the pairs that judge and rule differ on, clearest first, with the score and the mark of each."""
    marks, scores = said
    wanted, sign = (JUDGE, 1) if kind == "removed" else (YES, -1)
    places, keys = np.empty(0, np.int64), np.empty(0, np.float32)
    for start in range(0, len(marks), _BLOCK):
        block = marks[start : start + _BLOCK]
        found = np.flatnonzero((block & (JUDGE | YES)) == wanted)
        places = np.concatenate([places, start + found])
        keys = np.concatenate([keys, sign * scores[start : start + _BLOCK][found]])
        order = np.argsort(keys, kind="stable")[:most]  # NaN, not asked, comes last
        places, keys = places[order], keys[order]
    chosen = places.tolist()
    for place, pair in zip(chosen, texts(chosen), strict=True):
        yield pair, float(scores[place]), int(marks[place])


def _blocks(
    teacher: Taught, said: tuple[Marks, FloatArray], reference: str
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Stream what the teacher read: probabilities or raw scores (m,), and the reference's yes (m,)."""
    marks, scores = said
    bit = {"truth": TRUTH, "judge": JUDGE, "": 0}[reference]
    for start in range(0, len(marks), _BLOCK):
        block = marks[start : start + _BLOCK]
        asked = (block & ASKED) > 0
        values = probabilities(np.asarray(scores[start : start + _BLOCK][asked]), teacher.said)
        yield values, (block[asked] & bit) > 0


def _histogram(teacher: Taught, said: tuple[Marks, FloatArray], reference: str) -> Histogram:
    lowest = min((float(v.min()) for v, _ in _blocks(teacher, said, reference) if len(v)), default=math.nan)
    highest = max((float(v.max()) for v, _ in _blocks(teacher, said, reference) if len(v)), default=math.nan)
    low, high = (0.0, 1.0) if teacher.said in PROBABLE else _finite(lowest, highest)
    counts = np.zeros((2, BINS), np.int64)
    for values, yes in _blocks(teacher, said, reference):
        places = _bin(values, low, high, BINS)
        for row, chosen in enumerate((~yes, yes)):
            counts[row] += np.bincount(places[chosen], minlength=BINS)
    return Histogram(
        "probability" if teacher.said in PROBABLE else teacher.said,
        tuple(np.linspace(low, high, BINS + 1).tolist()),
        tuple(counts[1].tolist()),
        tuple(counts[0].tolist()),
        reference,
        teacher.threshold,
        lowest,
        highest,
    )


def _finite(lowest: float, highest: float) -> tuple[float, float]:
    """Return borders for raw scores; infinite ones go into the outer bins of what lies within +-1e6."""
    low = max(-1e6, lowest) if not math.isnan(lowest) else 0.0
    high = min(1e6, highest) if not math.isnan(highest) else 1.0
    return (low, high) if high > low else (low, low + 1.0)


def _calibration(teacher: Taught, said: tuple[Marks, FloatArray], reference: str) -> Calibration | None:
    if teacher.said not in PROBABLE or not reference:
        return None
    pairs, hits, sums = (np.zeros(_CALIBRATION_BINS) for _ in range(3))
    for values, yes in _blocks(teacher, said, reference):
        places = _bin(values, 0.0, 1.0, _CALIBRATION_BINS)
        pairs += np.bincount(places, minlength=_CALIBRATION_BINS)
        hits += np.bincount(places[yes], minlength=_CALIBRATION_BINS)
        sums += np.bincount(places, values, _CALIBRATION_BINS)
    if not 0 < hits.sum() < pairs.sum():
        return None  # all yes or all no: nothing to come true
    with np.errstate(invalid="ignore"):
        return Calibration(
            reference,
            tuple(pairs.astype(np.int64).tolist()),
            tuple((sums / pairs).tolist()),
            tuple((hits / pairs).tolist()),
        )


def _bin(values: NDArray[np.float64], low: float, high: float, bins: int) -> NDArray[np.int64]:
    """Number the bin of each value; what lies outside goes into the first or the last."""
    with np.errstate(invalid="ignore", over="ignore"):
        places = np.floor(np.nan_to_num((values - low) / (high - low) * bins))
    return np.clip(places, 0, bins - 1).astype(np.int64)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
