"""Judged pairs scored for calibration: documents of a run, read as reranking reads them, or PAIRS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Ranker, by_id, require_texts
from rankhouse.core.progress import Progress
from rankhouse.core.qrels import RelevantFrom
from rankhouse.core.run import Run
from rankhouse.core.sameness import warn_of_mismatch
from rankhouse.core.scores import base_of, in_chunks, scale_of
from rankhouse.evaluation.calibration import METHODS, JudgedScores
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.pairs import UNDECIDED, LabelledPair, read_pairs
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.labels.label_noise import distinct
from rankhouse.ranking.rerank import Counter, Plan, Report, candidates, scored
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.reranking import RerankOptions, reading_plan, stored_for, with_cache

_POOLS = ("max", "first")
"""Pools that choose one passage's score, so that what is fitted on documents holds for passages."""


@dataclass(frozen=True, kw_only=True)
class CalibrateJob(ComputeOptions):
    """The options of ``rankhouse calibrate``."""

    ranker: Annotated[str, Option('A bundle folder, monot5("DIR"), crossencoder("DIR") ...', "source")]
    run: Annotated[Path | None, Option("Candidates of validation queries.", "input")] = None
    queries: Annotated[str | None, Option("The texts of its queries.", "source")] = None
    field: Annotated[str, Option("The text field of the queries, if they have several.")] = ""
    index: Annotated[Path | None, Option("The index that holds the documents.", "input")] = None
    qrels: Annotated[Path | None, Option("Judgements; documents without one are not relevant.", "input")] = (
        None
    )
    judged_only: Annotated[bool, Option("Leave out documents without a judgement.")] = False
    pairs: Annotated[tuple[Path, ...], Option("Labelled pairs instead, as label writes them.", "input")] = ()
    relevant_from: RelevantFrom = 1
    depth: Annotated[int, Option("Documents read per query.", least=0)] = 100
    split: Annotated[str, Option('"sentences(10, 5)" ...', default="as the bundle says, else whole")] = ""
    pool: Annotated[str, Option("max or first.", default="as the bundle says, else max")] = ""
    method: Annotated[
        str, Option("A logistic curve, or any rising curve (for many pairs).", choices=tuple(METHODS))
    ] = "platt"
    cache: Annotated[
        Path | None, Option("Folder for scores, to resume from after a kill.", "local", neutral=True)
    ] = None
    seed: Annotated[int, Option("Of folds and intervals.", least=0, most=2**32 - 1)] = 0

    def judged(self, ranker: Ranker, use: Mapping[str, str], progress: Progress) -> JudgedScores:
        """Score the judged pairs, or the judged documents of the run.

        Raises WrongUse where neither pairs nor all that a run needs were given, and for a pool that makes a
        new number of several passages' scores; BadData where a query of the run has no text.

        Args:
            use: How documents are passed to the ranker: "split" and "pool".
        """
        if self.pairs:
            pairs = (pair for path in self.pairs for pair in read_pairs(path))
            with ExitStack() as stack:
                return judged_pairs(with_cache(ranker, None, self.cache, stack), pairs, self.relevant_from)
        if self.run is None or self.queries is None or self.index is None or self.qrels is None:
            raise WrongUse("a run needs all of --run, --queries, --index and --qrels")
        run, qrels, index = read_run(self.run), read_qrels(self.qrels), Index.open(self.index)
        texts, tops = by_id(read_queries(self.queries, field=self.field)), run.top(self.depth)
        warn_of_mismatch({q: tops[q].doc_ids for q in tops}, "the run", qrels, "the judgements")
        split, pool = use.get("split", ""), use.get("pool", "")
        options = RerankOptions(split=split, pool=pool, depth=self.depth, cache=self.cache)
        scorer = stored_for(ranker, index, options)
        plan = reading_plan(ranker, options, scorer)
        if plan.pool.notation not in _POOLS:
            raise WrongUse(
                f"pool {plan.pool}: makes a number that no passage has, and judgements of documents say "
                f"nothing about single passages then; calibrate with {' or '.join(_POOLS)}"
            )
        if self.judged_only:
            judged = {q: qrels[q] for q in run if q in qrels}
            run = Run.of((q, h.doc_id, h.score) for q in judged for h in run[q] if h.doc_id in judged[q])
        require_texts([query_id for query_id in run if len(run[query_id].scores)], texts)
        report, ids, scores, yes = Report(), list[str](), list[float](), list[bool]()
        with ExitStack() as stack:
            ranker = with_cache(ranker, scorer, options.cache, stack)
            read = candidates(run, texts, index.documents, plan=plan, report=report)
            counter = Counter(progress, sum(plan.count(ranking) for ranking in run.values()))
            scale = base_of(scale_of(ranker))
            for one, values in scored(ranker, read, plan, report=report, counter=counter):
                if len(one.passages):  # documents without text are left out
                    ids.append(one.query.id)
                    scores.append(plan.pool(values, scale, [passage.index for passage in one.passages]))
                    yes.append(qrels.get(one.query.id, {}).get(one.doc_id, 0) >= self.relevant_from)
            return _judged(ranker, ids, scores, yes)


def judged_pairs(ranker: Ranker, pairs: Iterable[LabelledPair], relevant_from: int = 1) -> JudgedScores:
    """Score labelled pairs, each once; those that nobody decided are left out.

    Raises BadData where a pair is labelled both relevant and not; warns of a pair that is given twice.
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
