"""Why a document scores what it scores by BM25, QL or JM, with RM3 or without: the term weights themselves.

Nothing is computed again: what a term adds is the number that a search would add (float32, as in Lucene), the
leaves come from the formulas of ``index/lexical/weighting.py``, the shares of feedback documents from
``index/lexical/feedback.py``. The score is the run's; where a run lowers equal scores to keep their order,
what it took off is a part of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from rankhouse.core import notation
from rankhouse.core.nouns import Query
from rankhouse.core.scores import strictly_falling
from rankhouse.explanation.answer import Explanation, Grid, Part, ReadText, Word
from rankhouse.index.lexical.feedback import Expansion
from rankhouse.index.lexical.scorer import DocumentScore, TermAddend
from rankhouse.index.lexical.search import LexicalOptions, Retriever
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.text.analyze import STOP_WORDS, Analyzer

MOST_WORDS: Final = 30_000
"""Number of words of a document that are listed; the score is of all of them."""
METHOD: Final = "term weights"
PRIOR: Final = "document prior"  # with a space, as no term has one
TIES: Final = "order of equal scores"


class _Question(NamedTuple):
    """A query after analysis and feedback, and what a search finds for it."""

    surface: Mapping[str, list[str]]  # term -> the words of the query that became it
    dropped: tuple[str, ...]  # words of the query that the analyser drops
    weights: Mapping[str, float]  # term -> weight, expanded
    expansion: Expansion | None  # where these weights come from; None without feedback
    sources: tuple[str, ...]  # ids of the feedback documents
    scores: Mapping[int, float]  # row -> score of the documents that a run has


class LexicalExplainer:
    """Explains one model's scores over one index; a query that comes again is not searched again.

    Args:
        search: Model, feedback and depth: below it a document is said not to be ranked.

    Raises:
        WrongUse: Unknown model or feedback.
    """

    def __init__(self, index: AnyIndex, search: LexicalOptions | None = None) -> None:
        self.index, self._retriever = index, Retriever(index, search or LexicalOptions())
        self._question = lru_cache(maxsize=64)(self._ask)

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Explain one document's score.

        Raises:
            WrongUse: The index has no such document.
        """
        row, question = self.index.row_of(doc_id), self._question(query.text)
        tally = self._retriever.document_score(question.weights, row)
        parts, notes = self._parts(question, tally), self._notes(question, tally, doc_id, row)
        score = question.scores.get(row, tally.score)
        if score != tally.score:
            note = (
                "documents above have the same score; a run lowers it by the least float32 that keeps order"
            )
            parts.append(Part(TIES, score - tally.score, note))
            notes.append(f"{doc_id} is tied with documents above it: its own sum is {tally.score:.9g}.")
        text, words_note = _read(
            self.index.documents[doc_id].full_text,
            self.index.analyzer,
            {term: one.value for term, one in tally.addends.items()},
            {term: one.tf for term, one in tally.addends.items()},
        )
        return Explanation(
            query,
            doc_id,
            score,
            METHOD,
            exact=True,
            unit=notation.parse(self._retriever.model.notation).name,
            parts=tuple(parts),
            texts=(text,),
            query_words=tuple(question.surface),
            grids=_grids(question),
            notes=(*notes, *words_note),
        )

    def _ask(self, text: str) -> _Question:
        analyzer, retriever = self.index.analyzer, self._retriever
        surface: dict[str, list[str]] = {}
        dropped = []
        for word in analyzer.words(text):
            if term := analyzer.term(word):
                surface.setdefault(term, []).append(word)
            else:
                dropped.append(word)
        terms = retriever.terms(text)
        after = retriever.after_feedback(terms)
        weights = after.expansion.weights if after else terms
        hits = retriever.hits(weights, retriever.k)
        return _Question(
            surface,
            tuple(dict.fromkeys(dropped)),
            weights,
            after.expansion if after else None,
            sources=tuple(self.index.ids(after.hits.rows)) if after else (),
            scores=dict(zip(hits.rows.tolist(), strictly_falling(hits.scores).tolist(), strict=True)),
        )

    # --- parts ------------------------------------------------------------------------------------------

    def _parts(self, question: _Question, tally: DocumentScore) -> list[Part]:
        """Return a part for every term in the query's order, for the prior and for words dropped."""
        parts = [
            self._term(question, tally, term, tally.addends[term])
            if term in tally.addends
            else Part(term, 0.0, f"{_origin(question, term)}; not in the collection")
            for term in question.weights
        ]
        if tally.prior is not None:
            parts.append(self._prior(tally))
        for word in question.dropped:
            name = word if word not in question.weights else f"{word} (dropped)"
            why = "stop word" if word.lower() in STOP_WORDS else "not indexed"
            parts.append(Part(name, 0.0, f"removed by the {self.index.analyzer.name} analyzer ({why})"))
        return parts

    def _term(self, question: _Question, tally: DocumentScore, term: str, one: TermAddend) -> Part:
        origin, counts = _origin(question, term), one.counts
        frequency = f"in {counts.documents:,} of {self.index.collection.with_terms:,} documents"
        facts: dict[str, float] = {"tf": one.tf, "boost": one.boost}
        facts |= {"documents": counts.documents, "occurrences": counts.occurrences}
        facts |= self._retriever.model.leaves(one.joined, tally.length, one.counts, self.index.collection)
        facts |= {"true length": tally.tokens} if tally.tokens != tally.length else {}
        if not one.tf:
            return Part(term, 0.0, f"{origin}; not in the document; {frequency}", facts)
        # Where a formula is a sum, in float64; Lucene puts 0 in place of a negative one.
        leaves = tuple(Part(name, one.boost * facts[name]) for name in self._retriever.model.addends)
        is_cut = one.value == 0 and sum(facts[part.name] for part in leaves) < 0
        if is_cut:
            leaves = (*leaves, Part("cut at 0", -sum(part.value for part in leaves)))
        note = f"{origin}; tf {one.tf}, {frequency}{'; cut at 0' if is_cut else ''}"
        parts = _by_origin(question, term, one.value) or leaves
        return Part(term, one.value, note, facts, parts=parts)

    def _prior(self, tally: DocumentScore) -> Part:
        """Return what the document would score with none of the words: their rarity, and its length."""
        model, value = self._retriever.model, tally.prior or 0.0
        weights = [(one.boost, one.counts) for one in tally.addends.values()]
        if model.prior is None or not weights:
            return Part(PRIOR, value, "no word of the query is in the collection")
        rarity = float(model.prior(np.zeros(1), weights, self.index.collection)[0])
        parts = (Part("rarity of the words", rarity), Part("length of the document", value - rarity))
        note = "what a document of this length scores that holds none of the words"
        return Part(PRIOR, value, note, {"length": tally.length}, parts=parts)

    # --- what a reader has to know ----------------------------------------------------------------------

    def _notes(self, question: _Question, tally: DocumentScore, doc_id: str, row: int) -> list[str]:
        notes = []
        if not question.surface:
            notes.append("No word of the query is left after analysis; a search returns nothing.")
        elif not any(one.tf for one in tally.addends.values()):
            notes.append(
                f"{doc_id} holds no word of the query, so a search does not return it; its score is what it "
                "would have."
            )
        elif row not in question.scores:
            notes.append(f"{doc_id} is not among the first {self._retriever.k:,} documents of the run.")
        if question.expansion is not None:
            feedback, documents = self._retriever.feedback, len(question.sources)
            notes.append(f"The query was expanded by {feedback} from {documents} documents.")
            if doc_id in question.sources:
                notes.append(f"{doc_id} is itself one of these feedback documents.")
        return notes


def _origin(question: _Question, term: str) -> str:
    """Say where a term comes from: the query's own words, feedback, or both."""
    words = question.surface.get(term, [])
    shown = ", ".join(f'"{word}"' for word in dict.fromkeys(words))
    if len(words) > 1:
        shown += f" ({len(words)} times)"
    from_feedback = question.expansion is not None and term in question.expansion.sources
    return " and ".join([f"query word {shown}"] * bool(words) + ["feedback"] * from_feedback)


def _by_origin(question: _Question, term: str, value: float) -> tuple[Part, ...]:
    """Split what an expanded term adds between the query and each feedback document; scores are linear."""
    if question.expansion is None or not (whole := question.weights[term]):
        return ()
    own, shares = question.expansion.original.get(term), question.expansion.sources.get(term, {})
    parts = [] if own is None else [Part("query", value * own / whole, facts={"weight": own})]
    if shares:
        documents = tuple(
            Part(question.sources[place], value * share / whole, facts={"weight": share})
            for place, share in shares.items()
        )
        parts.append(Part("feedback", sum(part.value for part in documents), parts=documents))
    return tuple(parts)


def _grids(question: _Question) -> tuple[Grid, ...]:
    """Return the weights of an expanded query as a table: terms by the query and its feedback documents."""
    if question.expansion is None:
        return ()
    terms = tuple(question.weights)
    values = np.zeros((len(terms), 1 + len(question.sources)), np.float32)
    for row, term in enumerate(terms):
        values[row, 0] = question.expansion.original.get(term, 0.0)
        for place, share in question.expansion.sources.get(term, {}).items():
            values[row, 1 + place] = share
    return (Grid("expanded query", terms, ("query", *question.sources), values),)


# --- the document's words -------------------------------------------------------------------------------


def _read(
    text: str, analyzer: Analyzer, values: Mapping[str, float], tfs: Mapping[str, int]
) -> tuple[ReadText, tuple[str, ...]]:
    """Cut a text into words, each with an equal share of what its term adds.

    A word of the answer holds one term at most; what stands beside it without white space (a comma, a
    bracket) goes with it.
    """
    words: list[Word] = []
    terms = [*analyzer.spans(text), (len(text), len(text), "")]
    end = 0
    for (start, stop, term), (following, _, _) in pairwise(terms):
        ahead = text[end:start].split()
        touching = ahead.pop() if ahead and not text[start - 1].isspace() else ""
        words.extend(Word(piece) for piece in ahead)
        end = next((at for at in range(stop, following) if text[at].isspace()), following)
        share, match = (values[term] / tfs[term], (term, 1.0)) if term in values else (0.0, ("", 0.0))
        words.append(Word(touching + text[start:end], share, *match))
    words.extend(Word(piece) for piece in text[end:].split())
    notes = []
    if any(tfs.values()):
        notes.append("What a term adds is shared equally among its occurrences.")
    if len(words) > MOST_WORDS:
        notes.append(
            f"The first {MOST_WORDS:,} of {len(words):,} words are listed; the score is of all of them."
        )
    return ReadText(0, tuple(words[:MOST_WORDS])), tuple(notes)
