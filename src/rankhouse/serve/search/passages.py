"""Passages found in the documents of an answer: by their vectors, or by the question's words.

Rankings are of documents; people look for a passage. A system with vectors shows the passage whose vector is
nearest to the question, one without the stretch that holds most of the question's words. What the ranking
itself says stays as it is.

The floor of a collection is what its vectors say of questions that mean nothing: words drawn from its own
documents. What has no word of a question and is no nearer to it than that is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.nouns import Document, FloatArray, Marks, Query
from rankhouse.index.dense.exact import encode_queries, rescore
from rankhouse.index.dense.vectors import Vectors
from rankhouse.index.index import Index
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.search.catalogue import Catalogue, IndexView
from rankhouse.serve.search.ranking import ServedExecution
from rankhouse.serve.search.systems import NamedSystem
from rankhouse.systems.system import Dense
from rankhouse.text.analyze import is_function_word
from rankhouse.text.snippets import snippet, windows
from rankhouse.text.split import SPLITTERS, LocatingSplitter, readable
from rankhouse.text.words import Span

MOST_PASSAGES: Final = 4
"""Of one document, that are shown."""
LOOKED_AT: Final = 1_000_000
"""Characters of a document, from its beginning, among which words are sought."""
RANDOM_QUESTIONS, RANDOM_WORDS = 64, 3
SAMPLED_ROWS: Final = 20_000
QUANTILE: Final = 0.99
"""Of the scores of passages for random questions, below which a passage says nothing."""
SHOWN: Final = 500
"""Characters of a passage that the page's list of results shows: most of 100 words."""
WHOLE: Final = 1_500
"""Characters of a passage in an answer of the API: all of it, unless its words are very long."""

COPIED: Final = 0.7
"""Share of a passage's runs of three words that a text has in which the passage stands, too."""
_IN_TIME: Final = 1.0
"""Seconds for which copies are sought; documents behind them are hits of their own."""
_RUN: Final = 3
_word = re.compile(r"\w+")


class FoundPassages(NamedTuple):
    """The passages of a document that were found, the best first.

    ``has_words`` says whether the document holds a word of the question; ``nearness`` is the score of its
    nearest vector, None where the system has no vectors of it.
    """

    spans: Sequence[Span]
    has_words: bool
    nearness: float | None = None


def content_words(index: AnyIndex, question: str) -> dict[str, str]:
    """Return the terms of a question that are worth highlighting, with its words for them.

    Function words are left out unless there is nothing else.
    """
    spoken = {term: question[a:b] for a, b, term in index.analyzer.spans(question)}
    return {term: word for term, word in spoken.items() if not is_function_word(word)} or spoken


def words_nowhere(index: AnyIndex, question: str) -> list[str]:
    """Return the words of a question where no document has any of them; none where one has."""
    words = content_words(index, question)
    found = any(index.counts(term).documents for term in words)
    return [] if found else list(dict.fromkeys(words.values()))


class PassageFinder:
    """Finds the passages of documents for one question and system; an encoder that is late is left out.

    ``weights`` are those of the question's terms that are highlighted; ``by_meaning`` says whether the system
    has vectors.
    """

    def __init__(
        self, catalogue: Catalogue, view: IndexView, spec: NamedSystem, question: str, deadline: Deadline
    ) -> None:
        self._index, self.analyzer = view.index, view.index.analyzer
        terms = content_words(view.index, question)
        self.weights = {term: 1 / (1 + view.index.counts(term).documents) ** 0.5 for term in terms}
        self._view = view
        self._question = {word.casefold() for word in terms.values()}
        self._vectors: Vectors | None = None
        dense = next((part for part in spec.system.walk() if isinstance(part, Dense)), None)
        self.by_meaning = dense is not None
        if dense is None:
            return
        work = ServedExecution(catalogue, view, Query("query", question), deadline)
        try:
            searched = work.searcher(dense).vectors
            if isinstance(searched, Vectors):  # those of shards are elsewhere
                encoder = work.encoder(dense)
                self._point = encode_queries(searched, encoder, [work.queries[0]])[0]
                self._vectors, self._encoder = searched, encoder
        except RankhouseError:  # late or overloaded: the words are there
            return

    @cached_property
    def floor(self) -> float:
        """The score of what has nothing to do with a question; minus infinity where that is not known."""
        if (vectors := self._vectors) is None:
            return -np.inf
        try:
            return self._view.floor(vectors, lambda: floor_of(self._index, vectors, self._encoder))
        except RankhouseError:  # late or overloaded
            return -np.inf

    def snippets(self, documents: Sequence[Document]) -> list[tuple[str, Marks]]:
        """Return the passage that was found in each document, with the places of the question's words.

        That is the one with the nearest vector, or, of a document without vectors, the stretch with most of
        the question's words.
        """
        found: list[tuple[str, Marks]] = []
        for document in documents:
            places, scores = self._by_vectors(document)
            start, end = places[int(np.argmax(scores))] if len(scores) else (0, LOOKED_AT)
            width = WHOLE if len(scores) else 200
            found.append(snippet(document.text[start:end], self.weights, self.analyzer, width=width))
        return found

    def find(self, documents: Sequence[Document]) -> list[FoundPassages]:
        """Return what was found of each document.

        By vectors, a document's further passages are those that would be among the first if passages were
        ranked, as many as there are documents; by words, those with the same words as its best.
        """
        scored = [self._by_vectors(document) for document in documents]
        every = np.concatenate([np.empty(0, np.float32), *(scores for _, scores in scored)])
        most = min(len(documents), len(every))
        least = float(np.partition(every, -most)[-most]) if most else 0.0
        return [self._found(*pair, least) for pair in zip(documents, scored, strict=True)]

    def is_far(self, found: FoundPassages) -> bool:
        """Return whether a document has no word of the question and is as far from it as any."""
        return not found.has_words and found.nearness is not None and found.nearness < self.floor

    def without_copies(self, documents: Iterable[Document], most: int) -> list[list[Document]]:
        """Return documents with the copies of each behind it, in their order; so many groups at most.

        A document is a copy of an earlier one where the passage found in either stands in the other, too,
        nearly word for word: the same text in another file or format. The first that is no copy, once there
        are so many groups, ends it.
        """
        groups: list[tuple[list[Document], _Passage]] = []
        deadline = Deadline.after(_IN_TIME)
        for document in documents:
            passage = self._passage(document)
            same = (
                None if deadline.passed else next((g for g, one in groups if self._same(one, passage)), None)
            )
            if same is not None:
                same.append(document)
            elif len(groups) == most:
                break
            else:
                groups.append(([document], passage))
        return [same for same, _ in groups]

    def _passage(self, document: Document) -> _Passage:
        start, end = self._best_span(document)
        text = document.text[start:end] or document.title
        own = {word for word in _words(text) if word in self._question or any(map(str.isdigit, word))}
        return _Passage(document, wording(text), np.array(sorted(map(hash, own)), np.int64))

    def _same(self, one: _Passage, other: _Passage) -> bool:
        """Return whether either passage stands in the other document; mostly the passages are the same."""
        if not len(np.intersect1d(one.wording.runs, other.wording.runs, assume_unique=True)):
            return False
        return all(
            a.stands_in(b.wording) or a.stands_in(self._wording(b.document))
            for a, b in ((one, other), (other, one))
        )

    def _best_span(self, document: Document) -> Span:
        places, scores = self._by_vectors(document)
        if len(scores):
            return places[int(np.argmax(scores))]
        best = windows(document.text[:LOOKED_AT], self.weights, self.analyzer)
        return (best[0].start, best[0].end) if best else (0, SHOWN)

    def _wording(self, document: Document) -> Wording:
        if (known := self._view.wordings.get(document.id)) is None:
            known = wording(document.text[:LOOKED_AT] or document.title)
            self._view.wordings.put(document.id, known)
        return Wording(*known)

    def _found(
        self, document: Document, scored: tuple[Sequence[Span], FloatArray], least: float
    ) -> FoundPassages:
        by_words = windows(document.text[:LOOKED_AT], self.weights, self.analyzer, most=MOST_PASSAGES)
        has_words = bool(by_words) or any(term in self.weights for term in self.analyzer(document.title))
        places, scores = scored
        if not len(scores):
            return FoundPassages([(one.start, one.end) for one in by_words], has_words)
        order = np.argsort(-scores, kind="stable").tolist()
        spans: list[Span] = []
        for number, place in enumerate(order):
            start, end = places[place]
            is_near = not number or scores[place] >= least
            if is_near and all(end <= other[0] or other[1] <= start for other in spans):
                spans.append((start, end))
        return FoundPassages(spans[:MOST_PASSAGES], has_words, float(scores.max()))

    def _by_vectors(self, document: Document) -> tuple[Sequence[Span], FloatArray]:
        """Return where the passages of a document stand, and their scores (p,); none without vectors."""
        vectors, index, nothing = self._vectors, self._index, ((), np.empty(0, np.float32))
        if vectors is None or not isinstance(index, Index) or document.id not in index.documents:
            return nothing
        rows = vectors.rows_of(index.row_of(document.id))
        key = vectors.state.policy, document.id
        if (places := self._view.places.get(key)) is None:
            places = _places(document, vectors.state.policy)
            self._view.places.put(key, places)
        if not len(rows) or len(rows) != len(places):
            return nothing
        return places, rescore(vectors, self._point, rows)


class Wording(NamedTuple):
    """Hashes of a text's words (n,), and of its runs of three words (m,), or of all words of a shorter text.

    Each ascending; comparable within a process.
    """

    words: NDArray[np.int64]
    runs: NDArray[np.int64]


class _Passage(NamedTuple):
    """What was found in a document: its wording, and its words that set it apart from others of its form.

    These are numbers and the question's words: invoices differ in nothing else.
    """

    document: Document
    wording: Wording
    telling: NDArray[np.int64]

    def stands_in(self, text: Wording) -> bool:
        """Return whether it stands in a text, all of these words included."""
        return is_contained(self.wording, text) and _share(self.telling, text.words) == 1


def wording(text: str) -> Wording:
    """Return the hashes of a text's words and of their runs; case and punctuation do not count."""
    words = np.fromiter(map(hash, _words(text)), np.int64)
    runs = np.zeros(len(words) and max(1, len(words) - _RUN + 1), np.int64)
    for place in range(min(_RUN, len(words))):
        runs = runs * 0x100000001B3 + words[place : place + len(runs)]
    return Wording(np.unique(words), np.unique(runs))


def is_contained(passage: Wording, text: Wording) -> bool:
    """Return whether a passage stands in a text, nearly word for word; one without words never does."""
    return bool(len(passage.runs)) and _share(passage.runs, text.runs) >= COPIED


def _words(text: str) -> list[str]:
    return _word.findall(text.casefold())


def _share(some: NDArray[np.int64], all_of_them: NDArray[np.int64]) -> float:
    """Return the share of some hashes that are among others, both ascending; 1 for none."""
    if not len(some) or not len(all_of_them):
        return float(not len(some))
    places = np.minimum(np.searchsorted(all_of_them, some), len(all_of_them) - 1)
    return float((all_of_them[places] == some).mean())


def _places(document: Document, policy: str) -> Sequence[Span]:
    """Return where the encoded passages of a document stand in its text; none where that is unknown."""
    try:
        split = notation.make(policy, SPLITTERS, "splitter")
    except WrongUse:  # cut by a function of someone's own
        return ()
    if not isinstance(split, LocatingSplitter):
        return ()
    places = split.spans(document)
    return [places[one.index] for one in readable(document, split)]


def floor_of(index: AnyIndex, vectors: Vectors, encoder: object) -> float:
    """Return the score that passages of a collection reach for questions that mean nothing.

    Their words are drawn from its documents, each from another one; the seed is fixed.
    """
    draw = np.random.default_rng(0)
    queries = [Query(str(number), text) for number, text in enumerate(random_questions(index, draw))]
    rows = np.sort(draw.permutation(vectors.state.rows)[:SAMPLED_ROWS])
    if not queries or not len(rows):
        return -np.inf
    points = encode_queries(vectors, encoder, queries)  # type: ignore[arg-type]  # blocks until its turn
    scores = np.stack([rescore(vectors, point, rows) for point in points])
    return float(np.quantile(scores, QUANTILE))


def random_questions(index: AnyIndex, draw: np.random.Generator) -> list[str]:
    """Return questions of words drawn from documents, each from another one."""
    wanted = RANDOM_QUESTIONS * RANDOM_WORDS
    chosen = index.ids(draw.integers(0, len(index), wanted)) if len(index) else []
    words: list[str] = []
    for document in index.documents.fetch(chosen):
        text = document.full_text[:LOOKED_AT]
        spoken = [text[a:b] for a, b, _ in index.analyzer.spans(text[:4_000])]
        words += [spoken[int(draw.integers(len(spoken)))]] if spoken else []
    return [" ".join(words[at : at + RANDOM_WORDS]) for at in range(0, len(words), RANDOM_WORDS)]
