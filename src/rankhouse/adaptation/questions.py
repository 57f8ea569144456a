"""First stage of adapting: what documents ask, what comes back, and the candidates of each question.

Documents ask by rules; a model besides writes questions for as many documents as there is time for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np

from rankhouse.adaptation.options import ELSEWHERE, QUESTIONS, TEACHERS_SHARE, Adaptation, AdaptOptions
from rankhouse.adaptation.teacher import (
    LIST,
    VectorTeacher,
    by_quantile,
    document_vectors,
    listed,
    needs_texts,
    vector_teacher,
    write_list,
)
from rankhouse.adaptation.written import writer_of
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import (
    Document,
    Documents,
    Encoder,
    Pair,
    Passage,
    Query,
    Ranker,
    Ranking,
    TextEncoder,
)
from rankhouse.core.progress import clock, say
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.sampling import order, short_lot
from rankhouse.index.index import Index
from rankhouse.io.checksums import write_checked
from rankhouse.io.corpora import read_queries, write_queries
from rankhouse.io.decoding import read_own
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run
from rankhouse.labels.pseudo_queries import WRITTEN, PseudoQueries, PseudoQuery, WordCounts, ask
from rankhouse.labels.round_trip import PseudoReport, Round, round_trip, write_pseudo_report
from rankhouse.labels.soft_scores import JoinedTeachers, Reference, RunTeacher, members_of
from rankhouse.systems.execution import Execution
from rankhouse.systems.short_forms import short_form
from rankhouse.systems.system import System
from rankhouse.systems.teachers import SystemTeacher

QUERIES, OWN, CANDIDATES, FIRST = "queries.jsonl", "own.qrels", "candidates.run.zst", "held-out.run"
PAGE, COUNTS, VECTORS, ASKED = "questions.html", "counts.json", "queries.npy", "asked.npy"
WRITTEN_QUESTIONS = "written.jsonl"

_READ: Final = 4_000
"""Questions whose candidates a teacher without vectors reads on the round trip, unless there are minutes."""
_RANKED: Final = 20_000
"""Questions for which a system that teaches ranks the documents, unless there are minutes."""
_PREPARED: Final = 0.2
"""Of the minutes, for encoding documents and questions, and for finding candidates; the rest is for steps."""
_ENCODED, _FOUND, _ASKED_AT_LEAST = 512, 64, 5_000
"""Questions that are timed, encoding them and finding candidates; those that are asked even where they take
longer."""
_SURE: Final = 1.0
"""Seconds of 20 questions; where a system takes less, it is timed on more of them."""
_BESIDES: Final = 2.5
"""Factor of a question's time with round trip, neighbours and writing: measured with a MiniLM."""
_FEWEST: Final = 5
"""One question in so many is held out, up to the number wanted."""


class Questions(NamedTuple):
    """Training questions and their first-stage rankings."""

    queries: list[Query]  # pseudo-queries that came back, and people's own questions
    own: Qrels  # each pseudo-query's own document
    first: Run  # what the first stage finds for those that are held out
    candidates: Run  # what it finds for all, with the neighbours that the teacher's vectors find
    teacher: Ranker


def questions(job: Adaptation) -> Questions:
    """Ask, retrieve and send round, or read what an earlier run of it made."""
    folder = job.folder / QUESTIONS
    if all(isinstance(one, RunTeacher) for one in members_of(job.teacher)):
        raise WrongUse(
            "a run scores its own questions only, and the documents' questions are new: give a ranker as a "
            "teacher besides, or learn from the run alone with  rankhouse train --teacher RUN"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / COUNTS).exists():
        _make(job, folder)
    read_own(folder / COUNTS, dict[str, Any], ELSEWHERE)
    job.show("reading the questions")
    queries, candidates = read_queries(folder / QUERIES), read_run(folder / CANDIDATES)
    ready = _at_work(job, queries, candidates, folder / VECTORS)
    own, first = read_qrels(folder / OWN), read_run(folder / FIRST)
    return Questions(queries, own, first, candidates=candidates, teacher=ready)


def try_systems(job: Adaptation) -> None:
    """Ask first stage and teachers a question: what is wrong with them is said before anything is written."""
    trial = [Query("trial", "a")]
    _first_stage(job).run(trial, job.index)
    for one in members_of(job.teacher):
        if isinstance(one, SystemTeacher):
            one.of(trial, job.index)


def _first_stage(job: Adaptation) -> System:
    return short_form((job.options.first_stage,), k=max(job.options.candidates, job.options.depth))


def _at_work(job: Adaptation, queries: Sequence[Query], run: Run, vectors: Path) -> Ranker:
    """Return the teacher with its vectors of documents and questions, or with the lists that a system finds.

    What several teachers say of a pair is compared with what they say of the question's first candidates.
    """
    teacher, ready = job.teacher, list[Ranker]()
    for one, path in zip(members_of(teacher), _vectors(teacher, vectors), strict=True):
        if isinstance(one, TextEncoder):  # one that ranks says how it compares
            path.parent.mkdir(exist_ok=True)
            ready.append(vector_teacher(cast(Encoder, one), job, queries, path))
        elif isinstance(one, SystemTeacher):
            path.parent.mkdir(exist_ok=True)
            ready.append(listed(one, job, queries, path))
        else:
            ready.append(one)
    if not isinstance(teacher, JoinedTeachers):
        return ready[0]
    together = teacher.of(ready)
    return together.against(first_passages(run, _texts(together, job.index)))


def _vectors(teacher: Ranker, path: Path) -> list[Path]:
    """Return the file of each teacher's vectors: this one, or one of its name in a folder of each."""
    members = members_of(teacher)
    if len(members) == 1:
        return [path]
    return [path.parent / f"teacher-{number}" / path.name for number in range(1, len(members) + 1)]


def _texts(teacher: Ranker, index: Index) -> Documents:
    """Return documents for a teacher: without texts if it does not read them."""
    return index.documents if needs_texts(teacher) else _Unread()


def first_passages(run: Run, documents: Documents) -> Reference:
    """Return what joined scores of a question are compared with: its first 20 documents of a run."""
    first = run.top(Round().first)

    def passages(query: Query) -> list[Passage]:
        doc_ids = first[query.id].doc_ids if query.id in first else ()
        return [pair.passage for pair in pairs_of(query, doc_ids, documents)]

    return passages


def pairs_of(query: Query, doc_ids: Iterable[str], documents: Documents) -> list[Pair]:
    """Return a question beside whole documents."""
    return [Pair(query, Passage(doc_id, 0, documents[doc_id].full_text)) for doc_id in doc_ids]


def _make(job: Adaptation, folder: Path) -> None:
    index, options, people, show = job.index, job.options, list(job.people), job.show
    system, began = _first_stage(job), time.monotonic()
    systems = [one for one in members_of(job.teacher) if isinstance(one, SystemTeacher)]
    asked = ask_documents(job)
    numbered = [(f"pq{number}", query) for number, query in enumerate(asked.queries)]
    chosen = sorted(numbered, key=lambda entry: order(options.seed, entry[0]))[: 2 * options.questions]
    if systems:
        chosen = chosen[: _answerable(job, systems, chosen)]
    if options.minutes and chosen:
        chosen = chosen[: _encodable(job, chosen, folder / ASKED, began=began)]
    texts = [Query(query_id, query.text) for query_id, query in chosen] + people
    first = Execution(index, texts, progress=show("retrieving candidates")).run(system)
    reader = _at_work(job, texts, first, folder / ASKED)
    limits = options.limits
    if needs_texts(reader):
        limits = Round()
        chosen = chosen[: _affordable(job, reader, chosen, first)]
    bar = show("round trip")
    trip = round_trip(chosen, first, _texts(reader, index), teacher=reader, limits=limits, progress=bar)
    kept = dict(list(trip.kept.items())[: options.questions])
    queries = [Query(query_id, query.text) for query_id, query in kept.items()] + people
    _write(job, reader, queries, kept=kept, first=first.restrict([query.id for query in queries]))
    report = PseudoReport.of(asked, trip._replace(kept=kept))
    with suppress(MissingExtra):  # the page is for people; nothing depends on it
        write_pseudo_report(report, job.folder / PAGE, "Questions that the documents ask")
    for path in _vectors(reader, folder / ASKED):
        for made in (path, path.with_suffix(LIST)):
            for file in (made, made.with_suffix(".json")):
                file.unlink(missing_ok=True)
    counts = {"kept": len(kept), "thrown away": dict(report.counts), "people": len(people)}
    write_checked(folder / COUNTS, counts, [folder / name for name in (QUERIES, OWN, CANDIDATES, FIRST)])


def ask_documents(job: Adaptation) -> PseudoQueries:
    """Have documents ask, and a model write questions about some of them if one is given.

    Raises WrongUse where questions shall be written, and no model is named.
    """
    index, options, pseudo, writer = job.index, job.options, job.options.pseudo, None
    words = WordCounts(index.documents.stream())
    if WRITTEN in pseudo.kinds and not options.doc2query:
        raise WrongUse(f'questions of the kind "{WRITTEN}" need a model that writes them; name one')
    if options.doc2query:
        writer = writer_of(job, job.folder / QUESTIONS / WRITTEN_QUESTIONS)
        if WRITTEN not in pseudo.kinds:
            pseudo = replace(pseudo, kinds=(*pseudo.kinds, WRITTEN))
    avoid = [query.text for query in job.tested]
    return ask(asking(index, options), words, pseudo, avoid=avoid, writer=writer)


def asking(index: Index, options: AdaptOptions) -> Iterator[Document]:
    """Stream the documents that ask: all, or of a large collection about as many as there are questions."""
    share = options.questions / max(1, len(index.documents))
    for document in index.documents.stream():
        if share >= 1 or short_lot(options.seed, "asks", document.id) < share * 2**64:
            yield document


class _Unread:
    """Documents whose texts nobody reads, since a teacher with vectors knows them by their ids."""

    def __getitem__(self, doc_id: str) -> Document:
        return Document(doc_id, "")


def _affordable(
    job: Adaptation, teacher: Ranker, asked: Sequence[tuple[str, PseudoQuery]], first: Run
) -> int:
    """Return for how many questions there is time to have the teacher read their candidates; say how long."""
    documents, options = job.index.documents, job.options
    query_id, question = next((entry for entry in asked if entry[0] in first), asked[0])
    doc_ids = first.top(Round().first)[query_id].doc_ids if query_id in first else (question.doc_id,)
    pairs = pairs_of(Query(query_id, question.text), doc_ids, documents)
    teacher.score(pairs)  # the first call starts things
    began = time.perf_counter()
    teacher.score(pairs)
    each = time.perf_counter() - began
    most = _fitting(options, each, _READ, len(asked))
    say(
        f"the teacher has no vectors and reads {Round().first} candidates of {most:,} of {len(asked):,} "
        f"pseudo-queries: about {clock(most * each)}"
    )
    return most


def _answerable(
    job: Adaptation, systems: Sequence[SystemTeacher], asked: Sequence[tuple[str, PseudoQuery]]
) -> int:
    """Return for how many questions there is time to have systems rank the documents; say how long."""
    some, seconds = [Query(query_id, question.text) for query_id, question in asked[:120]], dict[int, float]()
    for count in (1, 4, 20, 120):  # the first starts things; what each opens goes out of the difference
        if count > 20 and seconds[20] > _SURE:
            break
        began = time.perf_counter()
        for one in systems:
            one.of(some[:count], job.index)
        seconds[count] = time.perf_counter() - began
    (fewer, before), (more, after) = list(seconds.items())[-2:]
    each = max(1e-4, (after - before) / max(1, min(more, len(some)) - fewer))
    most = _fitting(job.options, each, _RANKED, len(asked))
    say(
        f"the teacher is a system and ranks all documents for {most:,} of {len(asked):,} pseudo-queries: "
        f"about {clock(most * each)}"
    )
    return most


def _encodable(job: Adaptation, asked: Sequence[tuple[str, PseudoQuery]], path: Path, *, began: float) -> int:
    """Return for how many questions there is time to encode and search them after the documents; say it."""
    each, texts = 0.0, [question.text for _, question in asked[:_ENCODED]]
    for one, vectors in zip(members_of(job.teacher), _vectors(job.teacher, path), strict=True):
        if isinstance(one, TextEncoder):
            vectors.parent.mkdir(exist_ok=True)
            _, encoder = document_vectors(cast(Encoder, one), job, vectors.parent / "documents")
            encoder.encode_queries(texts[: _ENCODED // 8])  # the first call starts things
            started = time.perf_counter()
            encoder.encode_queries(texts)
            each += (time.perf_counter() - started) / len(texts)
    if each:
        some = [Query(query_id, question.text) for query_id, question in asked[:_FOUND]]
        started = time.perf_counter()
        Execution(job.index, some).run(_first_stage(job))
        each = _BESIDES * (each + (time.perf_counter() - started) / len(some))
    left = 60 * _PREPARED * job.options.minutes - (time.monotonic() - began)
    if not each or (most := max(_ASKED_AT_LEAST, int(left / each))) >= len(asked):
        return len(asked)
    say(
        f"the teacher encodes {most:,} of {len(asked):,} pseudo-queries, and candidates are found for them: "
        f"about {clock(most * each)}; for more of them give more --minutes"
    )
    return most


def _fitting(options: AdaptOptions, each: float, most: int, asked: int) -> int:
    """Return how many questions of so many seconds each fit into a teacher's share of the minutes."""
    if options.minutes:
        most = max(options.held_out, int(60 * TEACHERS_SHARE * options.minutes / each))
    return min(most, asked)


def _write(
    job: Adaptation, reader: Ranker, queries: Sequence[Query], kept: dict[str, PseudoQuery], first: Run
) -> None:
    folder, options = job.folder / QUESTIONS, job.options
    given, paths = members_of(job.teacher), _vectors(reader, folder / VECTORS)
    own = all(isinstance(one, SystemTeacher | RunTeacher) for one in given)  # whose lists are all that counts
    candidates = first.top(0 if own else options.candidates)
    for one, system, path in zip(members_of(reader), given, paths, strict=True):
        if isinstance(one, RunTeacher) and isinstance(system, SystemTeacher):
            lists = one.run.restrict([query.id for query in queries])
            write_list(lists, path.with_suffix(LIST))
            candidates = _joined(candidates, by_quantile(lists, options.candidates))
        if isinstance(one, VectorTeacher):
            one.write_queries(queries, path)
            nearest = one.nearest(queries, options.neighbours, job.show("finding the teacher's neighbours"))
            candidates = _joined(candidates, nearest)
    write_queries(queries, folder / QUERIES)
    write_qrels({query_id: {query.doc_id: 1} for query_id, query in kept.items()}, folder / OWN)
    write_run(first.restrict(_held_out(kept, options)).top(options.depth), folder / FIRST, "first")
    write_run(candidates, folder / CANDIDATES, "candidates")


def _held_out(kept: Iterable[str], options: AdaptOptions) -> list[str]:
    """Draw the questions that are not learned."""
    drawn = sorted(kept, key=lambda query_id: order(options.seed + 1, query_id))
    if len(drawn) < _FEWEST:
        raise WrongUse(
            f"only {len(drawn)} questions came back, too few to learn from and to hold some out; allow more "
            "kinds of questions, or index more documents"
        )
    return drawn[: min(options.held_out, len(drawn) // _FEWEST)]


def _joined(first: Run, more: Run) -> Run:
    """Put what another run finds behind a run's documents; scores only keep the order."""
    rankings: dict[str, Ranking] = {}
    for query_id in dict.fromkeys([*first, *more]):
        found = [run[query_id].doc_ids for run in (first, more) if query_id in run]
        doc_ids = list(dict.fromkeys(doc_id for some in found for doc_id in some))
        rankings[query_id] = Ranking(tuple(doc_ids), -np.arange(len(doc_ids), dtype=np.float32))
    return Run.from_rankings(rankings)
