"""The threshold of a teacher, chosen on judged pairs that it has scored, and what any threshold keeps.

A threshold that is too high loses right pairs in silence: a student is then taught on the few that remain.
With n pairs, of which R are right, and a of which reach the threshold, r of them right:

    precision = r / a        recall = r / R        F1 = 2 r / (a + R)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import BadData, WrongUse, warn
from rankhouse.core.qrels import Qrels, relevant
from rankhouse.core.sameness import mismatch, warn_of_mismatch
from rankhouse.core.scores import Doubles, probabilities
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.pairs import LabelledPair
from rankhouse.labels.label_noise import distinct

Flags = NDArray[np.bool_]


class ScoredPairs(NamedTuple):
    """Pairs that a teacher scored, with what is true.

    Attributes:
        values: Probabilities where the scale has them, else scores, (n,).
        right: Whether the judgements call them relevant, (n,).
    """

    values: Doubles
    right: Flags
    scale: str


class Threshold(NamedTuple):
    """Pairs accepted at a threshold.

    Attributes:
        threshold: The least value that is accepted.
        accepted: Pairs that reach it.
        right: Those among them that are right.
        of: Right pairs in all.
    """

    threshold: float
    accepted: int
    right: int
    of: int

    @property
    def precision(self) -> float:
        """Share of the accepted pairs that are right; NaN where none is accepted."""
        return self.right / self.accepted if self.accepted else math.nan

    @property
    def recall(self) -> float:
        """Share of the right pairs that are kept."""
        return self.right / self.of

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.right / (self.accepted + self.of)


def scored_pairs(pairs: Iterable[LabelledPair], qrels: Qrels) -> ScoredPairs:
    """Take the scored pairs of PAIRS files, with judgements of their documents.

    Args:
        pairs: As ``rankhouse label --scores`` writes them; those without a score are skipped.
        qrels: What is right; what nobody judged is not.

    Raises:
        BadData: No pair has a score, or one has two; they are on different scales; all are right, or none.

    Warns:
        RankhouseWarning: A pair is given twice; pairs and judgements hardly name anything alike.
    """
    scores, right, scales = [], [], dict[str, None]()
    scored = (pair for pair in pairs if pair.score is not None)
    named: dict[str, set[str]] = {}
    for pair in distinct(scored, lambda pair: pair.score, "scores"):
        scores.append(pair.score)
        named.setdefault(pair.query_id, set()).add(pair.doc_id)
        right.append(qrels.get(pair.query_id, {}).get(pair.doc_id, 0) > 0)
        scales[pair.scale or "score"] = None
    if not scores:
        raise BadData("no pair has a score; write them with  rankhouse label --scores")
    if len(scales) > 1:
        raise BadData(f"the scores are on different scales ({', '.join(scales)}); give pairs of one teacher")
    remark = mismatch(named, "the pairs", qrels, "the judgements")
    if not 0 < sum(right) < len(right):
        raise BadData(
            f"the judgements call {sum(right):,} of the {len(right):,} scored pairs relevant; a threshold "
            "needs right and wrong ones: "
            + (remark or "do the judgements belong to these queries, was every pair scored?")
        )
    if remark:
        warn(remark)
    (scale,) = scales
    return ScoredPairs(probabilities(np.array(scores, np.float32), scale), np.array(right, np.bool_), scale)


def kept_at(pairs: ScoredPairs, threshold: float) -> Threshold:
    """Count what a threshold keeps."""
    yes = pairs.values >= threshold
    return Threshold(threshold, int(yes.sum()), int((yes & pairs.right).sum()), int(pairs.right.sum()))


def _thresholds(pairs: ScoredPairs) -> list[Threshold]:
    """Count what every value that occurs keeps as a threshold, highest first."""
    falling = np.argsort(-pairs.values, kind="stable")
    values, right = pairs.values[falling], np.cumsum(pairs.right[falling])
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # of those with the same value
    return [Threshold(float(values[i]), int(i) + 1, int(right[i]), int(right[-1])) for i in last]


Choice = Callable[[list[Threshold]], Threshold]
"""Chooses one of the thresholds, which come highest first."""


def _f1() -> Choice:
    """Choose the largest F1; of equal ones the highest threshold."""
    return lambda tried: max(tried, key=lambda one: one.f1)


def _precision(least: float) -> Choice:
    """Choose the lowest threshold with at least this precision, that is the most pairs."""
    _check_share("precision", least)

    def choose(tried: list[Threshold]) -> Threshold:
        enough = [one for one in tried if one.precision >= least]
        if not enough:
            best = max(tried, key=lambda one: one.precision)
            raise BadData(
                f"precision({least}): no threshold is so precise; the most precise, {best.threshold:.4g}, "
                f"is right in {best.right:,} of {best.accepted:,} pairs ({best.precision:.4f}); ask for less"
            )
        return enough[-1]

    return choose


def _recall(least: float) -> Choice:
    """Choose the highest threshold that keeps at least this share of the right pairs."""
    _check_share("recall", least)
    return lambda tried: next(one for one in tried if one.recall >= least)


def _check_share(name: str, least: float) -> None:
    if not 0 < least <= 1:
        raise WrongUse(f"{name}({least}): the least {name} is above 0 and at most 1, like {name}(0.9)")


CHOICES: Mapping[str, Callable[..., Choice]] = {"f1": _f1, "precision": _precision, "recall": _recall}
"""Name -> what chooses a threshold: ``f1``, ``precision(0.9)``, ``recall(0.9)``."""


def choose_threshold(pairs: ScoredPairs, by: str = "f1") -> Threshold:
    """Choose a threshold among the values that occur.

    Raises:
        WrongUse: No such way to choose.
        BadData: No threshold is as precise as asked.
    """
    chosen = notation.make(by, CHOICES, "way to choose a threshold")
    return chosen(_thresholds(pairs))


class _ThresholdFile(msgspec.Struct):
    """The field that a rule reads of the file that ``rankhouse threshold`` writes."""

    threshold: float


def read_threshold(path: str) -> float:
    """Read the threshold that ``rankhouse threshold`` wrote.

    Raises:
        WrongUse: No such file.
        BadData: It holds no threshold.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_ThresholdFile).threshold
    except OSError as error:
        raise WrongUse(
            f"threshold={path!r}, but it takes a finite number, or the file that  rankhouse threshold  wrote "
            f"({error.strerror})"
        ) from error
    except UNREADABLE as error:
        raise BadData(
            f"no threshold can be read here ({error}); rankhouse threshold  writes such a file", Path(path)
        ) from error


class PairsSummary(NamedTuple):
    """Summary of labelled pairs.

    Attributes:
        relevant: Those labelled so.
        queries_relevant: Queries with a relevant pair.
        most: Most relevant pairs of one query.
        right: Relevant pairs that the judgements confirm; None without judgements.
        found: Distinct documents in them; None without judgements.
        wanted: Relevant documents by the judgements, of the queries of interest; None without judgements.
    """

    pairs: int
    relevant: int
    queries: int
    queries_relevant: int
    most: int
    right: int | None = None
    found: int | None = None
    wanted: int | None = None

    @property
    def precision(self) -> float | None:
        """Share of the relevant pairs that are right; None where it is not known."""
        return self.right / self.relevant if self.right is not None and self.relevant else None

    @property
    def recall(self) -> float | None:
        """Share of what is right that is there; None where it is not known."""
        return self.found / self.wanted if self.found is not None and self.wanted else None


def summarise_pairs(pairs: Iterable[LabelledPair], qrels: Qrels | None = None) -> PairsSummary:
    """Count the pairs of a file; a document counts once as found, however many of its passages do.

    Raises:
        BadData: A pair has two labels.

    Warns:
        RankhouseWarning: A pair is given twice; pairs and judgements hardly name anything alike.
    """
    every: Counter[str] = Counter()
    yes: Counter[str] = Counter()
    positives: set[tuple[str, str]] = set()
    named: dict[str, set[str]] = {}
    right = 0
    for pair in distinct(pairs, lambda pair: pair.label, "labels"):
        every[pair.query_id] += 1
        if pair.label <= 0:
            continue
        yes[pair.query_id] += 1
        if qrels is None:
            continue
        named.setdefault(pair.query_id, set()).add(pair.doc_id)
        if qrels.get(pair.query_id, {}).get(pair.doc_id, 0) > 0:
            right += 1
            positives.add((pair.query_id, pair.doc_id))
    counted = PairsSummary(
        every.total(), yes.total(), len(every), len(yes), most=max(yes.values(), default=0)
    )
    if qrels is None:
        return counted
    warn_of_mismatch(named, "the relevant pairs", qrels, "the judgements")
    wanted = sum(len(relevant(qrels, query_id)) for query_id in qrels)
    return counted._replace(right=right, found=len(positives), wanted=wanted)
