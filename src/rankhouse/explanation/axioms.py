"""The axioms of retrieval as tests of document pairs: which of two texts should stand above the other.

Each axiom was stated for made-up documents that differ in one thing. Real pairs never do, so that diagnosis
(Rennings, Moraes, Hauff, ECIR 2019; Völske, Bondarenko, Fröbe, Hagen, Stein, Singh, Anand, ICTIR 2021)
relaxes "equal" to "equal within a tolerance" and asks each axiom only of the pairs to which it then applies.

Sources: TFC1, TFC3, LNC1, TF-LNC: Fang, Tao, Zhai, SIGIR 2004. M-TDC: Shi, Wen, Yu, Song, Ma, SIGIR 2005.
LB1: Lv, Zhai, CIKM 2011. PROX1 to PROX5: Tao, Zhai, SIGIR 2007; Hagen, Völske, Göring, Stein, CIKM 2016.
STMC1, STMC2: Fang, Zhai, SIGIR 2006. Where the relaxed form had to be chosen, the function says how.

Notation: D and E are two documents, c(w, D) how often D contains the query word w, |D| its length in terms.
Shapes: p pairs, m documents, q distinct query words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.run import IntArray
from rankhouse.explanation.term_features import Floats, TermFeatures

Preferences = NDArray[np.int8]
"""(p,): 1 where the axiom wants the pair's first document above, -1 where its second, 0: it is silent."""
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class DocumentPairs:
    """Pairs among the documents of one query.

    Attributes:
        features: What the query's words do in the m documents.
        first: (p,) the document on one side of each pair.
        second: (p,) the one on the other.
        tolerance: Two numbers that differ by at most this share of the larger are about equal.
    """

    features: TermFeatures
    first: IntArray
    second: IntArray
    tolerance: float = 0.1

    def both(self, values: Floats | IntArray) -> tuple[Floats, Floats]:
        """Return (m, ...) values of the first documents and of the second, (p, ...) each."""
        floats = values.astype(np.float64, copy=False)
        return floats[self.first], floats[self.second]

    def near(self, one: Floats, other: Floats) -> Bools:
        """Return where two arrays, (p,), are equal within the tolerance."""
        return np.abs(one - other) <= self.tolerance * np.maximum(np.abs(one), np.abs(other))

    @cached_property
    def counts(self) -> tuple[Floats, Floats]:
        """(p, q) each: c(w, D) and c(w, E)."""
        return self.both(self.features.counts)

    @cached_property
    def lengths(self) -> tuple[Floats, Floats]:
        """(p,) each: |D| and |E|."""
        return self.both(self.features.lengths)

    @cached_property
    def as_long(self) -> Bools:
        """(p,) whether both are about equally long."""
        return self.near(*self.lengths)

    @cached_property
    def differing(self) -> IntArray:
        """(p,) how many query words are not equally frequent in both."""
        one, other = self.counts
        differing: IntArray = np.count_nonzero(one != other, axis=1)
        return differing

    def same_words(self, at_least: int, every: bool = False) -> Bools:
        """Return where both contain the same query words, so many at least, or every word of the query."""
        one, other = (counts > 0 for counts in self.counts)
        same: Bools = (one == other).all(axis=1) & (one.sum(axis=1) >= at_least)
        return same & one.all(axis=1) if every else same


def _larger(one: Floats, other: Floats) -> Preferences:
    """Prefer the larger number; NaN and equal numbers say nothing."""
    return _votes(one > other, one < other)


def _where(applies: Bools, wanted: Preferences) -> Preferences:
    return np.where(applies, wanted, np.int8(0))


def _votes(one: Bools, other: Bools) -> Preferences:
    """Prefer the side that has a reason, (p, ...) each; reasons on both sides say nothing."""
    for_one, for_other = (np.logical_or.reduce(s.reshape(len(s), -1), axis=1) for s in (one, other))
    wanted: Preferences = for_one.astype(np.int8) - for_other.astype(np.int8)
    return wanted


def tfc1(pairs: DocumentPairs) -> Preferences:
    """TFC1: of two about equally long documents the one that contains the query words more often.

    For queries of several words (Rennings et al.): none of them less often, at least one more often.
    """
    one, other = pairs.counts
    return _where(pairs.as_long, _votes(one > other, one < other))


def tfc3(pairs: DocumentPairs) -> Preferences:
    """TFC3: of two about equally long documents the one that contains two words of about equal idf, not one.

    c(v, D) + c(w, D) = c(v, E) + c(w, E), where E lacks one of the two; every other query word is equally
    frequent in both.
    """

    def wanted(one: Floats, other: Floats, idf: Floats, asked: Floats) -> Preferences:
        del asked
        fits = (one.sum(axis=1) == other.sum(axis=1)) & pairs.near(idf[:, 0], idf[:, 1])
        return _where(fits, _larger((one > 0).sum(axis=1), (other > 0).sum(axis=1)))

    return _of_two_words(pairs, wanted)


def m_tdc(pairs: DocumentPairs) -> Preferences:
    """M-TDC: of two about equally long documents the one that has more of the rarer of two query words.

    The rarer one is as frequent in D as the other one in E, and the other way round; their idf differs by
    more than the tolerance; the query does not contain the rarer one less often; every other query word is
    equally frequent in both.
    """

    def wanted(one: Floats, other: Floats, idf: Floats, asked: Floats) -> Preferences:
        swapped = (one[:, 0] == other[:, 1]) & (one[:, 1] == other[:, 0])
        rarer = np.where(idf[:, 0] > idf[:, 1], 0, 1)
        asked_enough = _at(asked, rarer) >= _at(asked, 1 - rarer)
        fits = swapped & ~pairs.near(idf[:, 0], idf[:, 1]) & asked_enough
        return _where(fits, _larger(_at(one, rarer), _at(other, rarer)))

    return _of_two_words(pairs, wanted)


def _at(values: Floats, columns: IntArray) -> Floats:
    """Return one number a row: (n, c), (n,) -> (n,)."""
    picked: Floats = np.take_along_axis(values, columns[:, None], 1)[:, 0]
    return picked


_TwoWords = Callable[[Floats, Floats, Floats, Floats], Preferences]


def _of_two_words(pairs: DocumentPairs, wanted: _TwoWords) -> Preferences:
    """Ask about the two query words in which about equally long documents differ.

    Args:
        wanted: From (n, 2) counts in D, counts in E, idf and counts in the query to (n,) preferences.
    """
    chosen = pairs.as_long & (pairs.differing == 2)
    one, other = (counts[chosen] for counts in pairs.counts)
    places = np.argsort(one == other, axis=1, kind="stable")[:, :2]  # the two that differ come first
    sides = [np.take_along_axis(counts, places, 1) for counts in (one, other)]
    values = [values.astype(np.float64)[places] for values in (pairs.features.idf, pairs.features.asked)]
    answer = np.zeros(len(chosen), np.int8)
    if chosen.any():
        answer[chosen] = wanted(sides[0], sides[1], values[0], values[1])
    return answer


def lnc1(pairs: DocumentPairs) -> Preferences:
    """LNC1: of two documents in which each query word is equally frequent, the shorter one.

    Lengths that are about equal say nothing.
    """
    one, other = pairs.lengths
    return _where((pairs.differing == 0) & ~pairs.as_long, _larger(other, one))


def tf_lnc(pairs: DocumentPairs) -> Preferences:
    """TF-LNC: a document that is longer by nothing but more of a query word stands above the shorter one.

    They differ in one query word; D has more of it, |D| > |E|, and without it both are about equally long.
    """
    one, other = pairs.counts
    (long_one, long_other), gain = pairs.lengths, (one - other).sum(axis=1)
    rest = pairs.near(
        long_one - np.where(one != other, one, 0).sum(axis=1),
        long_other - np.where(one != other, other, 0).sum(axis=1),
    )
    longer = (long_one - long_other) * gain > 0
    return _where((pairs.differing == 1) & rest & longer, np.sign(gain).astype(np.int8))


def lb1(pairs: DocumentPairs) -> Preferences:
    """LB1: a word that only D contains counts, however long D is, where no other word decides.

    The rest decides nothing where BM25's score of the other words is about equal for both documents; words of
    that kind on both sides say nothing.
    """
    one, other = pairs.counts
    weight_one, weight_other = pairs.both(pairs.features.bm25)
    rest = [weights.sum(axis=1, keepdims=True) - weights for weights in (weight_one, weight_other)]
    undecided = pairs.near(rest[0], rest[1]) | (np.abs(rest[0] - rest[1]) < _ROUNDING)
    return _votes(undecided & (one > 0) & (other == 0), undecided & (other > 0) & (one == 0))


_ROUNDING = 1e-9  # sums of the same weights in another order


def prox1(pairs: DocumentPairs) -> Preferences:
    """PROX1: the document with fewer terms between the query words, averaged over occurrences and word pairs.

    Both contain the same query words, two or more.
    """
    return _lower(pairs, "distance", pairs.same_words(2))


def prox2(pairs: DocumentPairs) -> Preferences:
    """PROX2: the document with the query words earlier, by the sum of their first places.

    Both contain the same query words, two or more.
    """
    return _lower(pairs, "first", pairs.same_words(2))


def prox3(pairs: DocumentPairs) -> Preferences:
    """PROX3: the document that contains the whole query as a phrase, or has it earlier.

    Both contain the same query words, two or more.
    """
    return _lower(pairs, "phrase", pairs.same_words(2))


def prox4(pairs: DocumentPairs) -> Preferences:
    """PROX4: the document with fewer other terms inside its tightest group of all query words.

    A group is an occurrence with the nearest one of every other word. Equal: the one with more such groups.
    Both contain all the query's words, two or more.
    """
    applies, groups = pairs.same_words(2, every=True), pairs.both(pairs.features.proximity["groups"])
    tighter = _lower(pairs, "gap", applies)
    return np.where(tighter == 0, _where(applies, _larger(*groups)), tighter)


def prox5(pairs: DocumentPairs) -> Preferences:
    """PROX5: the document whose groups of all query words are narrower on average.

    Both contain all the query's words, two or more.
    """
    return _lower(pairs, "span", pairs.same_words(2, every=True))


def _lower(pairs: DocumentPairs, name: str, applies: Bools) -> Preferences:
    one, other = pairs.both(pairs.features.proximity[name])
    return _where(applies, _larger(other, one))


def stmc1(pairs: DocumentPairs) -> Preferences:
    """STMC1: of two documents with the same query words the one whose other words mean more like them.

    Each query word is equally frequent in both, which are about equally long. Meaning is the mean cosine
    of the query's words and the document's distinct other words; means that are about equal say nothing.
    """
    meaning = pairs.features.meaning
    if meaning is None:
        return np.zeros(len(pairs.first), np.int8)
    one, other = pairs.both(meaning.closeness)
    applies = (pairs.differing == 0) & pairs.as_long & ~pairs.near(one, other)
    return _where(applies, _larger(one, other))


def stmc2(pairs: DocumentPairs) -> Preferences:
    """STMC2: a document with a query word stands above one with only a similar word, however often.

    D contains w, E does not; t is the word of E that is most similar to w, and c(t, E) / c(w, D) is about
    |E| / |D|; every other query word is equally frequent in both.
    """
    meaning = pairs.features.meaning
    if meaning is None:
        return np.zeros(len(pairs.first), np.int8)
    (one, other), (near_one, near_other) = pairs.counts, pairs.both(meaning.nearest)
    long_one, long_other = (length[:, None] for length in pairs.lengths)
    for_one = (one > 0) & (other == 0) & pairs.near(near_other * long_one, one * long_other)
    for_other = (other > 0) & (one == 0) & pairs.near(near_one * long_other, other * long_one)
    alone = (pairs.differing == 1)[:, None]
    return _votes(alone & for_one, alone & for_other)


class Axiom(NamedTuple):
    """An axiom by name.

    Attributes:
        wants: What it asks for, in a few words.
        prefer: From p pairs to (p,) preferences.
        needs_vectors: Whether it says anything only with word vectors.
    """

    wants: str
    prefer: Callable[[DocumentPairs], Preferences]
    needs_vectors: bool = False


AXIOMS: dict[str, Axiom] = {
    "TFC1": Axiom("more query words", tfc1),
    "TFC3": Axiom("more different query words", tfc3),
    "M-TDC": Axiom("more of the rarer query word", m_tdc),
    "LNC1": Axiom("shorter, same query words", lnc1),
    "TF-LNC": Axiom("longer by a query word only", tf_lnc),
    "LB1": Axiom("a query word the other lacks", lb1),
    "PROX1": Axiom("query words close together", prox1),
    "PROX2": Axiom("query words early", prox2),
    "PROX3": Axiom("the query as a phrase", prox3),
    "PROX4": Axiom("a tight group of all query words", prox4),
    "PROX5": Axiom("tight groups on average", prox5),
    "STMC1": Axiom("words similar to the query's", stmc1, needs_vectors=True),
    "STMC2": Axiom("a query word before similar words", stmc2, needs_vectors=True),
}
"""The axioms by name, in the order in which tables show them."""
