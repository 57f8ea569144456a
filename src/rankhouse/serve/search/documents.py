"""Documents as people read them: whole, and with their passages shaded by how well they answer a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Document, FloatArray, Pair, Query
from rankhouse.core.scores import base_of, scale_of
from rankhouse.index.lexical.weighting import lucene_idf
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.serve.engine.waiting import ENDLESS, Deadline
from rankhouse.serve.errors import Refusal, UnknownName
from rankhouse.serve.search.catalogue import Catalogue, IndexView
from rankhouse.serve.search.ranking import ServedExecution
from rankhouse.serve.search.shapes import DocumentPassage
from rankhouse.serve.search.systems import NamedSystem
from rankhouse.systems.names import unknown
from rankhouse.systems.system import Dense, RerankedSystem
from rankhouse.text.split import SPLITTERS, LocatingSplitter, Split
from rankhouse.text.words import Span

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker

LEXICAL_SPLIT: Final = "sentences(2, 2)"
WITHOUT_SENTENCES: Final = "windows(40, 40, limit=None)"
"""Split where no package finds sentences."""


class UnknownDocument(UnknownName):
    """A document that the index does not have."""

    def __init__(self, doc_id: str, view: IndexView) -> None:
        Refusal.__init__(self, str(unknown("document", doc_id, view.index.documents, view.name)), "id")


@dataclass(frozen=True)
class ShadedDocument:
    """A document's passages with text, in reading order, and their scores.

    ``scorer`` is what scored them: a ranker, or the question's words; ``unit`` what the scores are, or "";
    ``split`` how the document is cut, in notation.
    """

    system: str
    scorer: str
    unit: str
    split: str
    passages: tuple[DocumentPassage, ...]

    @property
    def best(self) -> DocumentPassage | None:
        """The best passage, of equals the first; None where no passage has text."""
        return max(self.passages, key=lambda one: one.score, default=None)


def read_document(catalogue: Catalogue, index: str | None, doc_id: str) -> tuple[IndexView, Document]:
    """Return a document, and the index as it is now; UnknownName where either is not there."""
    view = catalogue.view(index)
    try:
        return view, view.index.documents[doc_id]
    except KeyError:
        raise UnknownDocument(doc_id, view) from None


def passages_with_scores(
    catalogue: Catalogue,
    view: IndexView,
    document: Document,
    query: str,
    system: str | None = None,
    deadline: Deadline = ENDLESS,
    within: Span | None = None,
) -> ShadedDocument:
    """Score the passages of a document: by the system's ranker, its encoder, or the question's words.

    Only those that reach into ``within``, a part of the text, are scored. UnknownName: there is no such
    system. WrongUse: the question has no words. Overloaded, DeadlinePassed: the ranker has too much to do.
    """
    if not query.strip():
        raise WrongUse("query is empty: give at least one word")
    spec = catalogue.system(system, view.name)
    ranker, split = _scorer_of(catalogue, view, spec)
    split = split or _lexical_split()
    places = split.spans(document) if isinstance(split, LocatingSplitter) else [(0, len(document.text))]
    low, high = within or (0, len(document.text) + 1)
    pairs, spans = list[Pair](), list[Span]()
    for passage, (start, end) in zip(split(document), places, strict=True):
        if passage.text.strip() and start < high and end >= low:
            pairs.append(Pair(Query("query", query), passage))
            spans.append((start, end))
    scores = _by_words(view.index, pairs) if ranker is None else ranker.blocking(deadline).score(pairs)
    values = np.asarray(scores, np.float64)
    lowest, highest = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    shares = (values - lowest) / (highest - lowest or 1.0)
    rows = zip(spans, values.tolist(), shares.tolist(), strict=True)
    return ShadedDocument(
        system=spec.name,
        scorer="the question's words, the rarer the better" if ranker is None else ranker.name,
        unit="" if ranker is None else base_of(scale_of(ranker.ranker)),
        split=notation.name_of(split),
        passages=tuple(
            DocumentPassage(n, *span, score, share) for n, (span, score, share) in enumerate(rows, 1)
        ),
    )


def _scorer_of(
    catalogue: Catalogue, view: IndexView, spec: NamedSystem
) -> tuple[ServedRanker | None, Split | None]:
    """Return what scores a system's passages and how it cuts them; None for the words of the question."""
    parts = list(spec.system.walk())
    stage = next((part.stage for part in parts if isinstance(part, RerankedSystem)), None)
    if stage is not None:
        split = ServedExecution(catalogue, view, Query("query", ""), ENDLESS).plan(stage).split
        return catalogue.ranker(str(stage.ranker)), split
    dense = next((part for part in parts if isinstance(part, Dense)), None)
    if dense is None:
        return None, None
    cut = view.searcher(dense)[0].vectors.state.policy
    try:
        return catalogue.ranker(dense.ranker), notation.make(cut, SPLITTERS, "splitter")
    except WrongUse:  # cut by a function of someone's own
        encoder = catalogue.ranker(dense.ranker)
        return encoder, encoder.split


def _lexical_split() -> Split:
    split = notation.make(LEXICAL_SPLIT, SPLITTERS, "splitter")
    try:
        split(Document("", "One sentence."))
    except MissingExtra:
        return notation.make(WITHOUT_SENTENCES, SPLITTERS, "splitter")
    return split


def _by_words(index: AnyIndex, pairs: Sequence[Pair]) -> FloatArray:
    """Score n passages by the question's words in them, the rarer the better: (n,)."""
    scores = np.zeros(len(pairs), np.float32)
    if not pairs:
        return scores
    wanted = dict.fromkeys(index.analyzer(pairs[0].query.text))
    rarity = {term: lucene_idf(index.counts(term), index.collection) for term in wanted}
    for place, pair in enumerate(pairs):
        terms = index.analyzer(pair.passage.text)
        counts = ((rarity[term], terms.count(term)) for term in wanted)
        scores[place] = sum(weight * count / (count + 1) for weight, count in counts)
    return scores
