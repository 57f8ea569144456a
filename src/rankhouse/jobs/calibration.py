"""Judged pairs scored for calibration: documents of a run, read as reranking reads them, or PAIRS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.options import Option
from rankhouse.core.overlap import warn_of_mismatch
from rankhouse.core.progress import Progress
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.scores import base_of, scale_of
from rankhouse.evaluation.calibration import METHODS, JudgedScores
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.duplicate_ids import by_id, require_texts
from rankhouse.io.pairs import UNDECIDED, LabelledPair, distinct, read_pairs
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.ranking.rerank import Counter, candidates, in_chunks, scored
from rankhouse.ranking.rerank_plan import Plan, Report
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.reranking import RerankOptions, reading_plan, with_cache

_POOLS = ("max", "first")
"""Pools that choose one passage's score, so that what is fitted on documents holds for passages."""


@dataclass(frozen=True, kw_only=True)
class CalibrateJob(ComputeOptions):
    """The options of ``rankhouse calibrate``."""

    ranker: Annotated[str, Option('A bundle folder, monot5("DIR"), crossencoder("DIR") ...', kind="source")]
    run: Annotated[Path | None, Option("Candidates of validation queries.", kind="input")] = None
    queries: Annotated[str | None, Option("The texts of its queries.", kind="source")] = None
    field: Annotated[str, Option("Which text of the queries, where they have several.")] = ""
    index: Annotated[Path | None, Option("The index that holds the documents.", kind="input")] = None
    qrels: Annotated[
        Path | None, Option("Judgements; documents without one are not relevant.", kind="input")
    ] = None
    judged_only: Annotated[bool, Option("Leave out documents without a judgement.")] = False
    pairs: Annotated[
        tuple[Path, ...], Option("Labelled pairs instead, as label writes them.", kind="input")
    ] = ()
    relevant_from: Annotated[
        int, Option("The lowest grade that means relevant.", least=1, metavar="GRADE")
    ] = 1
    depth: Annotated[int, Option("Documents read a query.", least=0)] = 100
    split: Annotated[str, Option('"sentences(10, 5)" ...', default="as the bundle says, else whole")] = ""
    pool: Annotated[str, Option("max or first.", default="as the bundle says, else max")] = ""
    method: Annotated[
        str,
        Option(
            "A logistic curve, or a curve that only has to rise (for many pairs).", choices=tuple(METHODS)
        ),
    ] = "platt"
    cache: Annotated[
        Path | None, Option("Keep scores in this folder, and go on from there after a kill.", kind="local")
    ] = None
    seed: Annotated[int, Option("Of folds and intervals.", least=0, most=2**32 - 1)] = 0

    def judged(self, ranker: Ranker, use: Mapping[str, str], progress: Progress) -> JudgedScores:
        """Score the judged pairs, or the judged documents of the run.

        Args:
            use: How documents are passed to the ranker: "split" and "pool".

        Raises:
            WrongUse: Neither pairs nor all that a run needs were given.
        """
        if self.pairs:
            pairs = (pair for path in self.pairs for pair in read_pairs(path))
            return judged_pairs(ranker, pairs, self.relevant_from)
        if self.run is None or self.queries is None or self.index is None or self.qrels is None:
            raise WrongUse("a run needs all of --run, --queries, --index and --qrels")
        source = JudgedRun(
            run=read_run(self.run),
            queries=read_queries(self.queries, field=self.field),
            qrels=read_qrels(self.qrels),
            index=Index.open(self.index),
            relevant_from=self.relevant_from,
            judged_only=self.judged_only,
        )
        split, pool = use.get("split", ""), use.get("pool", "")
        options = RerankOptions(split=split, pool=pool, depth=self.depth, cache=self.cache)
        return judged_documents(ranker, source, options, progress)


@dataclass(frozen=True)
class JudgedRun:
    """Candidates and their judgements; with ``judged_only`` those without one are left out."""

    run: Run
    queries: Sequence[Query]
    qrels: Qrels
    index: Index
    relevant_from: int = 1
    judged_only: bool = False

    @cached_property
    def candidates(self) -> Run:
        """The documents that count, in the run's order."""
        if not self.judged_only:
            return self.run
        rows = {q: zip(*self.run[q][:2], strict=True) for q in self.run if q in self.qrels}
        return Run.of((q, d, float(s)) for q, row in rows.items() for d, s in row if d in self.qrels[q])

    def is_relevant(self, query_id: str, doc_id: str) -> bool:
        """Return what the judges say."""
        return self.qrels.get(query_id, {}).get(doc_id, 0) >= self.relevant_from


def judged_documents(
    ranker: Ranker, judged: JudgedRun, options: RerankOptions, progress: Progress | None = None
) -> JudgedScores:
    """Score a run's documents as reranking would; those without text are left out.

    Raises:
        WrongUse: A pool that makes a new number of several passages' scores.
        BadData: A query of the run has no text.
    """
    tops = judged.run.top(options.depth)
    warn_of_mismatch({q: tops[q].doc_ids for q in tops}, "the run", judged.qrels, "the judgements")
    plan, scorer = reading_plan(ranker, judged.index, options)
    if plan.pool.notation not in _POOLS:
        raise WrongUse(
            f"pool {plan.pool}: makes a number that no passage has, and judgements of documents say nothing "
            f"about single passages then; calibrate with {' or '.join(_POOLS)}"
        )
    ids: list[str] = []
    scores: list[float] = []
    yes: list[bool] = []
    with ExitStack() as stack:
        ranker = with_cache(ranker, scorer, options.cache, stack)
        for query_id, doc_id, score in _pooled(ranker, judged, plan, progress):
            ids.append(query_id)
            scores.append(score)
            yes.append(judged.is_relevant(query_id, doc_id))
        return _judged(ranker, ids, scores, yes)


def _pooled(
    ranker: Ranker, judged: JudgedRun, plan: Plan, progress: Progress | None
) -> Iterator[tuple[str, str, float]]:
    """Stream (query id, document id, pooled score)."""
    run, texts = judged.candidates, by_id(judged.queries)
    require_texts([query_id for query_id in run if len(run[query_id].scores)], texts)
    report, scale = Report(), base_of(scale_of(ranker))
    counter = Counter(progress, sum(min(plan.depth, len(run[query_id].scores)) for query_id in run))
    read = candidates(run, texts, judged.index.documents, plan=plan, report=report)
    for one, values in scored(ranker, read, plan, report=report, counter=counter):
        if len(one.passages):
            indexes = [passage.index for passage in one.passages]
            yield one.query.id, one.doc_id, plan.pool(values, scale, indexes)


def judged_pairs(ranker: Ranker, pairs: Iterable[LabelledPair], relevant_from: int = 1) -> JudgedScores:
    """Score labelled pairs, each once; those that nobody decided are left out.

    Raises:
        BadData: A pair is labelled both relevant and not.

    Warns:
        RankhouseWarning: A pair is given twice.
    """
    decided = (pair for pair in pairs if pair.label != UNDECIDED)
    rows = list(distinct(decided, lambda pair: int(pair.label >= relevant_from), "labels"))
    scores = in_chunks(ranker.score, [row.pair for row in rows], Plan().chunk)
    return _judged(ranker, [r.query_id for r in rows], scores, [r.label >= relevant_from for r in rows])


def _judged(
    ranker: Ranker, ids: Sequence[str], scores: Sequence[float] | np.ndarray, yes: Sequence[bool]
) -> JudgedScores:
    columns = np.asarray(scores, np.float32), np.array(yes, np.bool_)
    return JudgedScores(tuple(ids), *columns, base_of(scale_of(ranker)))
