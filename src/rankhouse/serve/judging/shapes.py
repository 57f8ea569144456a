"""What goes in and out of the JSON routes of judging, comparing and training, as msgspec's types."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from rankhouse.serve.judging.log import JudgementEntry
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
    def of(cls, entry: JudgementEntry) -> JudgementInfo:
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


class JudgedQueryParameters(Struct):
    """Which question is meant."""

    query: Annotated[str, Meta(description="The question's text, or its id.", extra={"required": True})] = ""


class QrelsParameters(Struct):
    """Whose judgements are meant."""

    judge: Annotated[str, Meta(description="Only what this judge says.")] = ""


class RunParameters(Struct):
    """Which index a run is of."""

    index: Annotated[str, Meta(description="Name of what systems search.")] = ""


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


class TrainingBody(Struct):
    """What is to be trained.

    Attributes:
        name: What the new ranker is called: letters, digits, points, - and _.
        start: A ranker of the service to go on with, or a family to begin with; knrm if not said.
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
        warnings: What users of the ranker should know.
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
