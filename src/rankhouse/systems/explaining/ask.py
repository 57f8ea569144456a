"""One question to what ranks: what the command and Python share."""

from __future__ import annotations

from dataclasses import dataclass

from rankhouse.core.nouns import Query
from rankhouse.explanation.contrast import Answer
from rankhouse.index.parts.parted_index import AnyIndex
from rankhouse.systems.explaining.answers import why_documents, why_moved, why_ranking
from rankhouse.systems.explaining.build import SystemOptions, build_system, first_stage_of
from rankhouse.systems.explaining.systems import RunOnRecord, RunSystem, System


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        doc_ids: Why does the first score what it scores? Several, without a rival, are put in order.
        against: The document that the first is compared with; "" for none.
        top: The first so many documents of the ranking instead; None for named ones.
        run: The run that the system made; None for none.
        before: The run from which the document moved; None for none.
    """

    doc_ids: tuple[str, ...] = ()
    against: str = ""
    top: int | None = None
    run: RunOnRecord | None = None
    before: RunOnRecord | None = None


def ask(index: AnyIndex, query: Query, options: SystemOptions, question: Question) -> Answer:
    """Answer a question about documents of an index.

    Raises:
        WrongUse: An unknown document, model or method, or a run that another system made.
    """
    system = build_system(index, options)
    if question.run is not None:
        system = system.recorded(question.run)
    if question.top is not None:
        return why_ranking(system, query, question.top)
    if question.before is not None:
        earlier = _earlier(index, options, question.before)
        return why_moved(system, earlier, query, question.doc_ids[0], question.against)
    ranked = question.run is not None or options.ranker is None or bool(options.fusion)
    return why_documents(system, query, question.doc_ids, question.against, ranked=ranked)


def _earlier(index: AnyIndex, options: SystemOptions, given: RunOnRecord) -> System:
    """Return the system of an earlier run: the models, where they are named beside a ranker."""
    known = options.ranker is not None and options.models and options.first_stage is None
    return first_stage_of(index, options).recorded(given) if known else RunSystem(given)
