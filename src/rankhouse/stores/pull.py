"""Pull: queries to a run, by what a store holds: impacts, vectors, or its own text search.

Equal scores are ordered as in the index's own runs: impacts by document id ascending, as Lucene does, with
each such score lowered to the next float32; vectors and texts by document id descending, as every Run does. A
store cuts its list where it pleases among equal scores, so a little more than k is asked for, and more again
where the k-th score reaches down to the last one that came; where even the most a store gives does not get
beyond it, a warning says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import BadModel, MissingInput, StoreFailed, WrongUse, name_few, warn
from rankhouse.core.nouns import Document, Encoder, FloatArray, Query, by_id
from rankhouse.core.progress import Progress, ignore, note
from rankhouse.core.run import Run
from rankhouse.core.scores import strictly_falling
from rankhouse.index.dense.exact import ENCODED_AT_ONCE
from rankhouse.index.dense.vectors import unit_length
from rankhouse.index.impacts.impacts import QueryWeigher
from rankhouse.index.impacts.search import weigh_queries
from rankhouse.index.index import Index
from rankhouse.index.lexical.search import LexicalOptions, Retriever
from rankhouse.stores.store import ZERO_BELOW, Hits, Store, StoreContents, WordNumber
from rankhouse.text.analyze import ANALYZERS

_ROUNDING = 2.0**-23  # one or two units in the last place of a float32
_Ask = Callable[[Query], Callable[[int], Hits]]
"""From a query to what asks for so many records: what a query takes to be asked is made once."""


def pull_impacts(
    store: Store,
    queries: Sequence[Query],
    k: int = 1000,
    feedback: str = "",
    index: Index | None = None,
    progress: Progress = ignore,
) -> Run:
    """Rank by the impacts that were pushed: the run that the index itself gives.

    Args:
        feedback: Notation of the feedback, ``rm3``; "" for none.
        index: The index that was pushed; feedback reads its documents.
    """
    contents = _there(store)
    if contents is None or not contents.impacts:
        instead = "ask it with  --model text"
        if "impacts" in store.holds:
            instead = 'push them with  --impacts "bm25(k1=0.9, b=0.4)"'
        raise store.cannot("holds no impacts that rankhouse pushed", instead)
    if contents.weigher:
        raise store.cannot("holds weights of a sparse encoder", "ask it with  --model 'sparse(\"DIR\")'")
    weigh = _query_weights(store, contents, feedback, index)
    return _pull(store, queries, lambda query: partial(store.match, weigh(query)), _Plan(k, True, progress))


def pull_sparse(
    store: Store, queries: Sequence[Query], encoder: QueryWeigher, k: int = 1000, progress: Progress = ignore
) -> Run:
    """Rank by the weights of a sparse encoder that were pushed: the run that the index itself gives."""
    contents = _there(store)
    if contents is None or not contents.weigher:
        raise store.cannot(
            "holds no weights of a sparse encoder that rankhouse pushed", "push them with  --impacts sparse"
        )
    if contents.weigher != encoder.fingerprint:
        raise WrongUse(
            f"{store.name}: its weights were made by {contents.weigher}, the queries' would be by "
            f"{encoder.fingerprint}; name the encoder that made them"
        )
    rows = {query.id: row for row, query in enumerate(queries)}
    table = weigh_queries(encoder, queries)

    def ask(query: Query) -> Callable[[int], Hits]:
        one = table[[rows[query.id]]]
        words = map(WordNumber, one.indices.tolist())
        return partial(store.match, dict(zip(words, one.data.tolist(), strict=True)))

    return _pull(store, queries, ask, _Plan(k, True, progress))


def pull_dense(
    store: Store, queries: Sequence[Query], encoder: Encoder, k: int = 1000, progress: Progress = ignore
) -> Run:
    """Rank by vectors, pushed or another program's; a query without text gets an empty ranking."""
    contents = _there(store)
    if "vectors" not in store.holds or (contents is not None and not contents.vectors):
        raise store.cannot("holds no vectors", "push them with  rankhouse push --vectors default")
    if contents is not None and contents.encoder != encoder.fingerprint:
        raise WrongUse(
            f"{store.name}: its vectors were made by {contents.encoder}, the queries' would be by "
            f"{encoder.fingerprint}; name the encoder that made them"
        )
    vectors = _encoded(store, contents, queries, encoder)
    plan = _Plan(k, False, progress)

    def ask(query: Query) -> Callable[[int], Hits]:
        return lambda n: store.nearest(vectors[query.id], n, encoder.similarity)

    return _pull(store, queries, ask, plan, asked=set(vectors))


def pull_text(store: Store, queries: Sequence[Query], k: int = 1000, progress: Progress = ignore) -> Run:
    """Rank by the store's own text search, whatever formula it has; a query without text gets nothing."""
    contents = _there(store)
    if "texts" not in store.holds:
        raise store.cannot("has no text search that ranks", 'ask it by --model impacts or "dense(RANKER)"')
    if contents is not None and not contents.texts:
        raise store.cannot("was pushed without texts", "push with texts, or ask it by impacts or vectors")
    asked = {query.id for query in queries if query.text.strip()}
    return _pull(
        store,
        queries,
        lambda query: partial(store.search_text, query.text),
        _Plan(k, False, progress),
        asked=asked,
    )


def pull_documents(store: Store, run: Run) -> Iterator[Document]:
    """Read the documents of a run from the store, each once, in the order of their ids.

    Raises MissingInput: the store no longer has one of them, or has no text of any.
    """
    wanted = sorted({doc_id for ranking in run.values() for doc_id in ranking.doc_ids})
    with_text = False
    for start in range(0, len(wanted), 200):
        some = wanted[start : start + 200]
        documents: dict[str, Document] = {}
        for document in store.fetch(some):
            documents.setdefault(document.id, document)
        if missing := [doc_id for doc_id in some if doc_id not in documents]:
            raise MissingInput(
                f"{store.name}: has no document {name_few(missing, quoted=True)}, which the run ranks"
            )
        with_text = with_text or any(document.full_text for document in documents.values())
        yield from (documents[doc_id] for doc_id in some)
    if wanted and not with_text:
        raise MissingInput(
            f"{store.name}: holds no text of these documents; name the field that does, as in  text='body', "
            "or push them with texts"
        )


# --- what is asked --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """Number of documents a query, order of equal scores, and the progress callback."""

    k: int
    ascending: bool
    progress: Progress

    def __post_init__(self) -> None:
        if self.k < 1:
            raise WrongUse(f"k={self.k}: ask for 1 document or more")


def _there(store: Store) -> StoreContents | None:
    if not store.exists():
        raise MissingInput(f"{store.name}: there is no such collection; fill it with  rankhouse push")
    contents = store.contents()
    if contents is None:
        note(f"{store.name}: was not pushed by rankhouse, so nothing says whether the collection is complete")
    elif contents.complete is False or (contents.complete is None and store.count() < contents.records):
        raise StoreFailed(
            f"{store.name}: its push is under way or was ended before all {contents.records:,} records were "
            "there; push again, which resumes"
        )
    return contents


def _query_weights(
    store: Store, contents: StoreContents, feedback: str, index: Index | None
) -> Callable[[Query], Mapping[str, float]]:
    """Return what turns a query into weights of terms."""
    analyzer = notation.make(contents.analyzer, ANALYZERS, "analyzer")
    if not feedback:
        return lambda query: {t: float(n) for t, n in Counter(analyzer(query.text)).items()}
    if index is None:
        raise WrongUse(
            f"feedback {feedback}: reads the documents that the first pass finds; name the index they are in"
        )
    if index.fingerprint != contents.source:
        raise WrongUse(
            f"{store.name}: holds impacts of another index, or of another state of it, than {index.path}; "
            "push it again with --overwrite"
        )
    retriever = Retriever(index, LexicalOptions(contents.impacts, feedback))

    def weigh(query: Query) -> Mapping[str, float]:
        terms = retriever.terms(query.text)
        after = retriever.after_feedback(terms)
        return after.expansion.weights if after else terms

    return weigh


def _encoded(
    store: Store, contents: StoreContents | None, queries: Sequence[Query], encoder: Encoder
) -> dict[str, FloatArray]:
    """Encode the queries that have text."""
    with_text = [query for query in queries if query.text.strip()]
    dimension = contents.dimension if contents else store.dimension()
    vectors: dict[str, FloatArray] = {}
    for start in range(0, len(with_text), ENCODED_AT_ONCE):
        some = with_text[start : start + ENCODED_AT_ONCE]
        points = np.asarray(encoder.encode_queries([query.text for query in some]), np.float32)
        if points.ndim != 2 or len(points) != len(some) or not np.isfinite(points).all():
            raise BadModel(f"the encoder gave no finite vector for each of {len(some)} queries")
        if dimension and points.shape[1] != dimension:
            raise WrongUse(
                f"{store.name}: holds vectors of {dimension} numbers, the encoder makes {points.shape[1]}; "
                "name the encoder that made them"
            )
        points = unit_length(points) if encoder.similarity == "cosine" else points
        vectors |= {query.id: point for query, point in zip(some, points, strict=True)}
    return vectors


# --- a run of the answers -------------------------------------------------------------------------------


def _pull(
    store: Store, queries: Sequence[Query], ask: _Ask, plan: _Plan, asked: set[str] | None = None
) -> Run:
    """Ask for each query, and build the run."""
    table, rankings, cut = by_id(queries), dict[str, tuple[list[str], FloatArray]](), list[str]()
    for done, query in enumerate(table.values(), 1):
        hits, among_ties = Hits(), False
        if asked is None or query.id in asked:
            hits, among_ties = _best(ask(query), store.most, plan)
        if among_ties:
            cut.append(query.id)
        scores = np.array([score for _, score in hits], np.float32)
        rankings[query.id] = [d for d, _ in hits], strictly_falling(scores) if plan.ascending else scores
        plan.progress(done, len(table))
    if cut:
        warn(
            f"{store.name} gives at most {store.most:,} records a query, and for {len(cut)} of {len(table)} "
            f"queries more had the score at which k={plan.k} cuts; which of them stayed is its choice: "
            f"{name_few(cut)}",
            3,
        )
    columns = [d for d, _ in rankings.values()], [s for _, s in rankings.values()]
    return Run.from_columns(list(rankings), *columns)


def _best(ask: Callable[[int], Hits], most: int, plan: _Plan) -> tuple[Hits, bool]:
    """Return the best k documents, and whether the store's cut went among those of the k-th score."""
    asked = min(most, plan.k + max(10, plan.k // 10))
    while True:
        hits = [(doc_id, _rounded(score)) for doc_id, score in ask(asked)]
        best: dict[str, float] = {}
        for doc_id, score in hits:
            best[doc_id] = max(score, best.get(doc_id, score))
        ordered = sorted(best.items(), key=lambda hit: hit[0], reverse=not plan.ascending)
        ordered.sort(key=lambda hit: -hit[1])
        if plan.ascending:
            ordered = _levelled(ordered)
        all_came = len(hits) < asked
        lowest = min((score for _, score in hits), default=0.0)
        settled = len(ordered) >= plan.k and ordered[plan.k - 1][1] - lowest > abs(lowest) * _ROUNDING
        if all_came or settled or asked >= most:
            return ordered[: plan.k], not (all_came or settled)
        asked = min(most, 4 * asked)


def _rounded(score: float) -> float:
    """Return a score as a run keeps it, in float32; one made of weights that stand for 0 is 0."""
    with np.errstate(over="ignore"):
        return 0.0 if abs(score) < ZERO_BELOW else float(np.float32(score))


def _levelled(hits: Hits) -> Hits:
    """Return hits, best first, with one score for all whose sums differ by rounding only, these by their ids.

    A store adds up the terms in an order of its own, which need not be the same for two equal documents.
    """
    levels: list[float] = []
    last = np.inf
    for _, score in hits:
        levels.append(levels[-1] if last - score <= abs(score) * _ROUNDING else score)
        last = score
    return sorted(zip((doc_id for doc_id, _ in hits), levels, strict=True), key=lambda hit: (-hit[1], hit[0]))
