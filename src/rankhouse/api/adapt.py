"""rh.adapt: documents and a teacher become a ranker of one's own, without judgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rankhouse.adaptation.options import Adaptation, AdaptOptions, JudgedQuestions
from rankhouse.api.index import as_index
from rankhouse.api.rankers import TeacherLike, as_teachers, open_ranker
from rankhouse.core.arguments import checked
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.progress import ignore
from rankhouse.index.index import Index
from rankhouse.io.inputs import (
    PathLike,
    QrelsLike,
    QueriesLike,
    RunLike,
    as_list,
    as_path,
    as_qrels,
    as_queries,
    as_run,
    check_texts,
)
from rankhouse.labels.pseudo_queries import PseudoOptions
from rankhouse.systems.teachers import joined, kept

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


@checked
def adapt(
    index: Index | PathLike,
    teacher: TeacherLike | Sequence[TeacherLike],
    *,
    out: PathLike,
    ranker: str = "tk",
    join: str = "z-score",
    queries: QueriesLike | None = None,
    test: tuple[QueriesLike, QrelsLike] | tuple[QueriesLike, QrelsLike, RunLike] | None = None,
    first_stage: str = AdaptOptions.first_stage,
    minutes: float = 0.0,
    steps: int = 0,
    questions: int = AdaptOptions.questions,
    kinds: Sequence[str] = PseudoOptions.kinds,
    doc2query: PathLike = "",
    depth: int = AdaptOptions.depth,
    cache: PathLike | None = None,
    mine: int = 0,
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
) -> NeuralRanker:
    """Teach a ranker on questions that the documents ask themselves, by a teacher's scores; open it.

    >>> import numpy as np, rankhouse as rh
    >>> class Shared:
    ...     fingerprint, scale = "shared words", "score"
    ...     def score(self, pairs):
    ...         words = [(set(q.text.lower().split()), set(p.text.lower().split())) for q, p in pairs]
    ...         return np.array([len(q & p) / len(q) for q, p in words], np.float32)
    >>> texts = [f"ship{n} sails to port{n % 7} with cargo{n % 5} on deck{n % 3}" for n in range(40)]
    >>> index = rh.Index.build([{"id": f"d{n}", "text": text} for n, text in enumerate(texts)], "i")
    >>> student = "knrm(width=8, min_count=1)"
    >>> ranker = rh.adapt(index, Shared(), out="mine", ranker=student, steps=40)
    >>> len(ranker.rank("ship1 port1", texts[:3]).doc_ids)
    3

    Args:
        index: The documents, read whole.
        teacher: A ranker, or what :func:`open_ranker` opens; a bi-encoder teaches quickest. Or a list of
            several, whose scores are joined; a run with scores among them has its say on its own questions.
        out: The folder; given again, a killed adaptation goes on from there. It holds the report.
        ranker: The student: ``tk``, ``knrm``, or a design or checkpoint in notation.
        join: What makes one score of several teachers': ``z-score`` or ``ranks``, within each query.
        queries: Questions of people, without judgements, to be learned from as well.
        test: (queries, qrels) to measure by; these questions are not learned. (queries, qrels, run) has the
            run reranked in place of what the first stage finds.
        first_stage: What finds candidates and is joined with the student, in notation.
        minutes: How long all of it may take; 0: as long as ``steps`` take.
        steps: Of the training; 0: 4,000, or as many as fit into ``minutes``.
        questions: Most pseudo-queries.
        kinds: Kinds of pseudo-queries: ``title``, ``heading``, ``first``, ``asked``, ``span``,
            ``question``, ``keywords``, ``crop``.
        doc2query: A T5 that writes questions besides: its folder or hub name, or
            ``doc2query("DIR", count=5)``; with the kind "doc2query" alone there are no others.
        depth: How many documents of the first stage the student will rerank.
        cache: A folder in which scores of teachers that are no bi-encoders are kept.
        mine: How often the student itself chooses candidates, between parts of its training.
        settings: What differs from the family's recipe.
        seed: Of all that is drawn.

    Raises:
        MissingExtra: torch is not installed.
        WrongUse: The folder holds another adaptation, or an unknown family.
        BadData: The documents ask no question that comes back.
    """
    try:
        from rankhouse.adaptation.adapt import adapt_with
    except ImportError as error:
        raise MissingExtra("training", "neural") from error
    if minutes and steps:
        raise WrongUse(f"minutes={minutes:g} and steps={steps} both say how long the training is; give one")
    names = as_list(kinds, "kinds", 'several kinds of pseudo-queries, for example ["title", "span"]')
    check_texts("kinds", names)
    options = AdaptOptions(
        ranker=ranker,
        pseudo=PseudoOptions(tuple(names), seed=seed),
        doc2query=str(doc2query),
        questions=questions,
        first_stage=first_stage,
        depth=depth,
        mine=mine,
        minutes=minutes,
        steps=steps,
        settings=dict(settings or {}),
        seed=seed,
    )
    people, folder = [] if queries is None else as_queries(queries), as_path(out, "out")
    judged = None if test is None else _judged(test)
    with ExitStack() as stack:
        keep = None if cache is None else as_path(cache, "cache")
        teachers = [kept(one, keep, stack, encoders=False) for one in as_teachers(teacher)]
        reader = joined(teachers, join)
        job = Adaptation(
            as_index(index), reader, folder, options, show=lambda _: ignore, people=people, test=judged
        )
        adapt_with(job)
    return open_ranker(folder)


def _judged(given: Sequence[object]) -> JudgedQuestions:
    parts = as_list(given, "test", "(queries, qrels), or (queries, qrels, run)")
    if len(parts) not in (2, 3):
        raise WrongUse(f"test has {len(parts)} parts; give (queries, qrels), or (queries, qrels, run)")
    queries, qrels, *run = parts
    return JudgedQuestions(as_queries(queries), as_qrels(qrels), as_run(run[0]) if run else None)
