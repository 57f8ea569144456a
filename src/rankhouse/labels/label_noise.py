"""Label noise of a known size: a share of the relevant judgements is moved to another document.

Shops give offers the product number of something similar, and judges slip; how well a method bears that can
be measured only where the wrong judgements are known. So a drawn judgement leaves its document and stands at
one that the first stage ranks high for the same query and nobody called relevant. What is drawn depends on
the seed and the ids alone, and a larger share holds all that a smaller one does.

And the noise that files of pairs come with: pairs given twice, and labelled both relevant and not.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rankhouse.core.errors import BadData, WrongUse, warn
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.sameness import warn_of_mismatch
from rankhouse.core.sampling import lot, order
from rankhouse.io.duplicate_ids import digest_of
from rankhouse.io.pairs import LabelledPair


class NoisyQrels(NamedTuple):
    """Judgements with noise.

    Attributes:
        qrels: All of them, the moved ones behind the others of their query.
        relevant: Relevant judgements, as many as before.
        wrong: How many of them were moved.
        missing: How many more should have been, but no query had a document to move them to.
    """

    qrels: Qrels
    relevant: int
    wrong: int
    missing: int


def move_judgements(
    qrels: Qrels, candidates: Run, share: float, depth: int = 50, seed: int = 0
) -> NoisyQrels:
    """Move a share of the relevant judgements to documents that are not relevant.

    Args:
        candidates: A run; a wrong document comes from the query's first ones.
        depth: How many documents of a query are candidates.

    Raises:
        WrongUse: A share outside 0 to 1.
        BadData: Something is to be moved, and the run has none of the queries; no judgement is relevant.

    Warns:
        RankhouseWarning: So small a share moves nothing; run and judgements hardly name anything alike.
    """
    if not 0 <= share <= 1:
        raise WrongUse(f"share={share}: the share of wrong judgements is from 0 (none) to 1 (all)")
    matches = [(q, d) for q, grades in qrels.items() for d, grade in grades.items() if grade > 0]
    if not matches:
        raise BadData("no judgement is relevant (a grade of 1 or more), so there is nothing to move")
    wanted = round(share * len(matches))
    if share and not wanted:
        warn(f"{share:g} of {len(matches):,} relevant judgements is none, so nothing is moved; give more")
    if wanted and not any(query_id in candidates for query_id in qrels):
        raise BadData(
            f"the run has none of the {len(qrels):,} judged queries, so there is nothing to move judgements "
            "to; give a run of these queries"
        )
    warn_of_mismatch({q: candidates[q].doc_ids for q in candidates}, "the run", qrels, "the judgements")
    noisy = {query_id: dict(grades) for query_id, grades in qrels.items()}
    free: dict[str, list[str]] = {}
    wrong = 0
    for query_id, doc_id in sorted(matches, key=lambda match: order(seed, "\t".join(match))):
        if wrong == wanted:
            break
        if query_id not in free:  # the first documents that nobody called relevant, shuffled
            found = candidates[query_id].doc_ids[:depth] if query_id in candidates else ()
            others = [doc_id for doc_id in found if qrels[query_id].get(doc_id, 0) <= 0]
            free[query_id] = sorted(others, key=lambda doc_id: lot(seed, "wrong", query_id, doc_id))
        if free[query_id]:
            noisy[query_id][free[query_id].pop()] = noisy[query_id].pop(doc_id)
            wrong += 1
    return NoisyQrels(noisy, len(matches), wrong, wanted - wrong)


# --- pairs that are given more than once ------------------------------------------------------------------


def distinct(
    pairs: Iterable[LabelledPair], value: Callable[[LabelledPair], object], name: str
) -> Iterator[LabelledPair]:
    """Stream pairs of query and passage, each once.

    Args:
        value: What must be the same wherever a pair stands.
        name: What that is called, for the message.

    Raises:
        BadData: A pair has two values.

    Warns:
        RankhouseWarning: Pairs stand more than once; given at the end.
    """
    values: dict[bytes, object] = {}
    repeated, first = 0, ""
    for pair in pairs:
        key, own = digest_of(pair.query_id, pair.doc_id, str(pair.passage)), value(pair)
        if key not in values:
            values[key] = own
            yield pair
            continue
        called = f'query "{pair.query_id}" with passage {pair.passage} of "{pair.doc_id}"'
        if values[key] != own:
            raise BadData(
                f"{called} is given twice, with the {name} {values[key]} and {own}; give one of them"
            )
        repeated, first = repeated + 1, first or called
    if repeated:
        warn(f"{repeated:,} pairs are given more than once and count once: {first}", 3)


class Contradictions:
    """Finds pairs that are labelled both relevant and not, in 16 bytes a pair."""

    def __init__(self) -> None:
        self._keys, self._places = array("q"), array("q")

    def add(self, pair: LabelledPair, place: int, relevant_from: int = 1) -> None:
        """Note a pair.

        Args:
            pair: The pair.
            place: What names it when it contradicts another, for example its line.
            relevant_from: The lowest label that means relevant.
        """
        if pair.label < 0:  # nobody decided
            return
        key = hash((pair.query_id, pair.doc_id, pair.passage))
        self._keys.append(key & ~1 | (pair.label >= relevant_from))
        self._places.append(place)

    def found(self) -> list[tuple[int, int]]:
        """Return the places of every two pairs that contradict each other, the first of each kind."""
        keys, places = np.array(self._keys, np.int64), np.array(self._places, np.int64)
        distinct, first = np.unique(keys, return_index=True)  # the lowest bit is the label: both are together
        both = np.flatnonzero(distinct[1:] == distinct[:-1] | 1)
        both = both[(distinct[both] & 1) == 0]
        at = sorted(sorted((int(first[i]), int(first[i + 1]))) for i in both)
        return [(int(places[a]), int(places[b])) for a, b in at]
