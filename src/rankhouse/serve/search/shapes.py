"""Questions, explanations and documents, as the JSON routes, the page and the assistant's tools ask for them.

The text of each record is its description in ``/openapi.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from rankhouse.core.nouns import Marks
from rankhouse.serve.search.systems import READ, NamedSystem
from rankhouse.systems.short_forms import first_stage, read_by, short_form
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import FOUND

MOST_ASKED: Final = 1000
"""Documents that one answer holds at most."""
MOST_PASSES: Final = 1024
MOST_TOP: Final = 20
Seconds = Annotated[float, Meta(gt=0, le=3600)]
Words = Annotated[str, Meta(min_length=1, max_length=10_000)]
if TYPE_CHECKING:
    Score = float
else:
    Score = float | None  # as clients read it: JSON has null for what is not finite


class OwnSystem(Struct):
    """A system of the asker's own; nothing of it given means the named or the default one.

    Attributes:
        models: First stages, in notation; ``dense(NAME)`` names an encoder of the service.
        feedback: Of the lexical ones.
        fusion: How they, and the ranker with them, are joined.
        weights: One a model, the ranker's last.
        ranker: Name of a ranker of the service.
        depth: Documents that it reads.
        split: How it cuts them.
        pool: The pool of passages' scores.
    """

    models: Annotated[list[str], Meta(min_length=1, max_length=8)] | None = None
    feedback: str | None = None
    fusion: str | None = None
    weights: Annotated[list[float], Meta(max_length=9)] | None = None
    ranker: str | None = None
    depth: Annotated[int, Meta(ge=0, le=1000)] | None = None
    split: str | None = None
    pool: str | None = None

    def own(self) -> NamedSystem | None:
        """Return the system, None where nothing of one is given, or raise a WrongUse."""
        if all(getattr(self, name) is None for name in OwnSystem.__struct_fields__):
            return None
        models, feedback, fusion = self.models or ("bm25",), self.feedback or "", self.fusion or ""
        if not self.ranker:
            return NamedSystem("own", short_form(models, feedback, fusion, self.weights))
        depth = READ if self.depth is None else self.depth
        stage = Stage(self.ranker, depth, split=self.split or "", pool=self.pool or "")
        found = [first_stage(model, feedback) for model in models]
        return NamedSystem("own", read_by(found, stage, fusion, self.weights, k=FOUND))


class SearchBody(OwnSystem, kw_only=True):
    """A question.

    Attributes:
        query: It.
        system: Name of what ranks; the default is the best the service has.
        index: Name of what is searched; the default is the first.
        k: Documents in the answer; 10 if not said.
        snippets: Whether they come with the stretch of text that answers best; yes if not said.
        copies: Whether copies of a text are hits of their own. If not said, they are not where a folder is
            served and no system is named. With k over 100 they are.
        deadline_s: Seconds after which the first stage's order is good enough.
        partial: Whether what the other shards of an index find is good enough if some do not answer; as the
            service was started if not said.
    """

    query: Words
    system: str | None = None
    index: str | None = None
    k: Annotated[int, Meta(ge=1, le=MOST_ASKED)] | None = None
    snippets: bool | None = None
    copies: bool | None = None
    deadline_s: Seconds | None = None
    partial: bool | None = None

    @property
    def wanted(self) -> int:
        """Documents in the answer."""
        return self.k or 10


class SearchHit(Struct, frozen=True):
    """A document of an answer.

    Attributes:
        rank: From 1.
        id: Its id.
        score: Higher is better; null where it is not finite.
        title: Its title.
        snippet: Of a system with vectors the passage that was found, of others the stretch of its text with
            most of the question's words.
        marks: Begin and end, in characters, of the words to highlight in it.
        before: Its rank in the first stage.
        copies: Ids of further documents found that hold the same passage nearly word for word, where they
            are no hits of their own.
    """

    rank: int
    doc_id: str = msgspec.field(name="id")
    score: Score
    title: str
    snippet: str
    marks: Marks
    before: int | None
    copies: tuple[str, ...] = ()


class SearchResponse(Struct, frozen=True):
    """An answer.

    Attributes:
        index: The index searched.
        system: The system that ranked.
        query: The question.
        hits: The documents, best first.
        found: How many were ranked.
        seconds: How long it took.
        degraded: Why this is only the first stage's order, or lacks documents; "" where it is the system's.
        warnings: Warnings for the caller.
    """

    index: str
    system: str
    query: str
    hits: tuple[SearchHit, ...]
    found: int
    seconds: float
    degraded: str
    warnings: tuple[str, ...]


class ExplainBody(OwnSystem, kw_only=True):
    """Why does a document score what it scores, stand above another, stand elsewhere than in another system?

    Attributes:
        query: The question.
        document: The document; not with ``top``.
        system: Name of what ranks.
        index: Name of what is searched.
        against: The document that it is compared with.
        before: Name of the system from whose ranking it moved.
        top: The first so many documents of the ranking instead.
        method: removal, shapley or gradients; the one that suits the ranker if not said.
        unit: sentence or word.
        passes: Most pairs scored for one document.
        deadline_s: Seconds until the client stops waiting.
    """

    query: Words
    document: str | None = None
    system: str | None = None
    index: str | None = None
    against: str | None = None
    before: str | None = None
    top: Annotated[int, Meta(ge=1, le=MOST_TOP)] | None = None
    method: str | None = None
    unit: str | None = None
    passes: Annotated[int, Meta(ge=2, le=MOST_PASSES)] | None = None
    deadline_s: Seconds | None = None


class ExplainResponse(Struct):
    """Why.

    Attributes:
        kind: "explanation", "contrast", "ranking" or "movement".
        sentence: The answer in words.
        answer: Its parts and numbers, as ``rankhouse explain --json`` writes them.
    """

    kind: str
    sentence: str
    answer: dict[str, Any]


class DocumentPassage(Struct, frozen=True):
    """A passage of a document and what it is worth for a question.

    Attributes:
        number: From 1.
        start: Its start in the text, in characters.
        end: Its end.
        score: Higher is better; null where it is not finite.
        share: Its place between the document's lowest score, 0, and highest, 1.
    """

    number: int
    start: int
    end: int
    score: Score
    share: float


class DocumentResponse(Struct):
    """A document.

    Attributes:
        index: Its index.
        id: Its id.
        title: Its title.
        text: Its text.
        extra: Whatever else its record held.
        passages: With a question: what its passages are worth.
        unit: With a question: what the scores are.
    """

    index: str
    id: str
    title: str
    text: str
    extra: dict[str, Any]
    passages: tuple[DocumentPassage, ...] | None = None
    unit: str | None = None


class IndexInfo(Struct):
    """An index of the service."""

    name: str
    documents: int
    analyzer: str
    fingerprint: str
    systems: list[str]


class SystemInfo(Struct):
    """A system of the service: its name, what it does, the ranker it names, and whether it is the default."""

    name: str
    description: str
    ranker: str
    default: bool = False


class DocumentQuery(Struct):
    """Question about a document."""

    query: Annotated[str, Meta(description="A question, for the scores of its passages.")] = ""
    system: Annotated[str, Meta(description="Name of the system that scores them.")] = ""


class IndexQuery(Struct):
    """Name of the index."""

    index: Annotated[str, Meta(description="Name of the index.")] = ""
