"""Runs and systems compared on judged questions, with significance; and how far two judges agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels, restrict
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import Comparison, compare
from rankhouse.labels.agreement import cohens_kappa
from rankhouse.serve.errors import UnknownName
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.runs import RunProgress
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.judging.training import few_questions

MEASURES: Final = "nDCG@10 RR@10 AP"
MOST_COMPARED: Final = 8


class CompareRequest(Struct, frozen=True):
    """What is compared; questions are sorted by the first measure."""

    names: Annotated[
        tuple[str, ...],
        Meta(min_length=1, max_length=MOST_COMPARED),
        Meta(description="Runs and systems, the baseline first; once for each."),
    ] = msgspec.field(name="name")
    measures: Annotated[str, Meta(description="In ir_measures' notation.")] = MEASURES
    test: Annotated[str, Meta(description="randomization or t.")] = "randomization"
    correction: Annotated[str, Meta(description="holm, bonferroni or none.")] = "holm"
    index: Annotated[str, Meta(description="Name of what systems search.")] = ""
    against: Annotated[str, Meta(description="What is compared with the baseline question by question.")] = ""


class ComparedQuery(Struct):
    """One question.

    Attributes:
        id: Its id.
        text: Its words.
        judged: Documents that are judged for it.
        values: Run -> value of the first measure.
        difference: By how much the run compared with the baseline is better.
    """

    id: str
    text: str
    judged: int
    values: dict[str, float]
    difference: float


@dataclass(frozen=True)
class ComparedRuns:
    """What came out, or how far it is.

    Attributes:
        progress: Of the systems' runs that are being made.
        comparison: Means, intervals and tests; None until all runs are there.
        pair: The two that are compared query by query.
        rows: The judged questions, those that differ most first.
    """

    request: CompareRequest
    progress: tuple[RunProgress, ...]
    comparison: Comparison | None = None
    pair: tuple[str, str] = ("", "")
    rows: tuple[ComparedQuery, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether there is something to see."""
        return self.comparison is not None


class ProgressInfo(Struct):
    """How far a system's run is: questions asked, of so many; why it cannot be made."""

    system: str
    done: int
    total: int
    fault: str


class CompareResponse(Struct):
    """Runs compared, or how far their runs are; ask again until it is ready.

    Attributes:
        ready: Whether all runs are there.
        progress: Of the systems' runs.
        method: How the numbers were computed.
        measure: What questions are sorted by.
        cells: Means, intervals and tests, as ``rankhouse evaluate --json`` prints them.
        queries: Those that differ most first.
        notes: What a reader should know.
    """

    ready: bool
    progress: list[ProgressInfo]
    method: str
    measure: str
    cells: list[dict[str, Any]]
    queries: list[ComparedQuery]
    notes: list[str]

    @classmethod
    def of(cls, told: ComparedRuns) -> CompareResponse:
        """Return a comparison as JSON."""
        progress = [ProgressInfo(one.system, one.done, one.total, one.fault) for one in told.progress]
        full: dict[str, Any] = {} if told.comparison is None else told.comparison.to_dict()
        measure = "" if told.comparison is None else told.comparison.measures[0]
        method, cells = full.get("method", ""), full.get("cells", [])
        return cls(
            told.is_ready,
            progress,
            method,
            measure,
            cells=cells,
            queries=list(told.rows),
            notes=list(told.notes),
        )


def comparable(service: ServedCollection, index: str = "") -> tuple[str, ...]:
    """Return the names that can be compared: runs that were given, then systems."""
    return tuple(dict.fromkeys([*service.runs, *service.catalogue.systems(index)]))


def compare_runs(service: ServedCollection, request: CompareRequest) -> ComparedRuns:
    """Compare runs on all questions that are judged; ``against``, or else the second run, query by query.

    Raises:
        UnknownName: There is no such run or system, or ``against`` is none of those compared.
        WrongUse: Fewer than one run or more than eight, nothing is judged, or an unknown measure or test.
        BadData: A run has nothing for any judged question.
    """
    against = request.against
    names = tuple(dict.fromkeys(request.names))
    if not 1 <= len(names) <= MOST_COMPARED:
        raise WrongUse(f"{len(names)} runs: name 1 to {MOST_COMPARED}, the baseline first")
    known = comparable(service, request.index)
    for name in names:
        if name not in known:
            raise UnknownName("run or system", name, known, "names")
    if against and against not in names:
        raise UnknownName("run among those compared", against, names, "against")
    queries = {query.id: query for query in service.known_queries()}
    qrels = service.known_qrels()
    if any(name not in service.runs for name in names):  # systems are asked the questions' texts
        qrels = restrict(qrels, queries)
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
    comparison = compare(
        runs, qrels, request.measures, baseline, test=request.test, correction=request.correction
    )
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
        pair,
        rows=_rows(comparison, pair, qrels, queries),
        notes=notes,
    )


def _learned(
    service: ServedCollection, names: Sequence[str], query_ids: Sequence[str], index: str
) -> Iterator[str]:
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


def _made(
    service: ServedCollection, names: Sequence[str], queries: Sequence[Query], index: str
) -> dict[str, RunProgress]:
    """Return the runs of those names that are systems, as far as they are made."""
    systems = [name for name in names if name not in service.runs]
    return {name: service.system_runs.progress(name, queries, index) for name in systems}


def _rows(
    comparison: Comparison, pair: tuple[str, str], qrels: Qrels, queries: Mapping[str, Query]
) -> tuple[ComparedQuery, ...]:
    measure, scores = comparison.measures[0], comparison.scores
    columns = {name: scores[name].of(measure).tolist() for name in scores}
    gains = comparison.differences(pair[1], measure) if comparison.challengers else ()
    gain = {row.query_id: row.difference for row in gains}
    rows = []
    for place, query_id in enumerate(comparison.query_ids):
        values = {name: column[place] for name, column in columns.items()}
        text, difference = queries[query_id].text if query_id in queries else "", gain.get(query_id, 0.0)
        rows.append(ComparedQuery(query_id, text, len(qrels[query_id]), values, difference=difference))
    return tuple(sorted(rows, key=lambda row: (-abs(row.difference), row.id)))


class Difference(NamedTuple):
    """A pair that two judges grade differently."""

    query_id: str
    doc_id: str
    first: int
    second: int


class AgreementInfo(Struct):
    """How far two judges agree; null where there is no such number.

    Attributes:
        first: One.
        second: The other.
        pairs: Pairs that both graded.
        same: The share of these with the same grade.
        kappa: Cohen's kappa.
        weighted: Quadratically weighted.
    """

    first: str
    second: str
    pairs: int
    same: float | None
    kappa: float | None
    weighted: float | None


def agreements(store: JudgementStore) -> list[AgreementInfo]:
    """Compare every two judges who graded a pair in common."""
    said = {judge: store.qrels_of(judge) for judge in store.judges}
    both = [agreement(one, other, said[one], said[other]) for one, other in combinations(said, 2)]
    return [one for one in both if one.pairs]


def agreement(first: str, second: str, mine: Qrels, theirs: Qrels) -> AgreementInfo:
    """Compare two judges on the pairs that both graded; NaN, null in JSON, where there is no number."""
    common = _common(mine, theirs)
    counts = Counter((one.first, one.second) for one in common)
    same = sum(count for (a, b), count in counts.items() if a == b)
    share = same / len(common) if common else math.nan
    return AgreementInfo(
        first, second, len(common), share, kappa=cohens_kappa(counts), weighted=cohens_kappa(counts, 2)
    )


def differences(mine: Qrels, theirs: Qrels) -> list[Difference]:
    """Return what two judges see differently, the largest differences first."""
    differing = (one for one in _common(mine, theirs) if one.first != one.second)
    return sorted(differing, key=lambda one: -abs(one.first - one.second))


def _common(mine: Qrels, theirs: Qrels) -> list[Difference]:
    return [
        Difference(query_id, doc_id, grade, theirs[query_id][doc_id])
        for query_id, judged in mine.items()
        for doc_id, grade in judged.items()
        if doc_id in theirs.get(query_id, {})
    ]
