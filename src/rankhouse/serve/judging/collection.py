"""Collection of a service, searched, judged and compared: indexes, rankers, questions, judgements, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.sameness import Texts
from rankhouse.serve.folder.files import FolderProgress
from rankhouse.serve.judging.log import Audit, JudgementEntry
from rankhouse.serve.judging.runs import SystemRuns
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.judging.training import TrainingJobs
from rankhouse.serve.search.catalogue import Catalogue


class Work(NamedTuple):
    """Work beside answering: a sentence, "" for none, and how much of it is done, from 0 to 1."""

    sentence: str
    share: float


@dataclass
class ServedCollection:
    """Indexes, rankers, questions, judgements and runs of a service.

    Attributes:
        judgements: The judgements; None where nobody judges.
        queries, qrels, runs: Those of the first index that were given; only read.
        standing: Work in progress on the folder that is served, if there is one.
        contents: The list of that folder's files; None without a folder.
        system_runs: Runs of systems over the questions, made when they are compared.
    """

    catalogue: Catalogue = field(default_factory=lambda: Catalogue({}))
    judgements: JudgementStore | None = None
    queries: tuple[Query, ...] = ()
    qrels: Qrels = field(default_factory=dict)
    runs: Mapping[str, Run] = field(default_factory=dict)
    audit: Audit = field(default_factory=lambda: Audit(None))
    standing: FolderProgress = field(default_factory=FolderProgress)
    contents: Path | None = None
    system_runs: SystemRuns = field(init=False)
    training: TrainingJobs = field(init=False)

    def __post_init__(self) -> None:
        self.system_runs = SystemRuns(self.catalogue)
        self.training = TrainingJobs(None, self)

    @property
    def work(self) -> Work:
        """Work in progress on the folder, in words, and how much of it."""
        by_meaning = any(ranker.is_encoder for ranker in self.catalogue.rankers.values())
        return Work(self.standing.sentence(by_meaning=by_meaning), self.standing.share)

    @property
    def scale(self) -> Mapping[int, str]:
        """The grades and what they are called; none where nobody judges."""
        return {} if self.judgements is None else self.judgements.scale

    def known_queries(self) -> list[Query]:
        """Return the questions that have words: the given ones, then those judged besides."""
        judged = self.judgements.queries if self.judgements is not None else []
        texts: dict[str, Query] = {}
        for query in (*self.queries, *judged):
            if query.text.strip():
                texts.setdefault(query.id, query)
        return list(texts.values())

    def known_qrels(self) -> Qrels:
        """Return the given judgements, and over them what judges said here."""
        grades = {query_id: dict(said) for query_id, said in self.qrels.items()}
        if self.judgements is not None:
            for query_id, said in self.judgements.qrels.items():
                grades.setdefault(query_id, {}).update(said)
        return grades

    def known_grades(self, query_id: str) -> dict[str, int]:
        """Return the judgements of one question, as :meth:`known_qrels` has them."""
        said = self.judgements.merged_grades(query_id) if self.judgements is not None else {}
        return {**self.qrels.get(query_id, {}), **said}

    def question(self, asked: str) -> Query:
        """Return the question that a person names by its id or its words; new words are a new question."""
        by_id, by_words = self._given
        named = by_id.get(asked) or next((by_id[query_id] for query_id in by_words.named(asked)), None)
        if named is not None or self.judgements is None:
            return named or Query("query", asked)
        query_id = self.judgements.query_id(asked)
        judged = {query.id: query for query in self.judgements.queries if query.text.strip()}
        return judged.get(asked) or judged.get(query_id) or Query(query_id, asked)

    def run(self, name: str, queries: Sequence[Query], index: str, patience: float) -> Run:
        """Return a given run, or wait for that of a system over questions; Unready: it takes longer."""
        given = self.runs.get(name)
        return self.system_runs.finished(name, queries, index, patience) if given is None else given

    def note(self, deed: str, entry: JudgementEntry, who: str) -> None:
        """Put a word of a judge into the audit."""
        facts = {"judge": entry.judge, "query": entry.query_id, "document": entry.doc_id}
        self.audit.note(deed, who, **facts, **({"grade": entry.grade} if deed == "judge" else {}))

    def undo(self, store: JudgementStore, judge: str, who: str) -> JudgementEntry | None:
        """Take a judge's last word back, as somebody asks; None where nothing is left to take back."""
        entry = store.undo(judge)
        if entry is not None:
            self.note("undo", entry, who)
        return entry

    @cached_property
    def _given(self) -> tuple[dict[str, Query], Texts]:
        """The given questions by id and by their words; of equal ones the first counts."""
        by_id: dict[str, Query] = {}
        for query in self.queries:
            if query.text.strip():
                by_id.setdefault(query.id, query)
        return by_id, Texts((query.id, query.text) for query in by_id.values())
