"""Runs and systems compared on judged questions, with significance; and how far two judges agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels, restrict
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
    """Systems and measures to compare; questions are sorted by the first measure."""

    names: Annotated[
        tuple[str, ...],
        Meta(min_length=1, max_length=MOST_COMPARED),
        Meta(description="Runs and systems, the baseline first; once for each."),
    ] = msgspec.field(name="name")
    measures: Annotated[str, Meta(description="In ir_measures' notation.")] = MEASURES
    test: Annotated[str, Meta(description="randomization or t.")] = "randomization"
    correction: Annotated[str, Meta(description="holm, bonferroni or none.")] = "holm"
    index: Annotated[str, Meta(description="Name of the index that systems search.")] = ""
    against: Annotated[str, Meta(description="System that the baseline is compared with by question.")] = ""

    @property
    def pair(self) -> tuple[str, str]:
        """The two that are compared question by question: ``against``, or else the second, with the first."""
        return self.names[0], self.against or self.names[min(1, len(self.names) - 1)]


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


class CompareResponse(Struct):
    """Runs compared, or how far their runs are; ask again until it is ready.

    Attributes:
        ready: Whether all runs are there.
        progress: Of the systems' runs.
        method: How the numbers were computed.
        measure: The measure that sorts questions.
        cells: Means, intervals and tests, as ``rankhouse evaluate --json`` prints them.
        queries: Those that differ most first.
        notes: Remarks for the reader.
    """

    ready: bool
    progress: list[RunProgress]
    method: str
    measure: str
    cells: list[dict[str, Any]]
    queries: list[ComparedQuery]
    notes: list[str]


def comparable(service: ServedCollection, index: str = "") -> tuple[str, ...]:
    """Return the names that can be compared: runs that were given, then systems."""
    return tuple(dict.fromkeys([*service.runs, *service.catalogue.systems(index)]))


def compare_runs(
    service: ServedCollection, request: CompareRequest
) -> tuple[CompareResponse, Comparison | None]:
    """Compare runs on all questions that are judged; the comparison itself is None until all runs are there.

    UnknownName: there is no such run, or ``against`` is not compared. WrongUse: too few or too many runs,
    nothing is judged, an unknown measure or test. BadData: a run has nothing for any judged question.
    """
    names = tuple(dict.fromkeys(request.names))
    if not 1 <= len(names) <= MOST_COMPARED:
        raise WrongUse(f"{len(names)} runs: name 1 to {MOST_COMPARED}, the baseline first")
    known = comparable(service, request.index)
    for name in names:
        if name not in known:
            raise UnknownName("run or system", name, known, "names")
    if request.against and request.against not in names:
        raise UnknownName("run among those compared", request.against, names, "against")
    queries = {query.id: query for query in service.known_queries()}
    qrels, systems = service.known_qrels(), [name for name in names if name not in service.runs]
    if systems:  # they are asked the questions' texts
        qrels = restrict(qrels, queries)
    if not any(qrels.values()):
        raise WrongUse("nothing is judged yet; judge some documents, or start the service with --qrels FILE")
    judged = [queries[query_id] for query_id in qrels if query_id in queries]
    made = {name: service.system_runs.progress(name, judged, request.index) for name in systems}
    progress = [progress for progress, _ in made.values()]
    runs = {name: service.runs[name] if name in service.runs else made[name][1] for name in names}
    ready = {name: run for name, run in runs.items() if run is not None}
    if len(ready) < len(runs):
        notes = [f"{one.system}: {one.fault}" for one in progress if one.fault]
        return CompareResponse(False, progress, "", "", cells=[], queries=[], notes=notes), None
    baseline = names[0] if len(names) > 1 else None
    comparison = compare(
        ready, qrels, request.measures, baseline, test=request.test, correction=request.correction
    )
    record: dict[str, Any] = comparison.to_dict()
    few = few_questions(len(comparison.query_ids), "judged questions", "the differences may be due to chance")
    learned = _learned(service, names, comparison.query_ids, request.index)
    answer = CompareResponse(
        True, progress, record["method"], comparison.measures[0],
        cells=record["cells"],
        queries=_rows(comparison, request.pair, qrels, queries),
        notes=[*comparison.remarks, *few, *learned],
    )  # fmt: skip
    return answer, comparison


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
                f"{name}: was trained on {len(both):,} of these {len(query_ids):,} questions, which flatters "
                "its scores"
            )


def _rows(
    comparison: Comparison, pair: tuple[str, str], qrels: Qrels, queries: Mapping[str, Query]
) -> list[ComparedQuery]:
    measure, scores = comparison.measures[0], comparison.scores
    columns = {name: scores[name].of(measure).tolist() for name in scores}
    gains = comparison.differences(pair[1], measure) if comparison.challengers else ()
    gain = {row.query_id: row.difference for row in gains}
    rows = []
    for place, query_id in enumerate(comparison.query_ids):
        values = {name: column[place] for name, column in columns.items()}
        text, difference = queries[query_id].text if query_id in queries else "", gain.get(query_id, 0.0)
        rows.append(ComparedQuery(query_id, text, len(qrels[query_id]), values, difference=difference))
    return sorted(rows, key=lambda row: (-abs(row.difference), row.id))


class Difference(NamedTuple):
    """A pair that two judges grade differently."""

    query_id: str
    doc_id: str
    first: int
    second: int


class AgreementInfo(Struct):
    """Agreement of two judges; null where there is no such number.

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
    common = list(_common(mine, theirs))
    counts = Counter((one.first, one.second) for one in common)
    share = sum(one.first == one.second for one in common) / len(common) if common else math.nan
    return AgreementInfo(
        first, second, len(common), share, kappa=cohens_kappa(counts), weighted=cohens_kappa(counts, 2)
    )


def differences(mine: Qrels, theirs: Qrels) -> list[Difference]:
    """Return what two judges see differently, the largest differences first."""
    differing = (one for one in _common(mine, theirs) if one.first != one.second)
    return sorted(differing, key=lambda one: -abs(one.first - one.second))


def _common(mine: Qrels, theirs: Qrels) -> Iterator[Difference]:
    for query_id, judged in mine.items():
        others = theirs.get(query_id, {})
        for doc_id in filter(others.__contains__, judged):
            yield Difference(query_id, doc_id, judged[doc_id], others[doc_id])
