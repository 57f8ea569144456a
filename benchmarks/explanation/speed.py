"""Time and passes: processor time a pair on one thread, and how often the ranker is called for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Query, Ranker
from rankhouse.explanation.lexical import LexicalExplainer
from rankhouse.explanation.methods import ExplainOptions, explain_pair
from rankhouse.index.index import Index
from rankhouse.index.lexical.search import LexicalOptions
from rankhouse.models.ranker import NeuralRanker

from .complete import FIRST_STAGES


def of_ranker(ranker: Ranker, pairs: Sequence[Pair], options: ExplainOptions) -> Mapping[str, object]:
    """Return milliseconds of processor time a pair, median and 95th percentile, and of a score alone."""
    explain_pair(ranker, pairs[0], options)
    spent, alone, costs = [], [], []
    for pair in pairs:
        began = time.process_time()
        ranker.score([pair])
        scored = time.process_time()
        answer = explain_pair(ranker, pair, options)
        spent.append(1000 * (time.process_time() - scored))
        alone.append(1000 * (scored - began))
        costs.append(answer.cost)
    return dict(_told(spent, costs)) | {"score": float(np.median(alone))}


def of_first_stage(index: Index, pairs: Sequence[Pair], stage: str) -> Mapping[str, object]:
    """Return the same for a first stage; the search itself, once a query, is left out."""
    explainer = LexicalExplainer(index, LexicalOptions(*FIRST_STAGES[stage]))
    spent = []
    for query, passage in pairs:
        explainer.explain(query, passage.doc_id)
        began = time.process_time()
        explainer.explain(query, passage.doc_id)
        spent.append(1000 * (time.process_time() - began))
    return _told(spent, [0] * len(spent))


def _told(spent: Sequence[float], costs: Sequence[int]) -> Mapping[str, object]:
    return {
        "pairs": len(spent),
        "median": float(np.median(spent)),
        "p95": float(np.percentile(spent, 95)),
        "passes": float(np.mean(costs)) + 1,
    }


def twenty_sentences(ranker: NeuralRanker, query: Query, documents: Sequence[Document]) -> Mapping[str, int]:
    """Explain a text of 20 sentences and count what the ranker is asked: calls and pairs.

    Args:
        ranker: A transformer.
        query: The question.
        documents: Where sentences are taken from, short ones.
    """
    firsts = (" ".join(document.text.split()[:5]).strip(" .!?") for document in documents)
    text = " ".join(f"{first.capitalize()}." for first in firsts)
    calls: list[int] = []

    class Watched(NeuralRanker):
        def score(self, pairs: Sequence[Pair]) -> FloatArray:
            calls.append(len(pairs))
            return super().score(pairs)

    watched = Watched(ranker.model, ranker.compute)
    answer = explain_pair(watched, Pair(query, Passage("d", 0, text)), ExplainOptions(unit="sentence"))
    return {"sentences": len(answer.texts[0].words), "calls": len(calls), "passes": sum(calls)}
