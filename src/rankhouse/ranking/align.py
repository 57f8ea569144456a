"""Several runs laid side by side: what each of them says of every document that any of them has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Ranking
from rankhouse.core.run import Run

Floats = NDArray[np.float64]


class AlignedRuns(NamedTuple):
    """Runs laid side by side: one row for each (query, document) that any of them has.

    ``values`` (runs, rows) is NaN where a run lacks the document; ``floors`` (runs, queries) is what it then
    counts. Rows are ordered by query, then document id, descending, as a Run breaks ties; ``code`` points
    into the sorted ``table`` of document ids.
    """

    queries: dict[str, int]
    query: NDArray[np.int64]
    table: NDArray[np.object_]
    code: NDArray[np.int64]
    values: Floats
    floors: Floats


def align(
    runs: Sequence[Run], value: Callable[[Ranking], Floats], missing: str, flat_floor: float | None = None
) -> AlignedRuns:
    """Value every run's documents and bring the same ones under each other.

    Args:
        missing: "min", and a document that a run lacks counts there as its lowest; else as 0.
        flat_floor: With "min", what it counts where all scores of the run are equal; None: as they do.

    Raises BadData: a run has infinite scores.
    """
    queries = {q: i for i, q in enumerate(dict.fromkeys(q for run in runs for q in run))}
    codes: dict[str, int] = {}
    floors = np.zeros((len(runs), len(queries)))
    columns: list[tuple[NDArray[np.int64], NDArray[np.int64], Floats]] = []
    for number, run in enumerate(runs):
        documents, sizes, values = [], [], [np.empty(0)]
        for query_id in run:
            ranking = run[query_id]
            documents += [codes.setdefault(doc_id, len(codes)) for doc_id in ranking.doc_ids]
            sizes.append(len(ranking.doc_ids))
            values.append(_valued(value, ranking, number, query_id))
            if missing == "min" and sizes[-1]:
                is_flat = ranking.scores[0] == ranking.scores[-1]
                lowest = flat_floor if is_flat and flat_floor is not None else values[-1].min()
                floors[number, queries[query_id]] = lowest
        query = np.repeat([queries[q] for q in run], sizes).astype(np.int64)
        columns.append((query, np.array(documents, np.int64), np.concatenate(values)))
    table = np.array([*codes], dtype=object)
    by_id = np.argsort(table, kind="stable") if len(table) else np.empty(0, np.int64)
    rank = np.empty(len(table), np.int64)
    rank[by_id] = np.arange(len(table))
    last = max(1, len(table)) - 1
    keys = np.concatenate([query * (last + 1) + last - rank[code] for query, code, _ in columns])
    rows, place = np.unique(keys, return_inverse=True)
    aligned = np.full((len(runs), len(rows)), np.nan)
    ends = np.cumsum([0, *(len(column[2]) for column in columns)])
    for number, (_, _, worth) in enumerate(columns):
        aligned[number, place[ends[number] : ends[number + 1]]] = worth
    query, backwards = np.divmod(rows, last + 1)
    return AlignedRuns(queries, query, table[by_id], last - backwards, values=aligned, floors=floors)


def _valued(value: Callable[[Ranking], Floats], ranking: Ranking, number: int, query_id: str) -> Floats:
    if not len(ranking.doc_ids):
        return np.empty(0)
    with np.errstate(invalid="ignore"):
        values = value(ranking)
    if not np.isfinite(values).all():
        raise BadData(
            f'run {number + 1} has infinite scores for query "{query_id}", which cannot be added up; '
            "fuse by rrf, which looks at ranks only, or mend the scores"
        )
    return values
