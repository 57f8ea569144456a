"""rh.adapt: documents and a teacher become a ranker of one's own, without judgements."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankhouse.app.api.index import as_index
from rankhouse.app.api.inputs import PathLike, QrelsLike, QueriesLike, as_path, as_qrels, as_queries
from rankhouse.app.api.rankers import as_ranker, open_ranker
from rankhouse.core.arguments import checked
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Ranker
from rankhouse.core.progress import ignore
from rankhouse.index.index import Index

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


@checked
def adapt(
    index: Index | PathLike,
    teacher: str | os.PathLike[str] | Ranker,
    *,
    out: PathLike,
    ranker: str = "tk",
    queries: QueriesLike | None = None,
    test: tuple[QueriesLike, QrelsLike] | None = None,
    minutes: float = 0.0,
    steps: int = 0,
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
    >>> pupil = "knrm(width=8, min_count=1)"
    >>> ranker = rh.adapt(index, Shared(), out="mine", ranker=pupil, steps=40)
    >>> len(ranker.rank("ship1 port1", texts[:3]).doc_ids)
    3

    Args:
        index: The documents, read whole.
        teacher: A ranker, or what :func:`open_ranker` opens; a bi-encoder teaches quickest.
        out: The folder; given again, a killed adaptation goes on from there. It holds the report.
        ranker: The pupil: ``tk``, ``knrm``, or a design or checkpoint in notation.
        queries: Questions of people, without judgements, to be learned from as well.
        test: (queries, qrels) to measure by; these questions are not learned.
        minutes: How long all of it may take; 0: as long as ``steps`` take.
        steps: Of the training; 0: 3,000, or as many as fit into ``minutes``.
        settings: What differs from the family's recipe.
        seed: Of all that is drawn.

    Raises:
        MissingExtra: torch is not installed.
        WrongUse: The folder holds another adaptation, or an unknown family.
        BadData: The documents ask no question that comes back.
    """
    try:
        from rankhouse.app.adapt.adapt import adapt_with
        from rankhouse.app.adapt.options import AdaptOptions, JudgedQuestions
    except ImportError as error:
        raise MissingExtra("training", "neural") from error
    if minutes and steps:
        raise WrongUse(f"minutes={minutes:g} and steps={steps} both say how long the training is; give one")
    options = AdaptOptions(
        ranker=ranker, minutes=minutes, steps=steps, settings=dict(settings or {}), seed=seed
    )
    judged = None if test is None else JudgedQuestions(as_queries(test[0]), as_qrels(test[1]))
    people = [] if queries is None else as_queries(queries)
    folder = as_path(out, "out")
    adapt_with(as_index(index), as_ranker(teacher), folder, options, lambda _: ignore, people, judged)
    return open_ranker(folder)
