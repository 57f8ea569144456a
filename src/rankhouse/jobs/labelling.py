"""Labelling with everything that goes with it: teachers, test queries kept apart, what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.labels import report
from rankhouse.labels.candidates import PassageFile, Split, check_passages, read_passages
from rankhouse.labels.label import LabelPlan, LabelResult
from rankhouse.labels.leaf_rules import PASSAGE_MARK, judged, judges, passage_key
from rankhouse.labels.leakage import Overlap, QuerySet, keep_apart, overlap
from rankhouse.labels.negative_sampling import NEGATIVES
from rankhouse.labels.rule_notation import Openers, read
from rankhouse.labels.rules import Rule
from rankhouse.page.tables import Table
from rankhouse.ranking.cache import CachedRanker
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


@dataclass(frozen=True)
class LabelOptions:
    """The options of ``rankhouse label`` that say what is labelled, by the same names."""

    rule: str
    queries: str
    index: str
    run: str
    field: str = ""
    depth: int = 1000
    split: str = "whole"
    passages: str | None = None
    negatives: str = "random(1)"
    negative_rule: str | None = None
    scores: bool = False
    join: str = "z-score"
    truth: str | None = None
    ask_all: bool = False
    shown: int = 25
    test_queries: str | None = None
    test_qrels: str | None = None
    allow_test: bool = False

    @cached_property
    def first_stage(self) -> Run:
        """The run, read once: it may have millions of rows."""
        return read_run(self.run)


@dataclass(frozen=True)
class Labelling:
    """Everything that a labelling needs, read and checked.

    Attributes:
        rule: What is relevant.
        run: The candidates.
        queries: Texts of the run's queries.
        index: Where the documents are.
        plan: Split, negatives and the rest.
        shared: What training and test data share; None where no test data were named.
    """

    rule: Rule
    run: Run
    queries: list[Query]
    index: Index
    plan: LabelPlan
    shared: Overlap | None


class Teachers:
    """Opens the rankers a rule names, with a cache around each if there is one; closed together.

    Args:
        cache: Where to keep scores; None keeps none.

    Attributes:
        neural: Name -> ranker, in the order they were opened.
    """

    def __init__(self, compute: ComputeOptions, cache: Path | None, stack: ExitStack) -> None:
        self._compute, self._cache, self._stack = compute, cache, stack
        self.neural: dict[str, NeuralRanker] = {}

    def __call__(self, name: str) -> Ranker:
        """Open a ranker by its notation."""
        ranker = self.neural[name] = open_ranker(name, self._compute)
        if self._cache is None:
            return ranker
        return self._stack.enter_context(closing(CachedRanker(ranker, self._cache)))


def prepared(options: LabelOptions, teachers: Callable[[str], Ranker]) -> Labelling:
    """Read and check everything that a labelling needs.

    Raises:
        WrongUse: A notation that is none, or a teacher that would label test queries.
        RankhouseError: A file cannot be read.
    """
    test = QuerySet(
        read_queries(options.test_queries) if options.test_queries else (),
        read_qrels(options.test_qrels) if options.test_qrels else {},
    )
    asked, run = read_queries(options.queries, field=options.field), options.first_stage
    how = notation.make(options.negatives, NEGATIVES, "way to choose negatives")
    cut = _cut(options, run)
    known = _truth(options.truth) if options.truth else None
    index, openers = Index.open(options.index), Openers(ranker=teachers)
    rule = read(options.rule, openers)
    pool = read(options.negative_rule, openers) if options.negative_rule else None
    shared = _guard(rule, [q for q in asked if q.id in run], test, index, allow_test=options.allow_test)
    plan = LabelPlan(
        cut, how, options.depth, pool, known, options.ask_all, collection=index.fingerprint,
        shown=options.shown, scores=options.scores, join=options.join,
    )  # fmt: skip
    return Labelling(rule, run, asked, index, plan, shared)


def _truth(file: str) -> Rule:
    """Return the rule of passages judged; refuse judgements of documents, which no passage would match."""
    qrels = read_qrels(file)
    keys = [key for grades in qrels.values() for key in grades]
    if keys and not any(PASSAGE_MARK in key for key in keys):
        raise WrongUse(
            f'--truth {file}: judges documents ("{keys[0]}"), not passages; write '
            f'"{passage_key(keys[0], 0)}" for the first passage of one (the only one with --split whole)'
        )
    return judged(qrels, by="passage", name=file)


def _cut(options: LabelOptions, run: Run) -> Split:
    """Return what cuts documents into passages, or has them cut already."""
    if options.passages is None:
        return notation.make(options.split, SPLITTERS, "splitter")
    if options.split != "whole":
        raise WrongUse("give either --split or --passages")
    cut = read_passages(Path(options.passages))
    if isinstance(cut, PassageFile):
        check_passages(cut, run, options.depth)
    return cut


def _guard(
    rule: Rule, queries: list[Query], test: QuerySet, index: Index, *, allow_test: bool
) -> Overlap | None:
    """Refuse to let a teacher label test queries, and find whatever else both sides share."""
    if not test.queries and not test.qrels:
        return None
    keep_apart(rule, queries, test, allow_test=allow_test)
    qrels = {q: judge.qrels[q] for judge in judges(rule) for q in judge.qrels if judge.by == "document"}
    return overlap(QuerySet(queries, qrels), test, index.documents)


def leaks(shared: Overlap | None) -> list[str]:
    """Return what the user should know of training and test data that overlap."""
    if shared is None or not shared.leaks:
        return []
    counts = ", ".join(f"{count:,} {what} ({some})" for what, count, some in shared.rows() if count)
    return [f"training and test data overlap: {counts}"]


def label_facts(done: LabelResult, shared: Overlap | None, seconds: float) -> dict[str, Any]:
    """Return a labelling as plain values."""
    record = report.labelling_record(done) | {"seconds": round(seconds, 3)}
    return record | ({"overlap": shared._asdict()} if shared else {})


def label_tables(done: LabelResult, shared: Overlap | None) -> Sequence[Table]:
    """Return a labelling as tables."""
    tables = [report.work_table(done), report.positives_table(done.agreement)]
    if done.agreement.confusions:
        tables.append(report.confusions_table(done.agreement))
    if shared is not None:
        rows = tuple((what, f"{count:,}", some) for what, count, some in shared.rows())
        tables.append(Table(("shared with the test data", "", ""), rows))
    return tables


def label_sentence(done: LabelResult) -> str:
    """Return a labelling in words."""
    written = f"{done.relevant:,} relevant pairs and {done.non_relevant:,} negatives written to {done.out}"
    judged, removed = done.agreement.judged, done.agreement.removed
    if not removed:
        return written
    kept = f"{judged - removed:,} of {judged:,} judged pairs ({1 - removed / judged:.0%})"
    return f"{written}; the rule keeps {kept}"
