"""What a training learns from: judged questions, some of them held out to choose the best model by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels, relevant, restrict
from rankhouse.core.run import Run
from rankhouse.core.sampling import order
from rankhouse.io.corpora import write_queries
from rankhouse.io.trec import write_qrels, write_run
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.stages import rank

if TYPE_CHECKING:
    from rankhouse.serve.judging.collection import ServedCollection

FEW: Final = 10
"""Fewer judged questions than this show little: answers warn, and none are held out of a training."""
_HELD_OUT: Final = 5  # every fifth
_FOUND: Final = 100


class Lessons(NamedTuple):
    """Judged questions, to learn from and to choose the best model by; few have none held out for that."""

    learned: tuple[Query, ...]
    held_out: tuple[Query, ...]
    qrels: Qrels

    @classmethod
    def of(cls, service: ServedCollection, index: str, seed: int) -> Lessons:
        """Choose among what is judged; the same judgements and seed give the same choice."""
        documents = service.catalogue.view(index).index.documents
        known = {query.id: query for query in service.known_queries()}
        everything = restrict(service.known_qrels(), known)
        qrels = {q: {d: g for d, g in judged.items() if d in documents} for q, judged in everything.items()}
        useful = sorted((q for q in qrels if relevant(qrels, q)), key=lambda q: order(seed, q))
        if not useful:
            raise WrongUse(
                "no question has a document that was judged relevant, so there is nothing to learn; "
                "judge more"
            )
        out = set(useful[::_HELD_OUT]) if len(useful) >= FEW else set[str]()
        both = tuple(known[query_id] for query_id in qrels if query_id in set(useful))
        return cls(
            tuple(query for query in both if query.id not in out),
            tuple(query for query in both if query.id in out),
            {query.id: qrels[query.id] for query in both},
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all its questions."""
        return tuple(query.id for query in (*self.learned, *self.held_out))

    def write(self, catalogue: Catalogue, index: str, first_stage: str, place: Path) -> list[str]:
        """Write what is learned from; returns the options of the command that name it."""
        view = catalogue.view(index)
        spec = catalogue.system(first_stage, view.name)
        options = []
        parts = (
            ("queries", "qrels", "first", "--", self.learned),
            ("valid", "valid", "valid", "--valid-", self.held_out),
        )
        for queries, qrels, run, option, asked in parts:
            if not asked:
                continue
            files = (place / f"{queries}.jsonl", place / f"{qrels}.txt", place / f"{run}.run")
            write_queries(asked, files[0])
            judged: Qrels = restrict(self.qrels, [query.id for query in asked])
            write_qrels(judged, files[1])
            rankings = {query.id: rank(catalogue, view, spec, query).ranking for query in asked}
            write_run(Run.from_rankings(rankings).top(_FOUND), files[2])
            for name, file in zip(("queries", "qrels", "run"), files, strict=True):
                options += [f"{option}{name}", str(file)]
        return options


def few_questions(count: int, kind: str, what: str) -> tuple[str, ...]:
    """Return a warning where there are few questions; none where there are enough."""
    return (f"only {count} {kind}: {what}; judge {FEW} or more",) if count < FEW else ()
