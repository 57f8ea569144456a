"""rh.train and rh.adapt: judgements, labelled pairs or a teacher's scores become a ranker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from rankhouse.adaptation.options import AdaptJob
from rankhouse.api.index import as_index
from rankhouse.api.session import open_ranker, working
from rankhouse.core.arguments import checked
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.progress import OnProgress, OnStep, heard_by, stages
from rankhouse.index.index import Index
from rankhouse.io.files import PathLike, as_path, wrong_kind
from rankhouse.io.inputs import QrelsLike, QueriesLike, RunLike, as_list, check_texts
from rankhouse.jobs.train import TrainJob
from rankhouse.labels.pseudo_queries import PseudoOptions
from rankhouse.systems.teachers import TeacherLike

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

_VALIDATION: Final = "(queries, qrels, run)"
_TEST: Final = "(queries, qrels), or (queries, qrels, run)"


@checked
def train(
    ranker: str | os.PathLike[str],
    index: Index | PathLike | None = None,
    *,
    out: PathLike,
    queries: QueriesLike | None = None,
    qrels: QrelsLike | None = None,
    run: RunLike | None = None,
    pairs: Sequence[PathLike] | PathLike = (),
    teacher: TeacherLike | Sequence[TeacherLike] | None = None,
    join: str = "z-score",
    loss: str = "",
    validation: tuple[QueriesLike, QrelsLike, RunLike] | None = None,
    validation_sets: Sequence[PathLike] | PathLike = (),
    split: str = "whole",
    pool: str = "max",
    depth: int = 100,
    settings: Mapping[str, object] | None = None,
    on_progress: OnProgress | None = None,
    on_step: OnStep | None = None,
) -> NeuralRanker:
    """Train a ranker on judgements, labelled pairs or a teacher's scores, and open the best of it.

    >>> import rankhouse as rh
    >>> index = rh.Index.build([{"id": "a", "text": "ships sail"}, {"id": "b", "text": "ships sink"}], "i")
    >>> queries, qrels = {"q": "sail"}, {"q": {"a": 1, "b": 0}}
    >>> design = "knrm(width=8, min_count=1)"
    >>> ranker = rh.train(design, index, out="trained", queries=queries, qrels=qrels)
    >>> sorted(ranker.rank("sail", ["ships sail", "ships sink"]).doc_ids)
    ['0', '1']

    Args:
        ranker: A model to begin, ``tk(vectors="glove.txt")``, or a checkpoint, ``crossencoder("DIR")``.
        index: The index of the documents; ``pairs`` need none.
        out: The training's folder; given again, a killed training goes on from there.
        queries: Texts to learn from, with ``qrels`` and, for negatives, ``run``.
        qrels: Their judgements.
        run: A first stage.
        pairs: PAIRS files in place of the three.
        teacher: A ranker whose scores are learned, of the pairs of ``run``; ``qrels`` is not needed then. Or
            a run with scores (a :class:`Run`, a file), or a list of several, whose scores are joined.
        join: The way to join several teachers' scores: ``z-score`` or ``ranks``, within each query.
        loss: The loss on scores: ``margin-mse`` (what a teacher brings), ``listwise-kl``,
            ``pointwise``; without a teacher, from those of PAIRS files. "": the family's own, on labels.
        validation: (queries, qrels, run) by which the best is chosen.
        validation_sets: Instead, collections with documents, queries and judgements of their own, whose mean
            chooses: folders in BEIR's layout, ``ir_datasets:nano-beir/scifact``; BM25's first are re-ranked.
        split: How documents are cut for validation and use.
        pool: The pool of the passages' scores.
        depth: How deep validation re-ranks.
        settings: Differences from the family's defaults: ``{"epochs": 3, "rate": 1e-4, "seed": 1}``.
        on_progress: Takes a :class:`ProgressReport` now and then; None shows a bar.
        on_step: Takes each line of the training's log as a mapping: step, epoch, loss, rate, norm, seconds;
            of a validation measure, value and first_stage.

    Raises:
        MissingExtra: torch is not installed.
        WrongUse: Neither judgements nor pairs, or both; the folder holds another training.
        BadData: Nothing to learn from.
    """
    if validation is not None and validation_sets:
        raise WrongUse("validation and validation_sets both say what to validate on; give one")
    judged = (None, None, None) if validation is None else _judged(validation, "validation", _VALIDATION, 3)
    job = TrainJob(
        ranker=str(as_path(ranker, "ranker")),
        index=None if index is None else as_index(index),
        queries=queries,
        qrels=qrels,
        run=run,
        pairs=tuple(_paths(pairs, "pairs", "PAIRS files")),
        teachers=() if teacher is None else _teachers(teacher),
        join=join,
        valid_queries=judged[0],
        valid_qrels=judged[1],
        valid_run=judged[2],
        valid_sets=tuple(map(str, _paths(validation_sets, "validation_sets", "folders of collections"))),
        depth=depth,
        split=split,
        pool=pool,
    )
    folder = as_path(out, "out")
    with working("training", None, "steps", on_progress, on_step=on_step) as show:
        job.train(folder, _changes(settings) | ({"loss": loss} if loss else {}), show)
    return open_ranker(folder)


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
    weigh: tuple[QueriesLike, QrelsLike] | None = None,
    first_stage: str = AdaptJob.first_stage,
    minutes: float = 0.0,
    steps: int = 0,
    questions: int = AdaptJob.questions,
    kinds: Sequence[str] = PseudoOptions.kinds,
    doc2query: PathLike = "",
    depth: int = AdaptJob.depth,
    held_out: int = AdaptJob.held_out,
    cache: PathLike | None = None,
    mine: int = 0,
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
    on_progress: OnProgress | None = None,
    on_step: OnStep | None = None,
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
        teacher: A ranker, or what :func:`open_ranker` opens; a bi-encoder teaches quickest. A system, or its
            expression: its rankings are the candidates. Or a list of several, whose scores are joined; a run
            with scores among them counts for its own questions.
        out: The folder; given again, a killed adaptation goes on from there, and with more ``steps`` or
            ``minutes`` a finished one. It holds the report.
        ranker: The student: ``tk``, ``knrm``, or a design or checkpoint in notation.
        join: The way to join several teachers' scores: ``z-score`` or ``ranks``, within each query.
        queries: Real questions without judgements, to learn from as well.
        test: (queries, qrels) to measure by; these questions are not learned. (queries, qrels, run) has the
            run reranked in place of what the first stage finds.
        weigh: (queries, qrels) of your own that choose the student's weight, beside held-out questions.
        first_stage: The first stage that finds candidates and is joined with the student, in notation.
        minutes: How long all of it may take; 0: as long as ``steps`` take.
        steps: Of the training; 0: 4,000, or as many as fit into ``minutes``.
        questions: At most this many pseudo-queries.
        kinds: Kinds of pseudo-queries: ``title``, ``heading``, ``first``, ``asked``, ``span``,
            ``question``, ``keywords``, ``crop``.
        doc2query: A T5 that writes questions besides: its folder or hub name, or
            ``doc2query("DIR", count=5)``; with the kind "doc2query" alone there are no others.
        depth: How many documents of the first stage the student will rerank.
        held_out: How many pseudo-queries are not learned, for validation and the student's weight.
        cache: A folder in which scores of teachers that are no bi-encoders are kept.
        mine: How often the student itself chooses candidates, between parts of its training.
        settings: Differences from the family's recipe.
        seed: Of all random draws.
        on_progress: Takes a :class:`ProgressReport` now and then; None shows a bar.
        on_step: Takes each line of the training's log, as for :func:`train`.

    Raises:
        MissingExtra: torch is not installed.
        WrongUse: The folder holds another adaptation, or an unknown family.
        BadData: The documents ask no question that comes back.
    """
    with needs("neural", "training"):
        from rankhouse.adaptation.adapt import adapt_with
    if minutes and steps:
        raise WrongUse(f"minutes={minutes:g} and steps={steps} both say how long the training is; give one")
    names = as_list(kinds, "kinds", 'several kinds of pseudo-queries, for example ["title", "span"]')
    check_texts("kinds", names)
    judged = (None, None, None) if test is None else _judged(test, "test", _TEST, 2)
    weighing = (None, None, None) if weigh is None else _judged(weigh, "weigh", "(queries, qrels)", 2, most=2)
    job = AdaptJob(
        index=as_index(index),
        teachers=_teachers(teacher),
        join=join,
        ranker=ranker,
        queries=queries,
        test_queries=judged[0],
        test_qrels=judged[1],
        test_run=judged[2],
        weight_queries=weighing[0],
        weight_qrels=weighing[1],
        first_stage=first_stage,
        minutes=minutes,
        steps=steps,
        questions=questions,
        kinds=",".join(names),
        doc2query=str(doc2query),
        depth=depth,
        held_out=held_out,
        cache=None if cache is None else as_path(cache, "cache"),
        mine=mine,
        seed=seed,
    )
    folder = as_path(out, "out")
    with heard_by(on_progress, on_step), ExitStack() as stack:
        adapt_with(job.adaptation(folder, _changes(settings), stages(stack), stack))
    return open_ranker(folder)


def _teachers(given: TeacherLike | Sequence[TeacherLike]) -> tuple[TeacherLike, ...]:
    several = tuple(given) if isinstance(given, list | tuple) else (cast(TeacherLike, given),)
    if not several:
        raise WrongUse("no teacher was given; name a ranker, or a run with scores")
    return several


def _changes(settings: Mapping[str, object] | None) -> dict[str, object]:
    if settings is not None and not isinstance(settings, Mapping):
        raise wrong_kind("settings", settings, 'a mapping, for example {"epochs": 3}')
    check_texts("the settings' names", settings or ())
    return dict(settings or {})


def _paths(given: Sequence[PathLike] | PathLike, name: str, wanted: str) -> list[Path]:
    several = [given] if isinstance(given, str | os.PathLike) else as_list(given, name, wanted)
    return [as_path(one, name) for one in several]


def _judged(given: Sequence[Any], name: str, form: str, least: int, most: int = 3) -> tuple[Any, Any, Any]:
    """Return queries, their judgements, and a run, or None where none is given."""
    parts = as_list(given, name, form)
    if not least <= len(parts) <= most:
        raise WrongUse(f"{name} has {len(parts)} parts; give {form}")
    queries, qrels, run = [*parts, None][:3]
    return queries, qrels, run
