"""Runs and systems compared on judged questions: means with significance, and where they differ most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels, restrict
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import Comparison, compare
from rankhouse.serve.contracts.errors import UnknownName
from rankhouse.serve.judging.known import Judging, few_questions, known_qrels, known_queries
from rankhouse.serve.judging.runs import RunProgress, SystemRuns
from rankhouse.serve.judging.training import TrainingJobs

MEASURES: Final = "nDCG@10 RR@10 AP"
MOST_COMPARED: Final = 8


class Comparing(Judging, Protocol):
    """The part of a service that comparing needs."""

    @property
    def runs(self) -> Mapping[str, Run]:
        """Runs that were given, by name."""
        ...

    @property
    def system_runs(self) -> SystemRuns:
        """Runs of systems."""
        ...

    @property
    def training(self) -> TrainingJobs:
        """Rankers that were trained from the judgements."""
        ...


@dataclass(frozen=True)
class CompareRequest:
    """What is compared.

    Attributes:
        names: Runs that were given and systems, the baseline first.
        measures: In ir_measures' notation; queries are sorted by the first of them.
        test: "randomization" or "t".
        correction: "holm", "bonferroni" or "none".
        index: Name of what systems search; "" for the default.
    """

    names: tuple[str, ...]
    measures: str = MEASURES
    test: str = "randomization"
    correction: str = "holm"
    index: str = ""


@dataclass(frozen=True)
class QueryRow:
    """One question.

    Attributes:
        query: It.
        judged: How many documents are judged for it.
        values: Run -> value of the first measure.
        difference: By how much the last of the two that are held against each other is better.
    """

    query: Query
    judged: int
    values: Mapping[str, float]
    difference: float


@dataclass(frozen=True)
class ComparedRuns:
    """What came out, or how far it is.

    Attributes:
        request: What was asked.
        progress: Of the systems' runs that are being made.
        comparison: Means, intervals and tests; None until all runs are there.
        measure: The measure that queries are sorted by.
        pair: The two that are held against each other, query by query.
        rows: The judged questions, those that differ most first.
        notes: What a reader should know.
    """

    request: CompareRequest
    progress: tuple[RunProgress, ...]
    comparison: Comparison | None = None
    measure: str = ""
    pair: tuple[str, str] = ("", "")
    rows: tuple[QueryRow, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether there is something to see."""
        return self.comparison is not None


def comparable(service: Comparing, index: str = "") -> tuple[str, ...]:
    """Return the names that can be compared: runs that were given, then systems.

    Args:
        index: Name of what systems search; "" for the default.
    """
    return tuple(dict.fromkeys([*service.runs, *service.catalogue.systems(index)]))


def compare_runs(service: Comparing, request: CompareRequest, against: str = "") -> ComparedRuns:
    """Compare runs on all questions that are judged.

    Args:
        against: The run that is held against the baseline query by query; "" for the second.

    Raises:
        UnknownName: There is no such run or system, or ``against`` is none of those compared.
        WrongUse: Fewer than one run or more than eight, nothing is judged, or an unknown measure or test.
        BadData: A run has nothing for any judged question.
    """
    names = tuple(dict.fromkeys(request.names))
    if not 1 <= len(names) <= MOST_COMPARED:
        raise WrongUse(f"{len(names)} runs: name 1 to {MOST_COMPARED}, the baseline first")
    known = comparable(service, request.index)
    for name in names:
        if name not in known:
            raise UnknownName("run or system", name, known, "names")
    if against and against not in names:
        raise UnknownName("run among those compared", against, names, "against")
    queries = {query.id: query for query in known_queries(service)}
    qrels = restrict(known_qrels(service), queries) if _needs_texts(service, names) else known_qrels(service)
    if not any(qrels.values()):
        raise WrongUse("nothing is judged yet; judge some documents, or start the service with --qrels FILE")
    progress = _made(service, names, [queries[q] for q in qrels if q in queries], request.index)
    if any(one.run is None for one in progress.values()):
        faults = tuple(f"{one.system}: {one.fault}" for one in progress.values() if one.fault)
        return ComparedRuns(request, tuple(progress.values()), notes=faults)
    runs = {
        name: progress[name].run or Run.of({}) if name in progress else service.runs[name] for name in names
    }
    baseline = names[0] if len(names) > 1 else None
    comparison = compare(runs, qrels, request.measures, baseline, request.test, request.correction)
    pair = (names[0], against or names[min(1, len(names) - 1)])
    notes = (
        *comparison.remarks,
        *few_questions(len(comparison.query_ids), "judged questions", "what systems differ by may be luck"),
        *_learned(service, names, comparison.query_ids, request.index),
    )
    return ComparedRuns(
        request,
        tuple(progress.values()),
        comparison,
        comparison.measures[0],
        pair,
        _rows(comparison, pair, qrels, queries),
        notes,
    )


def _learned(service: Comparing, names: Sequence[str], query_ids: Sequence[str], index: str) -> Iterator[str]:
    """Say which systems were trained on some of the questions that they are measured on."""
    taught = {job.request.name: job.learned for job in service.training.jobs()}
    systems = service.catalogue.systems(index)
    for name in names:
        ranker = systems[name].ranker if name in systems and name not in service.runs else ""
        if both := set(taught.get(ranker, ())).intersection(query_ids):
            yield (
                f"{name}: was trained on {len(both):,} of these {len(query_ids):,} questions; its numbers on "
                "them flatter it"
            )


def _needs_texts(service: Comparing, names: Sequence[str]) -> bool:
    return any(name not in service.runs for name in names)


def _made(
    service: Comparing, names: Sequence[str], queries: Sequence[Query], index: str
) -> dict[str, RunProgress]:
    """Return the runs of those names that are systems, as far as they are made."""
    systems = [name for name in names if name not in service.runs]
    return {name: service.system_runs.progress(name, queries, index) for name in systems}


def _rows(
    comparison: Comparison, pair: tuple[str, str], qrels: Qrels, queries: Mapping[str, Query]
) -> tuple[QueryRow, ...]:
    measure, scores = comparison.measures[0], comparison.scores
    columns = {name: scores[name].of(measure).tolist() for name in scores}
    gains = comparison.differences(pair[1], measure) if comparison.challengers else ()
    gain = {row.query_id: row.difference for row in gains}
    rows = []
    for place, query_id in enumerate(comparison.query_ids):
        values = {name: column[place] for name, column in columns.items()}
        query = queries.get(query_id, Query(query_id, ""))
        rows.append(QueryRow(query, len(qrels[query_id]), values, gain.get(query_id, 0.0)))
    return tuple(sorted(rows, key=lambda row: (-abs(row.difference), row.query.id)))
