"""First stage of adapting: what documents ask, what comes back, and the candidates of each question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from rankhouse.app.adapt.options import AdaptOptions
from rankhouse.app.adapt.teacher import VectorTeacher, vector_teacher
from rankhouse.core.corpora import read_queries
from rankhouse.core.errors import MissingExtra
from rankhouse.core.nouns import Encoder, Query, Ranker, TextEncoder
from rankhouse.core.outputs import write_json, writing
from rankhouse.core.progress import Progress
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Ranking, Run
from rankhouse.core.sampling import order
from rankhouse.core.trec import read_qrels, read_run, write_qrels, write_run
from rankhouse.index.index import Index
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.labels.pseudo_queries import PseudoQuery, Words, ask
from rankhouse.labels.pseudo_report import PseudoReport, write_pseudo_report
from rankhouse.labels.round_trip import round_trip

QUERIES, OWN, CANDIDATES, FIRST = "queries.jsonl", "own.qrels", "candidates.run.gz", "first.run.gz"
PAGE, COUNTS, VECTORS = "questions.html", "counts.json", "queries.npy"

Show = Callable[[str], Progress]
"""Names a stage of the work -> what is told how far it is."""


class Questions(NamedTuple):
    """What is learned from.

    Attributes:
        queries: Pseudo-queries that came back, and people's own questions.
        own: Each pseudo-query's own document.
        first: What the first stage finds for them.
        candidates: The same, with the neighbours that the teacher's vectors find.
        teacher: What scores them.
    """

    queries: list[Query]
    own: Qrels
    first: Run
    candidates: Run
    teacher: Ranker


def questions(
    index: Index,
    teacher: Ranker,
    people: Sequence[Query],
    avoid: Sequence[Query],
    folder: Path,
    how: tuple[AdaptOptions, Show],
) -> Questions:
    """Ask, retrieve and send round, or read what an earlier sitting made.

    Args:
        index: The documents.
        teacher: Whose scores will be learned.
        people: Questions that people asked, without judgements.
        avoid: Questions that must not be learned.
        folder: Where all is written; made if it is not there.
        how: Options, and what shows how far the work is.
    """
    _, show = how
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / COUNTS).exists():
        _make(index, teacher, people, avoid, folder, how)
    queries = read_queries(folder / QUERIES)
    asked = _with_vectors(index, teacher, queries, folder / VECTORS, show)
    candidates = read_run(folder / CANDIDATES)
    return Questions(queries, read_qrels(folder / OWN), read_run(folder / FIRST), candidates, asked)


def _with_vectors(
    index: Index, teacher: Ranker, queries: Sequence[Query], vectors: Path, show: Show
) -> Ranker:
    if not isinstance(teacher, TextEncoder):
        return teacher
    encoder: Encoder = teacher  # type: ignore[assignment]  # a text encoder that ranks says how it compares
    return vector_teacher(encoder, index, queries, vectors, show("encoding with the teacher"))


def _make(
    index: Index,
    teacher: Ranker,
    people: Sequence[Query],
    avoid: Sequence[Query],
    folder: Path,
    how: tuple[AdaptOptions, Show],
) -> None:
    options, show = how
    words = Words(index.documents.stream())
    asked = ask(index.documents.stream(), words, options.pseudo, [query.text for query in avoid])
    numbered = [(f"pq{number}", query) for number, query in enumerate(asked.queries)]
    chosen = sorted(numbered, key=lambda entry: order(options.seed, entry[0]))[: 2 * options.questions]
    texts = [Query(query_id, query.text) for query_id, query in chosen] + list(people)
    search = LexicalOptions(options.first_stage, k=max(options.candidates, options.depth))
    first = retrieve(index, texts, search, show("retrieving candidates"))
    reader = _with_vectors(index, teacher, texts, folder / "asked.npy", show)
    trip = round_trip(chosen, first, index.documents, reader, options.limits, show("round trip"))
    kept = dict(list(trip.kept.items())[: options.questions])
    queries = [Query(query_id, query.text) for query_id, query in kept.items()] + list(people)
    _write(folder, queries, kept, first.restrict([query.id for query in queries]), (reader, options))
    report = PseudoReport.of(asked, trip._replace(kept=kept))
    with suppress(MissingExtra):  # the page is for people; nothing depends on it
        write_pseudo_report(report, folder.parent / PAGE, "Questions that the documents ask")
    (folder / "asked.npy").unlink(missing_ok=True)
    write_json(
        folder / COUNTS, {"kept": len(kept), "thrown away": dict(report.counts), "people": len(people)}
    )


def _write(
    folder: Path,
    queries: Sequence[Query],
    kept: dict[str, PseudoQuery],
    first: Run,
    how: tuple[Ranker, AdaptOptions],
) -> None:
    reader, options = how
    candidates = first.top(options.candidates)
    if isinstance(reader, VectorTeacher):
        reader.write_queries(queries, folder / VECTORS)
        candidates = _joined(candidates, reader.nearest(queries, options.neighbours))
    with writing(folder / QUERIES) as out:
        for query in queries:
            out.write(msgspec.json.encode({"id": query.id, "text": query.text}).decode() + "\n")
    write_qrels({query_id: {query.doc_id: 1} for query_id, query in kept.items()}, folder / OWN)
    write_run(first, folder / FIRST, "first")
    write_run(candidates, folder / CANDIDATES, "candidates")


def _joined(first: Run, more: Run) -> Run:
    """Put what another run finds behind a run's documents; scores only keep the order."""
    rankings: dict[str, Ranking] = {}
    for query_id in dict.fromkeys([*first, *more]):
        found = [run[query_id].doc_ids for run in (first, more) if query_id in run]
        doc_ids = list(dict.fromkeys(doc_id for some in found for doc_id in some))
        rankings[query_id] = Ranking(tuple(doc_ids), -np.arange(len(doc_ids), dtype=np.float32))
    return Run.from_rankings(rankings)
