"""Features that axioms compare: counts, lengths, closeness and meaning of a query's words in some texts.

Texts are read as the index reads them (title and text, its analyzer): lengths and places count terms from 0,
stop words left out. Each document is analysed once, however many queries and runs rank it; 4 bytes a word are
kept (8 with word vectors). Closeness is what PROX1 to PROX5 compare (Hagen, Völske, Göring, Stein, "Axiomatic
Result Re-Ranking", CIKM 2016, on Tao, Zhai, SIGIR 2007); words of a query that a text does not hold are
skipped, as axioms compare texts that hold the same ones. Nothing here is slower than occurrences × query
words, so that a text of 100,000 words takes milliseconds.

Shapes: m documents, q distinct query words, d width of a word vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import FloatArray, Query
from rankhouse.core.run import IntArray
from rankhouse.index.index import Index
from rankhouse.index.lexical.analysis import DROPPED, Numbers
from rankhouse.index.lexical.weighting import bm25
from rankhouse.text.vectors import start_table
from rankhouse.text.vocabulary import Vocabulary, VocabularyEntry


class Proximity(NamedTuple):
    """Closeness of a query's words in one text; infinite where there is nothing to measure."""

    # terms between two query words, averaged over their occurrences, then over pairs of words
    distance: float = math.inf
    first: float = math.inf  # sum of the places where each query word comes first
    phrase: float = math.inf  # where the query stands word by word for the first time
    gap: float = math.inf  # fewest other words inside a group of all the query words that the text holds
    groups: float = 0.0  # how many groups have that few
    span: float = math.inf  # width of such a group, averaged over all of them


def measure(text: IntArray, query: IntArray) -> Proximity:
    """Measure how close together the words of a query stand in a text."""
    words = np.unique(query)
    places = [np.flatnonzero(text == word) for word in words.tolist()]
    held = [place for place in places if len(place)]
    if len(held) < 2:
        return Proximity()
    pairs = [_distance(one, other) for one, other in combinations(held, 2)]
    low, high = _groups(held)
    is_query = np.zeros(len(text) + 1, np.int64)
    is_query[1:] = np.cumsum(np.isin(text, words))
    others = high - low + 1 - (is_query[high + 1] - is_query[low])
    return Proximity(
        distance=math.fsum(pairs) / len(pairs),
        first=float(sum(int(place[0]) for place in held)),
        phrase=_phrase(text, query),
        gap=float(others.min()),
        groups=float((others == others.min()).sum()),
        span=float((high - low).mean()),
    )


def _distance(one: IntArray, other: IntArray) -> float:
    """Return how many terms stand between two words, averaged over all pairs of their occurrences."""
    before = np.searchsorted(other, one)  # of each place of the first word: how often the other came before
    sums = np.concatenate([[0], np.cumsum(other)])
    apart = one * before - sums[before] + (sums[-1] - sums[before]) - one * (len(other) - before)
    return float(apart.sum()) / (len(one) * len(other)) - 1


def _groups(held: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Group each occurrence with the nearest of every other word: lowest and highest place of each group."""
    every = np.concatenate(held)
    low, high = every.copy(), every.copy()
    for places in held:
        after = np.searchsorted(places, every)
        left, right = places[np.maximum(after - 1, 0)], places[np.minimum(after, len(places) - 1)]
        nearest = np.where(np.abs(right - every) < np.abs(every - left), right, left)
        low, high = np.minimum(low, nearest), np.maximum(high, nearest)
    return low, high


def _phrase(text: IntArray, query: IntArray) -> float:
    """Return where a text contains the query as a phrase, or infinity."""
    starts = np.flatnonzero(text[: max(0, len(text) - len(query) + 1)] == query[0])
    for offset, word in enumerate(query[1:].tolist(), 1):
        starts = starts[text[starts + offset] == word]
    return float(starts[0]) if len(starts) else math.inf


Floats = NDArray[np.float64]
_READ_AT_ONCE = 1000


@dataclass(frozen=True)
class Meaning:
    """Similarities of m documents and one query by word vectors."""

    # (m,) mean cosine of the query's words and the document's distinct other words; NaN where either has no
    # vectors
    closeness: Floats
    nearest: Floats  # (m, q) how often the document contains its word that is most similar to each query word


@dataclass(frozen=True)
class TermFeatures:
    """One query's words in m documents."""

    idf: Floats  # (q,) ln((N + 1) / (n + 1)) of each distinct query word, by the index
    asked: IntArray  # (q,) how often the query contains it
    counts: IntArray  # (m, q) how often each document contains it
    lengths: IntArray  # (m,) terms of each document
    usual: float  # terms of the index's average document
    texts: Sequence[IntArray]  # the documents' term numbers
    query: IntArray  # the query's term numbers, in order
    meaning: Meaning | None = None  # what word vectors say; None without them

    @cached_property
    def proximity(self) -> Mapping[str, Floats]:
        """Name of a number of :class:`Proximity` -> (m,)."""
        rows = np.array([measure(text, self.query) for text in self.texts], np.float64)
        return dict(zip(Proximity._fields, rows.reshape(-1, len(Proximity._fields)).T, strict=True))

    @cached_property
    def bm25(self) -> Floats:
        """(m, q) what each word gives to each document under BM25 (k1 = 0.9, b = 0.4)."""
        saturation = bm25(
            self.counts, self.lengths[:, None], 1.0, 1.0, k1=0.9, b=0.4, mean=max(self.usual, 1.0)
        )
        weights: Floats = self.idf * self.asked * saturation
        return weights


class TermReader:
    """Reads documents of an index as numbers, each once, and tells what a query's words do in them.

    Args:
        source: Word vectors for the axioms of meaning; "" for none.

    Raises BadData: a document that the index does not have, or vectors that cannot be read.
    """

    def __init__(
        self, index: Index, doc_ids: Iterable[str], queries: Iterable[Query], source: str | Path = ""
    ) -> None:
        self.index = index
        self._numbers, self._forms = Numbers(index.analyzer.normal), Numbers(str.lower)
        self._texts: dict[str, NDArray[np.int32]] = {}
        self._words: dict[str, NDArray[np.int32]] = {}
        self._with_words = bool(source)
        wanted = list(dict.fromkeys(doc_ids))
        index.require(wanted)
        for start in range(0, len(wanted), _READ_AT_ONCE):
            for document in index.documents.fetch(wanted[start : start + _READ_AT_ONCE]):
                self._texts[document.id], self._words[document.id] = self._analyse(document.full_text)
        said = {query.id: self._analyse(query.text) for query in queries}
        self._asked = {query_id: terms for query_id, (terms, _) in said.items()}
        self._asked_words = {query_id: forms for query_id, (_, forms) in said.items()}
        self._names = list(self._numbers.terms)
        self._table = _unit_rows(source, list(self._forms.terms)) if source else None

    def _analyse(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the numbers of a text's terms, and of the words they came from, in lower case."""
        words = self.index.analyzer.words(text)
        numbers = self._numbers.of(words)
        kept = numbers != DROPPED
        forms = self._forms.of(words)[kept] if self._with_words else np.empty(0, np.int32)
        return numbers[kept], forms

    def features(self, query: Query, doc_ids: Sequence[str]) -> TermFeatures:
        """Return what a query's words do in some documents, (m,) of them."""
        asked = self._asked[query.id]
        words, times = np.unique(asked, return_counts=True)
        texts = [self._texts[doc_id] for doc_id in doc_ids]
        terms = [self._names[word] for word in words.tolist()]
        holding = np.array([self.index.counts(term).documents for term in terms], np.float64)
        collection = self.index.collection
        counts = [(text[:, None] == words).sum(axis=0) for text in texts]
        return TermFeatures(
            idf=np.log((collection.documents + 1) / (holding + 1)),
            asked=times,
            counts=np.array(counts, np.int64).reshape(len(texts), len(words)),
            lengths=np.array([len(text) for text in texts], np.int64),
            usual=collection.mean_length,
            texts=[text.astype(np.int64) for text in texts],
            query=asked.astype(np.int64),
            meaning=None if self._table is None else self._meaning(query.id, words, doc_ids),
        )

    def _meaning(self, query_id: str, words: NDArray[np.int32], doc_ids: Sequence[str]) -> Meaning:
        """Compare the query's words with the other words of each document."""
        table = cast(FloatArray, self._table)
        first = [int(np.flatnonzero(self._asked[query_id] == word)[0]) for word in words.tolist()]
        asked = table[self._asked_words[query_id][first]]  # (q, d) in the form that comes first in the query
        known = asked.any(axis=1)
        closeness = np.full(len(doc_ids), np.nan)
        nearest = np.zeros((len(doc_ids), len(words)))
        for row, doc_id in enumerate(doc_ids):
            others = self._words[doc_id][~np.isin(self._texts[doc_id], words)]
            forms, times = np.unique(others, return_counts=True)
            vectors = table[forms]
            there = vectors.any(axis=1)
            if not there.any() or not known.any():
                continue
            cosines = asked[known] @ vectors[there].T
            closeness[row] = float(cosines.mean(dtype=np.float64))
            best = cosines.argmax(axis=1)
            nearest[row, known] = np.where(cosines.max(axis=1) > 0, times[there][best], 0)
        return Meaning(closeness, nearest)


def _unit_rows(source: str | Path, words: Sequence[str]) -> FloatArray:
    """Return a vector of length 1 for each word, (v, d); 0 for words that the source does not know."""
    folders = (Path(source), Path(source) / "ranker")  # a training's folder holds its best model there
    trained = next((folder for folder in folders if (folder / "manifest.json").is_file()), None)
    if trained is not None:
        rows = _rows_of_ranker(trained, words)
    else:
        start = start_table(source, Vocabulary([VocabularyEntry(word, 1, 1) for word in words], 1, 1))
        rows = np.where(start.known[:, None], start.table, np.float32(0))[2:]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: FloatArray = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return units


def _rows_of_ranker(folder: Path, words: Sequence[str]) -> FloatArray:
    """Return the vectors that a word-level ranker has for words, (v, d); 0 for words it does not know."""
    with needs("neural", "word vectors of a ranker"):
        from rankhouse.models.bundle import load  # noqa: PLC0415 - torch, for the rankers that need it
        from rankhouse.models.word_models import WordModel  # noqa: PLC0415
    model = load(folder)
    if not isinstance(model, WordModel):
        raise WrongUse(
            f'"{folder}" is a ranker of the family "{model.family}", which has no vectors of words; give one '
            "that reads words (tk, knrm, samcnn ...), a file of vectors, or a folder with tokenizer.json and "
            "model.safetensors"
        )
    table = model.get_parameter("embedding.weight").detach().float().numpy()
    known = np.array([word in model.reader.vocabulary for word in words], bool)
    ids = model.reader.vocabulary.ids(words)
    return np.where(known[:, None], table[ids], np.float32(0))
