"""The verbs: rerank, fuse, label, evaluate, write. Each takes the thing or its notation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Literal

from rankhouse.api.index import as_index
from rankhouse.api.session import working
from rankhouse.core import notation
from rankhouse.core.arguments import checked
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Ranker
from rankhouse.core.progress import OnProgress
from rankhouse.core.run import Run
from rankhouse.evaluation import measures as measuring
from rankhouse.evaluation.measures import Scores
from rankhouse.index.index import Index
from rankhouse.io import trec
from rankhouse.io.files import PathLike, as_path, wrong_kind
from rankhouse.io.inputs import (
    QrelsLike,
    QueriesLike,
    RunLike,
    as_list,
    as_measures,
    as_qrels,
    as_queries,
    as_run,
    as_runs,
)
from rankhouse.labels import label as labelling
from rankhouse.labels.candidates import NEGATIVES
from rankhouse.labels.label import LabelResult
from rankhouse.labels.rule_notation import Openers, read
from rankhouse.labels.rules import Rule
from rankhouse.ranking.pairwise import DEPTH as PAIRWISE_DEPTH
from rankhouse.systems.rankers import as_ranker, is_pairwise
from rankhouse.systems.reranking import RerankOptions, as_reranker, rerank_with
from rankhouse.text.split import SPLITTERS
from rankhouse.training.tuning import Tuning, fusion_method


@checked
def rerank(
    ranker: str | os.PathLike[str] | Ranker,
    run: RunLike,
    queries: QueriesLike,
    index: Index | PathLike,
    *,
    split: str = "",
    pool: str = "",
    depth: int | None = None,
    tail: Literal["keep", "drop"] = "keep",
    see: float = 1.0,
    stored: bool | None = None,
    alone: bool = False,
    cache: PathLike | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Let a ranker read and reorder the documents of a run.

    >>> import numpy as np, rankhouse as rh
    >>> class Shortest:
    ...     fingerprint, scale = "shortest", "score"
    ...     def score(self, pairs):
    ...         return np.array([-len(pair.passage.text) for pair in pairs], np.float32)
    >>> index = rh.Index.build([{"id": "a", "text": "ships, ships"}, {"id": "b", "text": "ships"}], "i")
    >>> run = index.retrieve({"q": "ships"})
    >>> rh.rerank(Shortest(), run, {"q": "ships"}, index)["q"].doc_ids
    ('b', 'a')

    Args:
        ranker: A ranker, or what :func:`open_ranker` opens.
        run: The first stage.
        queries: Texts of its queries.
        index: The index of the documents.
        split: How long documents are cut, for example ``sentences(10, 5)``; "" reads them whole, or
            as what the index stores for this ranker was cut.
        pool: The pool of a document's passages' scores: ``max``, ``first``, ``sum``, ``mean`` ...; "" for
            max, or as stored.
        depth: How many documents a query are read; None: 1000, and 50 for duot5, which compares every two.
        tail: Whether documents below the depth are kept, in their order.
        see: Share of these documents that is read, those that the first stage and their words put first.
        stored: Insist on what the index stores for this ranker, or do without; None: used if there.
        alone: Read queries one by one, as people ask them.
        cache: A folder in which scores are kept for the next time.
        on_progress: Takes a :class:`ProgressReport` now and then; None shows a bar.

    Raises:
        WrongUse: An unknown splitter, pool or family.
        BadData: A query of the run without a text.
    """
    pairwise = is_pairwise(ranker)
    if pairwise and (pool or cache or alone or stored is not None):
        raise WrongUse(
            f"{ranker}: compares documents two by two; stored, alone, pool and cache do not apply to it"
        )
    options = RerankOptions(
        depth=(PAIRWISE_DEPTH if pairwise else 1000) if depth is None else depth,
        split=split,
        pool=pool,
        stored=stored,
        tail=tail,
        see=see,
        alone=alone,
        cache=as_path(cache, "cache") if cache else None,
    )
    first, asked, stored_in = as_run(run), as_queries(queries), as_index(index)
    with working("reranking", None, "pairs", on_progress) as show:
        return rerank_with(as_reranker(ranker), first, asked, stored_in, options=options, progress=show).run


@checked
def fuse(
    runs: Sequence[RunLike],
    method: str = "linear",
    *,
    weights: Sequence[float] | None = None,
    tune: QrelsLike | None = None,
    measure: str = "AP",
    apply: Sequence[RunLike] | None = None,
) -> Run:
    """Join several runs into one.

    >>> import rankhouse as rh
    >>> first, second = rh.Run.of({"q": {"a": 2.0, "b": 1.0}}), rh.Run.of({"q": {"b": 9.0, "c": 8.0}})
    >>> rh.fuse([first, second], "rrf(k=60)")["q"].doc_ids
    ('b', 'a', 'c')

    Args:
        runs: The runs.
        method: ``linear``, ``linear("z-score")``, ``rrf(k=60)``, ``combsum``, ``combmnz``, ``mean``,
            ``best``, ``greedy``, ``sentences``, ``depth``.
        weights: One a run, for the weighted methods.
        tune: Judgements to settle weights, choice or depth by.
        measure: The measure that tuning maximises.
        apply: Runs of the same systems on other queries, to be joined as settled on ``runs``.

    Raises:
        WrongUse: An unknown method, or weights where they have no meaning.
    """
    if weights is not None and tune is not None:
        raise WrongUse("give either weights or tune, not both")
    read_runs = as_runs(runs, "runs")
    others = read_runs if apply is None else as_runs(apply, "apply")
    if len(others) != len(read_runs):
        raise WrongUse(
            f"{len(others)} runs to apply to for {len(read_runs)} runs; give one for each, in order"
        )
    settle = fusion_method(method, None if weights is None else _numbers(weights))
    tuning = None if tune is None else Tuning(as_qrels(tune), measure)
    joined = settle([f"run {number}" for number in range(1, len(read_runs) + 1)], read_runs, tuning)
    return joined.join(others)


def _numbers(weights: Sequence[float]) -> tuple[float, ...]:
    numbers = as_list(weights, "weights", "one number a run, for example [0.7, 0.3]")
    for number in numbers:
        if not isinstance(number, Real):
            raise wrong_kind("a weight", number, "a number")
    return tuple(numbers)


@checked
def evaluate(run: RunLike, qrels: QrelsLike, measures: str | Iterable[str] = "AP nDCG@10") -> Scores:
    """Measure a run against judgements; every judged query counts.

    >>> import rankhouse as rh
    >>> print(rh.evaluate({"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 1}}, "AP RR@10"))
    AP     0.5000
    RR@10  0.5000

    Args:
        run: The system's run.
        qrels: The judgements.
        measures: In ir_measures' notation.

    Raises:
        WrongUse: An unknown measure.
        BadData: No query is in both.
    """
    return measuring.evaluate(as_run(run), as_qrels(qrels), as_measures(measures))


@checked
def label(
    rule: str | Rule,
    run: RunLike,
    queries: QueriesLike,
    index: Index | PathLike,
    *,
    out: PathLike,
    split: str = "whole",
    negatives: str = "random",
    depth: int = 1000,
    scores: bool = False,
    join: str = "z-score",
    on_progress: OnProgress | None = None,
) -> LabelResult:
    """Label the pairs of a run by a rule and write them as a PAIRS file; a killed call goes on.

    >>> import rankhouse as rh
    >>> index = rh.Index.build([{"id": "a", "text": "ships"}, {"id": "b", "text": "ships sail"}], "i")
    >>> rh.write_qrels({"q": {"a": 1}}, "qrels.txt")
    >>> run = index.retrieve({"q": "ships"})
    >>> labels = rh.label("judged('qrels.txt')", run, {"q": "ships"}, index, out="pairs.jsonl")
    >>> labels.relevant, labels.non_relevant
    (1, 1)

    Args:
        rule: ``judged("qrels.txt") & taught("DIR", threshold=0.5)``, or rules joined in Python.
        run: The candidates.
        queries: Texts of the run's queries.
        index: The index of the documents.
        out: The PAIRS file to write.
        split: How documents are cut into passages.
        negatives: The non-relevant pairs to write: ``random(per=1)``, ``all``, ``none``.
        depth: How many documents a query are looked at.
        scores: Write every pair that a teacher or run of the rule scored, with its score and scale.
        join: The way to join several teachers' scores: ``z-score`` or ``ranks``, within each query.
        on_progress: Takes a :class:`ProgressReport` now and then; None shows a bar.

    Raises:
        WrongUse: A rule that cannot be read, or another process writes the file.
        BadModel: A teacher gave something that is no score.
    """
    stored = as_index(index)
    plan = labelling.LabelPlan(
        split=notation.make(split, SPLITTERS, "splitter"),
        negatives=notation.make(negatives, NEGATIVES, "way to choose negatives"),
        depth=depth,
        collection=stored.fingerprint,
        scores=scores,
        join=join,
    )
    if not isinstance(rule, str | Rule):
        raise wrong_kind("rule", rule, "a rule, for example judged('qrels.txt')")
    parsed = read(rule, Openers(ranker=as_ranker)) if isinstance(rule, str) else rule
    candidates, asked, target = as_run(run), as_queries(queries), as_path(out, "out")
    with working("labelling", None, "pairs", on_progress) as show:
        return labelling.label(
            parsed, candidates, asked, stored.documents, out=target, plan=plan, progress=show
        )


@checked
def write_run(run: RunLike, path: PathLike, tag: str = "rankhouse") -> None:
    """Write a TREC run; scores in the fewest digits that read back as the same float32.

    >>> import rankhouse as rh
    >>> rh.write_run({"q": {"a": 1.5}}, "my.run", tag="mine")
    >>> from pathlib import Path
    >>> print(Path("my.run").read_text(), end="")
    q Q0 a 1 1.5 mine

    Args:
        run: The run, or what stands for one in other verbs; queries without documents leave no row.
        path: The file to write; ".gz" or ".zst" compresses it.
        tag: The last column: the system's name, without white space.

    Raises:
        WrongUse: The tag, or an id, has white space in it.
        OutputFailed: The file cannot be written; whatever stood there before still does.
    """
    trec.write_run(as_run(run), as_path(path, "path"), tag)


@checked
def write_qrels(qrels: QrelsLike, path: PathLike) -> None:
    """Write TREC qrels.

    >>> import rankhouse as rh
    >>> rh.write_qrels({"q": {"a": 1, "b": 0}}, "qrels.txt")
    >>> from pathlib import Path
    >>> print(Path("qrels.txt").read_text(), end="")
    q 0 a 1
    q 0 b 0

    Args:
        qrels: The judgements, or what stands for them in other verbs.
        path: The file to write; ".gz" or ".zst" compresses it.

    Raises:
        WrongUse: An id is empty or has white space in it.
        OutputFailed: The file cannot be written; whatever stood there before still does.
    """
    trec.write_qrels(as_qrels(qrels), as_path(path, "path"))
