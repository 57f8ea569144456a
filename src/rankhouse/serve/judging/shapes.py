"""What goes in and out of the JSON routes of judging, comparing and training, as msgspec's types."""

from __future__ import annotations

import math
from typing import Annotated, Any

from msgspec import Meta, Struct

from rankhouse.serve.judging.agreement import JudgeAgreement
from rankhouse.serve.judging.compare import MEASURES, MOST_COMPARED, ComparedRuns
from rankhouse.serve.judging.log import Entry
from rankhouse.serve.judging.store import LONGEST_NAME, MOST_SYSTEMS
from rankhouse.serve.judging.training import TrainingRequest
from rankhouse.serve.search.shapes import Words

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Id = Annotated[str, Meta(min_length=1, max_length=1_000)]


class QueryInfo(Struct):
    """A question and how far it is judged.

    Attributes:
        id: Its id.
        text: Its words.
        judged: Documents that are judged for it.
        relevant: How many of them are relevant.
    """

    id: str
    text: str
    judged: int
    relevant: int


class JudgementBody(Struct):
    """What a judge says of a document.

    Attributes:
        query: The question's text, or the id of one that is known.
        document: The document.
        grade: One of the scale's; null takes an earlier word back.
        judge: Who judges; who asks, by the name of the key, if not said.
        index: Name of the index that holds the document.
        systems: Those that showed it.
    """

    query: Words
    document: Id
    grade: Annotated[int, Meta(ge=-100, le=100)] | None
    judge: Name | None = None
    index: str | None = None
    systems: Annotated[list[str], Meta(max_length=MOST_SYSTEMS)] | None = None


class UndoBody(Struct):
    """Whose last word is taken back.

    Attributes:
        judge: Who judges; who asks, by the name of the key, if not said.
    """

    judge: Name | None = None


class JudgementInfo(Struct):
    """One word of a judge, as the log has it.

    Attributes:
        number: Of the line in the log.
        time: When, in UTC.
        judge: Who.
        query_id: Of which question.
        query: Its text.
        document: Of which document.
        grade: What counts now; null for nothing.
        undoes: Number of the line that was taken back; 0 for none.
    """

    number: int
    time: str
    judge: str
    query_id: str
    query: str
    document: str
    grade: int | None
    undoes: int

    @classmethod
    def of(cls, entry: Entry) -> JudgementInfo:
        """Return an entry as JSON."""
        return cls(
            entry.number, entry.time, entry.judge, entry.query_id, entry.query, entry.doc_id, entry.grade,
            entry.undoes,
        )  # fmt: skip


class UndoneResponse(Struct):
    """What was taken back.

    Attributes:
        undone: The line that does it; null where nothing is left to take back.
    """

    undone: JudgementInfo | None


class JudgedQuery(Struct):
    """Grades of one question.

    Attributes:
        query_id: Its id.
        query: Its text.
        scale: Grade -> what it is called.
        grades: Document -> judge -> grade.
        merged: Document -> the one grade of the qrels.
    """

    query_id: str
    query: str
    scale: dict[int, str]
    grades: dict[str, dict[str, int]]
    merged: dict[str, int]


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

    @classmethod
    def of(cls, told: JudgeAgreement) -> AgreementInfo:
        """Return an agreement as JSON."""
        numbers = (None if math.isnan(one) else one for one in (told.same, told.kappa, told.weighted))
        return cls(told.first, told.second, told.pairs, *numbers)


class CompareQuery(Struct):
    """What is compared.

    Attributes:
        name: Runs that were given and systems, the baseline first.
        measures: In ir_measures' notation; questions are sorted by the first.
        test: randomization or t.
        correction: holm, bonferroni or none.
        index: Name of what systems search.
        against: Held against the baseline question by question.
    """

    name: Annotated[list[str], Meta(min_length=1, max_length=MOST_COMPARED)]
    measures: str = MEASURES
    test: str = "randomization"
    correction: str = "holm"
    index: str = ""
    against: str = ""


class ProgressInfo(Struct):
    """How far a system's run is: questions asked, of so many; why it cannot be made."""

    system: str
    done: int
    total: int
    fault: str


class ComparedQuery(Struct):
    """One question.

    Attributes:
        id: Its id.
        text: Its words.
        judged: Documents that are judged for it.
        values: Run -> value of the first measure.
        difference: By how much the run held against the baseline is better.
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
        full: dict[str, Any] = told.comparison.to_dict() if told.comparison is not None else {}
        queries = [
            ComparedQuery(row.query.id, row.query.text, row.judged, dict(row.values), row.difference)
            for row in told.rows
        ]
        return cls(
            told.is_ready, progress, full.get("method", ""), told.measure, full.get("cells", []), queries,
            list(told.notes),
        )  # fmt: skip


class TrainingBody(Struct):
    """What is to be trained.

    Attributes:
        name: What the new ranker is called: letters, digits, points, - and _.
        start: A ranker of the service to go on with, or a family to begin anew; knrm if not said.
        index: Name of the index.
        first_stage: Name of the system that finds what it learns to order; bm25 if not said.
        epochs: How often it sees all judgements; the family's usual number if not said.
        rate: Learning rate; the family's if not said.
        seed: Of all that is drawn.
    """

    name: Name
    start: str | None = None
    index: str | None = None
    first_stage: str | None = None
    epochs: Annotated[int, Meta(ge=1, le=1000)] | None = None
    rate: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None

    def request(self) -> TrainingRequest:
        """Return the request."""
        return TrainingRequest(
            self.name, self.start or "knrm", self.index or "", self.first_stage or "bm25", self.epochs,
            self.rate, self.seed or 0,
        )  # fmt: skip


class TrainingInfo(Struct):
    """A training.

    Attributes:
        name: Of the new ranker.
        start: What it began with.
        state: running, done, failed or cancelled.
        begun: When, in UTC.
        queries: Questions it learned from.
        held_out: Questions it was chosen by.
        fault: Why it failed.
        log: Losses by step, and validations.
        warnings: What whoever uses the ranker should know.
    """

    name: str
    start: str
    state: str
    begun: str
    queries: int
    held_out: int
    fault: str
    log: list[dict[str, Any]]
    warnings: list[str]
