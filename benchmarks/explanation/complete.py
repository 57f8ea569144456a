"""Completeness: do parts sum to the score, and those of A - B to the difference, negated by a swap?"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from rankhouse.core.nouns import Pair, Query, Ranker
from rankhouse.explanation.answer import Explanation
from rankhouse.explanation.contrast import contrast
from rankhouse.explanation.lexical import LexicalExplainer
from rankhouse.explanation.methods import ExplainOptions, explain_pair
from rankhouse.index.index import Index
from rankhouse.index.lexical.search import LexicalOptions, retrieve

FIRST_STAGES = {
    "BM25": ("bm25", ""),
    "QL": ("ql", ""),
    "QL, Indri's form": ('ql(form="indri")', ""),
    "JM": ("jm", ""),
    "BM25 and RM3": ("bm25", "rm3"),
}

Answers = Iterable[tuple[Explanation, float]]


def of_ranker(ranker: Ranker, pairs: Sequence[Pair], options: ExplainOptions) -> Mapping[str, object]:
    """Explain pairs and measure what the parts leave of the scores, which are computed in one call for all.

    Args:
        ranker: What scores.
        pairs: What it scores.
        options: Method and unit.
    """
    scores = map(float, ranker.score(pairs))
    return _measured(
        (explain_pair(ranker, pair, options), score) for pair, score in zip(pairs, scores, strict=True)
    )


def of_first_stage(
    index: Index, queries: Sequence[Query], stage: str, count: int, seed: int = 0
) -> Mapping[str, object]:
    """Explain documents of the run and documents drawn from the whole index, half of each.

    Args:
        index: The index.
        queries: The questions.
        stage: A key of FIRST_STAGES.
        count: Pairs, at least.
        seed: Of the drawing.
    """
    options = LexicalOptions(*FIRST_STAGES[stage])
    explainer, run = LexicalExplainer(index, options), retrieve(index, queries, options)
    each, draws, ids = -(-count // (2 * len(queries))), random.Random(seed), list(index.documents)

    def answers() -> Iterator[tuple[Explanation, float]]:
        for query in queries:
            found = run[query.id].to_dict()
            retrieved = draws.sample(sorted(found), min(each, len(found)))
            for doc_id in [*retrieved, *draws.sample(ids, 2 * each - len(retrieved))]:
                answer = explainer.explain(query, doc_id)
                yield answer, float(found.get(doc_id, answer.score))

    return _measured(answers())


def _measured(answers: Answers) -> Mapping[str, object]:
    """Sum parts up again, apart from the answers' own sums, and hold them against the scores."""
    gaps, differences, swaps, exact = [], [0.0], [0.0], True
    last: Explanation | None = None
    for answer, score in answers:
        gaps.append(_gap(score, [part.value for part in answer.parts]))
        exact = exact and answer.exact
        if last is not None and last.query == answer.query:
            there, back = contrast(answer, last), contrast(last, answer)
            differences.append(_gap(answer.score - last.score, [part.value for part in there.parts]))
            values = {part.name: part.value for part in back.parts}
            swaps.append(max((abs(p.value + values[p.name]) for p in there.parts), default=0.0))
        last = answer
    told: dict[str, object] = {"pairs": len(gaps), "exact": exact}
    told |= {"median": float(np.median(gaps)), "p99": float(np.percentile(gaps, 99)), "most": max(gaps)}
    return told | {"contrasts": len(swaps) - 1, "difference": max(differences), "swap": max(swaps)}


def _gap(score: float, values: Sequence[float]) -> float:
    return abs(float(np.sum(np.array(values, np.float64))) - score) / max(1.0, abs(score))
