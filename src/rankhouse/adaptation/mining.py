"""Hard negatives from the student itself: between two parts of its training it says what it would put first.

After Xiong et al., "Approximate Nearest Neighbor Negative Contrastive Learning" (2021), among a question's
candidates. What the teacher likes as much as the question's own document is no negative, and left out.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from rankhouse.adaptation.options import QUESTIONS, Adaptation
from rankhouse.adaptation.questions import Questions, pairs_of
from rankhouse.core.nouns import Documents, Query, Ranker, Ranking
from rankhouse.core.progress import say
from rankhouse.core.run import Run
from rankhouse.core.sampling import order
from rankhouse.io.checksums import write_checked
from rankhouse.io.decoding import read_cache
from rankhouse.io.trec import read_run, write_run
from rankhouse.ranking.rerank import Plan, rerank

_BEST: Final = 20
"""Candidates that the student puts first are kept of a question."""
MINING_SHARE: Final = 0.1
"""Of the training's time, for one mining."""
_PORTION, _ALL = 32, 1_000_000


class MiningResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of mining."""

    questions: int  # whose candidates were ordered by the student
    candidates: int  # of them, how many are learned from now
    false_negatives: int  # how many were left out, since the teacher likes them as much as the own document


def mine(
    job: Adaptation, student: Ranker, found: Questions, part: int, seconds: float
) -> tuple[Run, MiningResult]:
    """Return the candidates of all questions, those of as many as there is time for ordered by the student.

    What was mined before this part already is read.
    """
    path = job.folder / QUESTIONS / f"mined-{part}.run"
    if (counts := read_cache(path.with_suffix(".json"), MiningResult)) is None:
        queries = sorted(found.queries, key=lambda query: order(job.options.seed + part, query.id))
        counts = _write(
            job, student, found._replace(queries=queries), path=path, seconds=MINING_SHARE * seconds
        )
    fresh = read_run(path)
    say(
        f"the student's own best: {counts.candidates:,} candidates of {counts.questions:,} questions; "
        f"{counts.false_negatives:,} more, which the teacher likes as much as the question's own document, "
        "were left out"
    )
    before = found.candidates
    return Run.from_rankings({q: (fresh if q in fresh else before)[q] for q in before}), counts


def _write(job: Adaptation, student: Ranker, found: Questions, path: Path, seconds: float) -> MiningResult:
    index, progress, began = job.index, job.show("mining"), time.monotonic()
    queries = [
        query for query in found.queries if query.id in found.candidates and query.id not in found.first
    ]
    kept, removed, done = dict[str, Ranking](), 0, 0
    while done < len(queries) and (not done or time.monotonic() - began < seconds):
        progress(done, len(queries))
        some = queries[done : done + _PORTION]
        first = found.candidates.restrict([query.id for query in some])
        best = rerank(student, first, some, index.documents, plan=Plan(depth=_ALL)).top(_BEST)
        for query in some:
            doc_ids = best[query.id].doc_ids
            own = [doc_id for doc_id in found.own.get(query.id, {}) if doc_id in index.documents]
            true = _true_negatives(query, doc_ids, own, teacher=found.teacher, documents=index.documents)
            removed += len(doc_ids) - len(true)
            if len(true) > 1:
                kept[query.id] = Ranking(tuple(true), -np.arange(len(true), dtype=np.float32))
        done += len(some)
    write_run(Run.from_rankings(kept), path, "mined")
    candidates = sum(len(ranking.doc_ids) for ranking in kept.values())
    counts = MiningResult(questions=done, candidates=candidates, false_negatives=removed)
    write_checked(path.with_suffix(".json"), counts, [path])
    return counts


def _true_negatives(
    query: Query, doc_ids: tuple[str, ...], own: list[str], teacher: Ranker, documents: Documents
) -> list[str]:
    """Return the documents that the teacher puts below the question's own ones, and these."""
    if not own:
        return list(doc_ids)
    others = [doc_id for doc_id in doc_ids if doc_id not in own]
    scores = teacher.score(pairs_of(query, (*own, *others), documents))
    least = scores[: len(own)].min()
    below = {d for d, score in zip(others, scores[len(own) :], strict=True) if score < least}
    return [d for d in doc_ids if d in own or d in below]
