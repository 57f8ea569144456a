"""rh.train: judgements, labelled pairs or a teacher's scores become a ranker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.api.index import as_index
from rankhouse.api.rankers import TeacherLike, as_teachers, open_ranker
from rankhouse.core.arguments import checked
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
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
    wrong_kind,
)
from rankhouse.systems.teachers import joined

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


@checked
def train(
    ranker: str | os.PathLike[str],
    index: Index | PathLike,
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
    split: str = "whole",
    pool: str = "max",
    depth: int = 100,
    settings: Mapping[str, object] | None = None,
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
        index: Where the documents are.
        out: The training's folder; given again, a killed training goes on from there.
        queries: Texts to learn from, with ``qrels`` and, for negatives, ``run``.
        qrels: Their judgements.
        run: A first stage.
        pairs: PAIRS files in place of the three.
        teacher: A ranker whose scores are learned, of the pairs of ``run``; ``qrels`` is not needed then. Or
            a run with scores (a :class:`Run`, a file), or a list of several, whose scores are joined.
        join: What makes one score of several teachers': ``z-score`` or ``ranks``, within each query.
        loss: What learns from scores: ``margin-mse`` (what a teacher brings), ``listwise-kl``,
            ``pointwise``; without a teacher, from those of PAIRS files. "": the family's own, on labels.
        validation: (queries, qrels, run) by which the best is chosen.
        split: How documents are cut for validation and use.
        pool: What makes one score of the passages.
        depth: How deep validation re-ranks.
        settings: What differs from the family's defaults: ``{"epochs": 3, "rate": 1e-4, "seed": 1}``.

    Raises:
        MissingExtra: torch is not installed.
        WrongUse: Neither judgements nor pairs, or both; the folder holds another training.
        BadData: Nothing to learn from.
    """
    try:
        from rankhouse.training.teaching import TrainingData, TrainOptions, begin, train_with
    except ImportError as error:
        raise MissingExtra("training", "neural") from error
    design, folder = str(as_path(ranker, "ranker")), as_path(out, "out")
    options = TrainOptions(split, pool, depth, _changes(settings) | ({"loss": loss} if loss else {}))
    stored = as_index(index)
    data = TrainingData(
        queries=None if queries is None else as_queries(queries),
        qrels=None if qrels is None else as_qrels(qrels),
        run=None if run is None else as_run(run),
        pairs=_pair_files(pairs),
        validation=None if validation is None else _validation(validation),
        teacher=None if teacher is None else joined(as_teachers(teacher), join),
    )
    train_with(begin(design, stored, options.seed), stored, data, folder, options=options)
    return open_ranker(folder)


def _changes(settings: Mapping[str, object] | None) -> dict[str, object]:
    if settings is not None and not isinstance(settings, Mapping):
        raise wrong_kind("settings", settings, 'a mapping, for example {"epochs": 3}')
    check_texts("the settings' names", settings or ())
    return dict(settings or {})


def _pair_files(pairs: Sequence[PathLike] | PathLike) -> tuple[Path, ...]:
    files = [pairs] if isinstance(pairs, str | os.PathLike) else as_list(pairs, "pairs", "PAIRS files")
    return tuple(as_path(file, "pairs") for file in files)


def _validation(given: tuple[QueriesLike, QrelsLike, RunLike]) -> tuple[list[Query], Qrels, Run]:
    parts = as_list(given, "validation", "(queries, qrels, run)")
    if len(parts) != 3:
        raise WrongUse(f"validation has {len(parts)} parts; give (queries, qrels, run)")
    queries, qrels, run = parts
    return as_queries(queries), as_qrels(qrels), as_run(run)
