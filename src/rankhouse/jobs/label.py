"""label: its options, its work, and its shards, of which each holds the answers about its queries' pairs.

Negatives, and the figures about all pairs, depend on all answers, so they are left to the merge, which
fetches the texts of the chosen pairs and asks no teacher. It needs the job's inputs at their places.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData, MissingInput, WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Query, Ranker
from rankhouse.core.progress import LOST, Progress, unread_tokens
from rankhouse.core.run import Run
from rankhouse.core.scores import scale_of
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels
from rankhouse.jobs.jobs import MergeOptions, OfQueries, read_reports
from rankhouse.jobs.shards import Facts, Shard, ShardFolder
from rankhouse.labels import report
from rankhouse.labels.candidates import (
    NEGATIVES,
    PassageFile,
    Split,
    candidates,
    check_passages,
    read_passages,
)
from rankhouse.labels.label import LabelPlan, LabelResult, collect, label
from rankhouse.labels.leaf_rules import PASSAGE_MARK, judged, judges, passage_key
from rankhouse.labels.leakage import Overlap, QuerySet, keep_apart, overlap
from rankhouse.labels.rule_notation import Openers, read
from rankhouse.labels.rules import Rule
from rankhouse.page.tables import CommandResult, Table
from rankhouse.ranking.cache import CachedRanker
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.systems.teachers import Join
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

_ANSWERS: Final = "answers"


@dataclass(frozen=True, kw_only=True)
class LabelJob(OfQueries, ComputeOptions):
    """The options of ``rankhouse label``."""

    command: ClassVar[str] = "label"

    rule: Annotated[str, Option("judged(QRELS), taught(RANKER), ranked(RUN, k); join by & | ~.", "source")]
    queries: Annotated[str, Option("The texts of the run's queries.", "source")]
    field: Annotated[str, Option("The text field of the queries, if they have several.")] = ""
    index: Annotated[str, Option("The index that holds the documents.", "input")]
    run: Annotated[str, Option("The candidates.", "input")]
    depth: Annotated[int, Option("Documents per query.", least=1)] = 1000
    split: Annotated[str, Option('whole, "words(100)", "sentences(10, 5)" ...')] = "whole"
    passages: Annotated[
        str | None, Option('Passages already cut: JSON lines of {"doc_id", "index", "text"}.', "input")
    ] = None
    negatives: Annotated[
        str, Option('none, all, "all(depths=(1, 50))", "random(2, depths=(10, 100), seed=1)" ...')
    ] = "random(1)"
    negative_rule: Annotated[
        str | None, Option("Which pairs may be negatives; by default what no judge calls relevant.", "source")
    ] = None
    scores: Annotated[bool, Option("Write every pair that was scored, with score and scale.")] = False
    join: Join = "z-score"
    truth: Annotated[
        str | None, Option('Judgements of passages ("d#3" is passage 3 of d), to measure by.', "input")
    ] = None
    ask_all: Annotated[
        bool, Option("Let the teacher read every pair: a full comparison, the same labels.")
    ] = False
    shown: Annotated[int, Option("Changed pairs to show in the page and in JSON.", least=0, neutral=True)] = (
        25
    )
    test_queries: Annotated[
        str | None, Option("Queries kept for testing: a teacher must not label them.", "source")
    ] = None
    test_qrels: Annotated[
        str | None, Option("Their judgements, to find relevant pairs on both sides.", "input")
    ] = None
    allow_test: Annotated[bool, Option("Let the teacher label test queries anyway.")] = False
    cache: Annotated[
        Path | None, Option("Keep the teacher's scores in this folder.", "local", neutral=True)
    ] = None

    def open(self) -> LabelWorker:
        """Load the teachers, the run and the index."""
        return LabelWorker(self)

    def merge(self, shards: Sequence[ShardFolder], out: Path, options: MergeOptions) -> CommandResult:
        """Write PAIRS."""
        started = time.perf_counter()
        self._refuse_changed_inputs(shards[0])
        ready = prepared(self, _KnownTeachers(shards[0].manifest.found))
        plan = replace(ready.plan, answers=[shard.folder / _ANSWERS for shard in shards])
        _, result = ready.label(out, plan, options.report)
        reports = read_reports(shards)
        lost = {name: sum(one.get(name, 0) for one in reports) for name in LOST}  # 0: of earlier versions
        warnings = [*result.warnings, *_truncation(*lost.values())]
        seconds = time.perf_counter() - started + sum(one["seconds"] for one in reports)
        facts = {"seconds": round(seconds, 3)} | lost
        return result._replace(facts=result.facts | facts, warnings=warnings)

    def _refuse_changed_inputs(self, shard: ShardFolder) -> None:
        try:
            now, then = self.survey().identity, shard.manifest.identity
        except MissingInput as error:
            raise MissingInput(
                f"{shard}: what it was made of is not here ({error}); the pairs' texts are read again: "
                "merge in the folder where the shards were made, with the files that were there"
            ) from error
        if changed := [name for name in then if now.get(name) != then[name]]:
            raise BadData(
                f"{', '.join(changed)}: changed since {shard} was made, or not where it was; the pairs' "
                "texts are read again: merge where the shards were made, with the files that were there"
            )


class LabelWorker:
    """Asks about the pairs of queries of a job's run."""

    def __init__(self, job: LabelJob) -> None:
        self._teachers = Teachers(job, job.cache, ExitStack())
        self._ready = ready = prepared(job, self._teachers)
        plan = ready.plan
        self._rows = candidates(
            ready.run, ready.queries, ready.index.documents, split=plan.split, depth=plan.depth
        )

    @property
    def found(self) -> Facts:
        """The teachers, and what they compute on."""
        found: dict[str, str] = {}
        for number, ranker in enumerate(self._teachers.neural.values(), 1):
            found |= {
                f"weights of teacher {number}": ranker.fingerprint,
                f"scale of teacher {number}": scale_of(ranker),
                "device in use": ranker.compute.device.type,
                "precision in use": ranker.compute.precision,
            }
        return found

    def run(self, shard: Shard, folder: Path, progress: Progress) -> CommandResult:
        """Ask about the pairs of a shard."""
        before = self._unread()
        mine = list(self._rows.run)[shard.start : shard.stop]
        pairs = collect(
            self._ready.rule,
            self._rows,
            mine,
            folder=folder / _ANSWERS,
            plan=self._ready.plan,
            progress=progress,
        )
        lost = {name: now - before[name] for name, now in self._unread().items()}
        facts = {"queries": len(mine), "pairs": pairs} | lost
        return CommandResult(facts, warnings=[*self._ready.leaks, *_truncation(*lost.values())])

    def _unread(self) -> dict[str, int]:
        reports = [ranker.report for ranker in self._teachers.neural.values()]
        return {name: sum(getattr(one, name) for one in reports) for name in LOST}


class _KnownTeacher:
    """Stands for a teacher whose answers are known: it says what it is, and is never asked."""

    def __init__(self, fingerprint: str, scale: str) -> None:
        self.fingerprint, self.scale = fingerprint, scale

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Refuse: every pair was answered."""
        raise BadData(f"the shards lack the teacher's answers about {len(pairs):,} pairs; make them again")


class _KnownTeachers:
    """Stands for the teachers of shards, numbered by the order in which their names come first."""

    def __init__(self, found: Facts) -> None:
        self._found, self._numbers = found, dict[str, int]()

    def __call__(self, name: str) -> _KnownTeacher:
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        found = self._found
        return _KnownTeacher(found[f"weights of teacher {number}"], found[f"scale of teacher {number}"])


def _truncation(truncated: int, lost: int, of_queries: int) -> list[str]:
    unread = unread_tokens(lost, of_queries)
    return [f"{truncated:,} passages did not fit into the teachers; {unread}"] if truncated else []


@dataclass(frozen=True)
class Inputs:
    """Inputs of a labelling, checked; ``shared`` is None where no test data were named."""

    rule: Rule
    run: Run
    queries: list[Query]
    index: Index
    plan: LabelPlan
    shared: Overlap | None

    @property
    def leaks(self) -> list[str]:
        """Warnings about training and test data that overlap."""
        if self.shared is None or not self.shared.leaks:
            return []
        counts = ", ".join(f"{count:,} {what} ({some})" for what, count, some in self.shared.rows() if count)
        return [f"training and test data overlap: {counts}"]

    def label(
        self, out: Path, plan: LabelPlan, page: Path | None, progress: Progress | None = None
    ) -> tuple[LabelResult, CommandResult]:
        """Label, and write the page if one is wanted."""
        started, documents = time.perf_counter(), self.index.documents
        done = label(
            self.rule, self.run, self.queries, documents=documents, out=out, plan=plan, progress=progress
        )
        seconds = time.perf_counter() - started
        if page is not None:
            report.write_report(done, page, f"Labels in {out.name}")
        facts = report.labelling_record(done) | {"seconds": round(seconds, 3)}
        tables = [report.work_table(done), report.positives_table(done.agreement)]
        if done.agreement.confusions:
            tables.append(report.confusions_table(done.agreement))
        if self.shared is not None:
            facts["overlap"] = self.shared._asdict()
            rows = tuple((what, f"{count:,}", some) for what, count, some in self.shared.rows())
            tables.append(Table(("shared with the test data", "", ""), rows))
        return done, CommandResult(facts, _sentence(done), tables, self.leaks)


class Teachers:
    """Opens the rankers a rule names, with a cache around each if there is one; closed together.

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


def prepared(options: LabelJob, teachers: Callable[[str], Ranker]) -> Inputs:
    """Read and check everything that a labelling needs.

    Raises WrongUse for a notation that is none, and for a teacher that would label test queries;
    RankhouseError where a file cannot be read.
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
        cut, how, options.depth, pool=pool, truth=known, ask_all=options.ask_all, shown=options.shown,
        scores=options.scores, join=options.join, collection=index.fingerprint,
    )  # fmt: skip
    return Inputs(rule, run, asked, index=index, plan=plan, shared=shared)


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


def _cut(options: LabelJob, run: Run) -> Split:
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


def _sentence(done: LabelResult) -> str:
    """Return a labelling in words."""
    written = f"{done.relevant:,} relevant pairs and {done.non_relevant:,} negatives written to {done.out}"
    judged, removed = done.agreement.judged, done.agreement.removed
    if not removed:
        return written
    kept = f"{judged - removed:,} of {judged:,} judged pairs ({1 - removed / judged:.0%})"
    return f"{written}; the rule keeps {kept}"
