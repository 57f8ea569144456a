"""Joints of the stages of a pipeline: passages into a document, vectors into a search, runs into a fusion.

The value of a part is what the stage below it adds, exactly; its ``why`` is that stage's own explanation, in
a unit of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Document, Encoder, FloatArray, Pair, Passage, Query, Ranker, fingerprint_of
from rankhouse.core.run import Run
from rankhouse.core.scores import Doubles, base_of, in_chunks
from rankhouse.explanation.answer import Explanation, Grid, Part
from rankhouse.explanation.methods import ExplainOptions, explain_pair
from rankhouse.explanation.units import ordinal
from rankhouse.index.dense.exact import encode_queries, rescore
from rankhouse.index.dense.vectors import Vectors
from rankhouse.index.impacts.impacts import QueryWeigher
from rankhouse.index.impacts.search import ImpactSearcher, impact_addends, weigh_queries
from rankhouse.index.index import Index
from rankhouse.ranking.fuse import FUSIONS, Addend, Fusion, linear
from rankhouse.ranking.pool import Pool, pooled_ones
from rankhouse.text.split import SPLITTERS, Split, Splitter, Whole, dropped_words, readable

MOST_PARTS: Final = 100
"""Passages that have a part each; the others have one together."""
_AT_ONCE: Final = 2_048


@dataclass(frozen=True)
class _Pooling:
    """The passages of a document with their share in its score."""

    pool: Pool
    passages: Sequence[Passage]  # p of them, those that the pool looks at
    scores: FloatArray  # (p,) as the ranker gives them
    factors: Doubles  # (p,) what the pool multiplies each by, on its scale
    added: Doubles  # (p,) what each adds to the document's score
    is_linear: bool  # whether the pool works on the ranker's own scale

    @property
    def order(self) -> list[int]:
        """Places of the passages that count, best first; of equals the earlier one."""
        best = np.argsort(-self.scores, kind="stable").tolist()
        return [place for place in best if self.factors[place] != 0]

    def name(self, place: int) -> str:
        """Return what people call a passage of the document."""
        return f"passage {self.passages[place].index + 1}"


def explain_reranked(
    ranker: Ranker,
    query: Query,
    document: Document,
    split: Split,
    pool: Pool,
    options: ExplainOptions | None = None,
    most: int = 3,
) -> Explanation:
    """Explain a document's score by its passages: which of them counted, and why they score what they do.

    Parts are named by the passages' order of merit ("best passage", "2nd passage"), so that those of two
    documents can be compared. With documents that are not split, the answer is that of the one passage.

    Args:
        most: How many passages are explained in full, the best of those that count; at least 1.

    Raises BadData: the document has no text to score; WrongUse: the pool cannot work on the ranker's scale,
    or does not say how passages share; BadModel: a score is not a number.
    """
    scale, passages = pool.check(ranker), pooled_ones(readable(document, split), pool)
    if not passages:
        where = " in its first passage" if pool.first_only else ""
        raise BadData(
            f'document "{document.id}" has no text{where}, so no ranker reads it; a run keeps it at the end, '
            "with a placeholder for a score"
        )
    pairs = [Pair(query, passage) for passage in passages]
    scores, indexes = in_chunks(ranker.score, pairs, _AT_ONCE), [passage.index for passage in passages]
    is_linear = pool.scale in ("score", scale)
    pooling = _Pooling(pool, passages, scores, *pool.shares(scores, scale, indexes), is_linear=is_linear)
    order = pooling.order
    whys = {place: explain_pair(ranker, pairs[place], options) for place in order[: max(1, most)]}
    notes = (*_pool_notes(pooling, whys, document.id), *_losses(document, split))
    if isinstance(split, Whole) and is_linear and pooling.factors[0] == 1:
        return replace(whys[0], notes=tuple(dict.fromkeys(notes)))
    return Explanation(
        query,
        document.id,
        float(np.float32(pool(scores, scale, indexes))),
        f"passages, pooled by {pool}",
        exact=all(why.exact for why in whys.values()),
        unit=base_of(scale) if is_linear else pool.scale,
        parts=_of_passages(pooling, whys),
        cost=sum(why.cost for why in whys.values()),
        texts=tuple(
            text._replace(name=pooling.name(place), value=float(scores[place]))
            for place, why in whys.items()
            for text in why.texts
        ),
        query_words=whys[order[0]].query_words if order else (),
        grids=_passage_grid(pooling),
        notes=notes,
        ranker=fingerprint_of(ranker),
    )


def _of_passages(pooling: _Pooling, whys: Mapping[int, Explanation]) -> tuple[Part, ...]:
    """Return a part for each passage that counts, best first; beyond a hundred they share one."""
    order, parts = pooling.order, []
    for merit, place in enumerate(order[:MOST_PARTS], 1):
        why, factor = whys.get(place), float(pooling.factors[place])
        note = f"{pooling.name(place)}, score {pooling.scores[place]:.6g}"
        note += f", counts {factor:.4g}" if factor != 1 else ""
        facts = {"passage": pooling.passages[place].index, "score": float(pooling.scores[place])}
        finer = _times(_complete(why), factor) if why and pooling.is_linear else ()
        name = "best passage" if merit == 1 else f"{ordinal(merit)} passage"
        name = "first passage" if pooling.pool.first_only else name
        parts.append(
            Part(name, float(pooling.added[place]), note, facts | {"factor": factor}, parts=finer, why=why)
        )
    if rest := order[MOST_PARTS:]:
        value = math.fsum(pooling.added[rest])
        parts.append(Part("other passages", value, f"{len(rest):,} passages together"))
    return tuple(parts)


def _complete(why: Explanation) -> tuple[Part, ...]:
    """Return the parts of a passage's score, and what they leave of it where that is more than rounding."""
    if abs(why.gap) <= 1e-5 * max(1, abs(why.score)):
        return why.parts
    return (*why.parts, Part("left by the parts", why.gap, "what the method leaves unexplained"))


def _times(parts: Sequence[Part], factor: float) -> tuple[Part, ...]:
    return tuple(
        replace(part, value=part.value * factor, parts=_times(part.parts, factor), why=None) for part in parts
    )


def _passage_grid(pooling: _Pooling) -> tuple[Grid, ...]:
    """Return scores and shares of the passages that have parts, in reading order."""
    shown = sorted(pooling.order[:MOST_PARTS])
    if len(pooling.passages) < 2:
        return ()
    values = np.stack([pooling.scores[shown], pooling.added[shown]], axis=1).astype(np.float32)
    return (Grid("passages", tuple(map(pooling.name, shown)), ("score", "adds"), values),)


def _pool_notes(pooling: _Pooling, whys: Mapping[int, Explanation], doc_id: str) -> tuple[str, ...]:
    """Say which passage won, what was not looked into, and what the passages' own explanations note."""
    order, notes = pooling.order, []
    if len(order) == 1 < len(pooling.passages):
        notes.append(f"{pooling.name(order[0]).capitalize()} of {len(pooling.passages)} speaks for {doc_id}.")
        equals = int((pooling.scores == pooling.scores[order[0]]).sum())
        if equals > 1:
            notes.append(f"{equals} passages of {doc_id} have this score; the earliest is shown.")
    if len(order) > len(whys):
        notes.append(
            f"{len(whys)} of the {len(order):,} passages of {doc_id} that count were looked into; the words "
            "of the others were not."
        )
    several = len(pooling.passages) > 1
    for place, why in whys.items():
        notes += [f"{pooling.name(place).capitalize()}: {note}" if several else note for note in why.notes]
    return tuple(notes)


def _losses(document: Document, split: Split) -> tuple[str, ...]:
    lost = dropped_words(split)(document)
    cut = notation.name_of(split)
    return (f"{lost:,} words of {document.id} are in no passage ({cut}) and were not read.",) if lost else ()


@runtime_checkable
class _PairEncoder(Protocol):
    """An encoder that scores pairs as well: a ranker."""

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs, (n,)."""
        ...


def explain_dense(
    index: Index,
    vectors: Vectors,
    encoder: Encoder,
    query: Query,
    doc_id: str,
    options: ExplainOptions | None = None,
) -> Explanation:
    """Explain the score of a document in a search by vectors: which passage it is of, and why that one.

    An encoder that scores pairs as well explains the passage.

    Raises WrongUse: the index has no such document, or the document has no vector; BadIndex: the vectors are
    of another index or another encoder; BadModel: the encoder gave something that is no finite vector.
    """
    vectors.require_all(index).require_encoder(encoder)
    rows = vectors.rows_of(index.row_of(doc_id))
    if not len(rows):
        raise WrongUse(
            f'document "{doc_id}" has no text, so it has no vector and a search by vectors never finds it'
        )
    scores = rescore(vectors, encode_queries(vectors, encoder, [query])[0], rows)
    best, score, passages = int(np.argmax(scores)), float(scores.max()), list[Passage]()
    with suppress(WrongUse):  # cut by a function of someone's own, which only has a name
        split: Splitter = notation.make(vectors.state.policy, SPLITTERS, "splitter")
        passages = readable(index.documents[doc_id], split)
    is_known = len(passages) == len(rows)
    name = f"passage {passages[best].index + 1 if is_known else best + 1}"
    why, notes = None, ("The encoder scores no pairs, so the passage itself is not explained.",)
    if not is_known:
        notes = (f"What cut {doc_id} into passages is not known, so the passage itself is not explained.",)
    elif isinstance(encoder, _PairEncoder):
        why = explain_pair(encoder, Pair(query, passages[best]), options)
    note = ", ".join([f"{name} of {len(rows)}"] * (len(rows) > 1) + [vectors.state.similarity])
    facts = {"passage": float(best), "passages": float(len(rows))}
    return Explanation(
        query,
        doc_id,
        score,
        "nearest vector",
        exact=why is None or why.exact,
        unit=vectors.state.similarity,
        parts=(Part("best passage", score, note, facts, parts=_finer(why, score), why=why),),
        cost=why.cost + 1 if why else 0,
        texts=tuple(text._replace(name=name, value=score) for text in why.texts) if why else (),
        query_words=why.query_words if why else (),
        notes=why.notes if why else notes,
        ranker=encoder.fingerprint,
    )


def explain_impacts(
    searcher: ImpactSearcher, encoder: QueryWeigher, query: Query, doc_id: str, number: int
) -> Explanation:
    """Explain the score of a document in a search by impacts: a part for each word that both have.

    Args:
        number: Of the document in the index.

    Raises BadIndex: the impacts are of another encoder.
    """
    searcher.impacts.require_encoder(encoder)
    weights = weigh_queries(encoder, [query])
    words, values, impacts, score = impact_addends(searcher, weights, number)
    of_query = dict(zip(weights.indices.tolist(), weights.data.tolist(), strict=True))
    rows = sorted(
        zip(words.tolist(), values.tolist(), impacts.tolist(), strict=True), key=lambda row: -row[1]
    )
    return Explanation(
        query,
        doc_id,
        score,
        "impacts",
        exact=True,
        unit="dot",
        parts=tuple(
            Part(encoder.word(word), value, facts={"query": of_query[word], "passage": impact})
            for word, value, impact in rows
        ),
        notes=("Each part is a word of the model's vocabulary that has a weight for both, held or not.",),
        ranker=encoder.fingerprint,
    )


def _finer(why: Explanation | None, score: float) -> tuple[Part, ...]:
    """Return the parts of the passage's own score, and what the stored vector, which is rounded, changed."""
    if why is None:
        return ()
    left = score - math.fsum(part.value for part in why.parts)
    note = "the stored vector is rounded" + ("" if why.exact else ", and the method leaves something")
    return (*why.parts, Part("left by the parts", left, note)) if left else why.parts


SUMS: dict[str, Callable[..., Fusion]] = FUSIONS | {"mean": lambda: linear("raw")}
"""Methods of fusion whose score is a sum over runs."""


def explain_fused(
    method: str,
    runs: Mapping[str, Run],
    query: Query,
    doc_id: str,
    weights: Sequence[float] | None = None,
    whys: Mapping[str, Explanation] | None = None,
) -> Explanation:
    """Explain a document's score in a fusion: a part for each run.

    Args:
        method: In notation: ``linear("min-max")``, ``rrf``, ``combsum``, ``combmnz``, ``mean``.
        weights: One a run, as it was fused with; equal if not given.
        whys: Run's name -> why the document has the score it has there, for those that are known.

    Raises WrongUse: no such method, fewer than two runs, weights that do not fit, or the fusion lacks the
    document.
    """
    fusion = notation.make(method, SUMS, "fusion that is a sum over runs")
    several = [run.restrict([query.id]) for run in runs.values()]
    if notation.parse(method).name == "mean":  # of the runs that say anything of the query
        says = [bool(len(run.get(query.id, ()))) for run in several]
        weights = [one / sum(says) for one in says] if any(says) else None
    addends = fusion.addends(several, query.id, doc_id, weights)
    ranking = fusion(several, weights)[query.id]
    known = whys or {}
    parts = [_of_run(name, one, fusion, known.get(name)) for name, one in zip(runs, addends, strict=True)]
    return Explanation(
        query,
        doc_id,
        float(ranking.scores[ranking.doc_ids.index(doc_id)]),
        "sum over runs",
        exact=True,
        unit=notation.parse(method).name,
        parts=tuple(parts),
        cost=sum(why.cost for why in known.values()),
    )


def _of_run(name: str, one: Addend, fusion: Fusion, why: Explanation | None) -> Part:
    times = f" x {one.votes} runs that have it" if fusion.votes else ""
    if one.weight == 0:
        note = "weight 0: takes no part"
    elif not one.rank:
        worth = f"counts as its lowest, {one.value:.4g}" if fusion.missing == "min" else "adds nothing"
        note = f"does not have the document; {worth}"
    else:
        note = f"rank {one.rank:,}, score {one.score:.6g}: {one.value:.4g} x weight {one.weight:g}{times}"
    facts: dict[str, float] = {"weight": one.weight, "value": one.value}
    facts |= {"rank": one.rank, "score": one.score} if one.rank else {}
    facts |= {"votes": one.votes} if fusion.votes else {}
    return Part(name, one.added, note, facts, why=why)
