"""Measures of a run against judgements, in ir_measures' notation: ``AP P@30 nDCG@20 RR@10 Judged@10``.

The numbers are trec_eval's to the last digit. What the programs behind the measures are given, and what is
kept from them, is in :mod:`rankhouse.evaluation.programs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.core.frames import frame
from rankhouse.core.overlap import NOTHING, mismatch
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.measure_notation import parse
from rankhouse.evaluation.programs import programs_for
from rankhouse.page.tables import Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """What a run is worth, query by query.

    >>> import rankhouse as rh
    >>> scores = rh.evaluate({"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 1}}, "AP RR@10")
    >>> scores.to_dict()
    {'AP': 0.5, 'RR@10': 0.5}

    Attributes:
        measures: The measures' names, as ir_measures writes them.
        query_ids: Every judged query, in the order of the judgements.
        values: (measures, queries) float64, one value of a measure for a query.
        without_results: Judged queries for which the run has nothing; each counts as 0.
        without_judgements: Queries of the run that nobody judged; left out.
        mismatch: What to say where not one of the documents in the run was judged; else "".
    """

    measures: tuple[str, ...]
    query_ids: tuple[str, ...]
    values: NDArray[np.float64]
    without_results: tuple[str, ...] = ()
    without_judgements: tuple[str, ...] = ()
    mismatch: str = ""

    def of(self, measure: str) -> NDArray[np.float64]:
        """Return the values of one measure, (queries,) float64, in the order of ``query_ids``.

        Raises:
            WrongUse: The measure was not asked for.
        """
        measure = str(measure)  # or one of ir_measures
        name = measure if measure in self.measures else str(parse(measure)[0])
        if name not in self.measures:
            raise WrongUse(
                f'"{measure}" was not computed; computed are: {" ".join(self.measures)}; '
                "name it when evaluating"
            )
        row: NDArray[np.float64] = self.values[self.measures.index(name)]
        return row

    def __getitem__(self, measure: str) -> float:
        return self.mean(measure)

    def __iter__(self) -> Iterator[str]:
        return iter(self.measures)

    def __len__(self) -> int:
        return len(self.measures)

    def keys(self) -> tuple[str, ...]:
        """Return the measures' names, so that ``dict(scores)`` is measure -> mean."""
        return self.measures

    def mean(self, measure: str) -> float:
        """Average one measure over all judged queries (as trec_eval does with ``-c``).

        The values are added one by one in the order of the query ids, as trec_eval does: the last digit can
        depend on it.
        """
        by_id = np.argsort(np.array(self.query_ids, dtype=object), kind="stable")
        return float(np.cumsum(self.of(measure)[by_id])[-1] / len(self.query_ids))

    @cached_property
    def means(self) -> dict[str, float]:
        """Measure -> mean over all judged queries."""
        return {measure: self.mean(measure) for measure in self.measures}

    @cached_property
    def per_query(self) -> dict[str, dict[str, float]]:
        """Query id -> measure -> value."""
        columns: list[list[float]] = self.values.T.tolist()
        named = [dict(zip(self.measures, column, strict=True)) for column in columns]
        return dict(zip(self.query_ids, named, strict=True))

    @property
    def nothing_judged(self) -> bool:
        """True if not one of the documents in the run was judged."""
        return bool(self.mismatch)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of the numbers must know, one sentence each; empty if all is well."""
        sentences = []
        if missing := len(self.without_results):
            sentences.append(
                f"{missing} of {len(self.query_ids)} judged queries without results, counted as 0: "
                f"{name_few(self.without_results)}"
            )
        if unjudged := len(self.without_judgements):
            sentences.append(
                f"{unjudged} queries with results but without judgements, left out: "
                f"{name_few(self.without_judgements)}"
            )
        return (*sentences, self.mismatch) if self.mismatch else tuple(sentences)

    @property
    def table(self) -> Table:
        """Return one row a measure: its name and mean."""
        return Table(("measure", "mean"), tuple((name, f"{mean:.4f}") for name, mean in self.means.items()))

    def __str__(self) -> str:
        lines = self.table.to_text().splitlines()[1:]
        return "\n".join([*lines, *self.remarks])

    def __repr__(self) -> str:
        return f"<Scores of {len(self.query_ids):,} queries>\n{self}"

    def _repr_html_(self) -> str:
        return "".join([self.table.to_html(), *(f"<p>{escape(remark)}</p>" for remark in self.remarks)])

    def to_dict(self) -> dict[str, float]:
        """Return measure -> mean over all judged queries; :attr:`per_query` has the values of each."""
        return dict(self.means)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a query: query_id, then a column a measure (needs pandas)."""
        rows = [{"query_id": query_id, **values} for query_id, values in self.per_query.items()]
        return frame(rows, ("query_id", *self.measures))

    def to_markdown(self) -> str:
        """Return the means as a table in Markdown."""
        return self.table.to_markdown()


def evaluate(run: Run, qrels: Qrels, measures: str | Iterable[str]) -> Scores:
    """Measure a run against judgements.

    Every judged query counts; one without results counts as 0 and is listed. To average over the queries
    that both sides have, as trec_eval does without ``-c``, pass ``restrict(qrels, run)`` as judgements.

    Args:
        qrels: What the judges say; grades below 0 count as not judged, as in trec_eval.
        measures: Names in ir_measures' notation, in one text or several.

    Raises:
        WrongUse: A measure that does not exist or cannot be computed here.
        BadData: No query is in both run and judgements.
    """
    return Evaluator(qrels, measures)(run)


def scorer(qrels: Qrels, measure: str) -> Callable[[Run], float]:
    """Return a function from run to the mean of one measure, for tuning; judgements are prepared once.

    Raises:
        WrongUse: No such measure, or several.
        BadData: There are no judgements.
    """
    evaluator = Evaluator(qrels, measure)
    if len(evaluator.measures) != 1:
        raise WrongUse(f'"{measure}" names {len(evaluator.measures)} measures; tuning takes one, like  AP')
    return lambda run: evaluator(run).mean(evaluator.measures[0])


class Evaluator:
    """Judgements and measures made ready once, to measure any number of runs.

    Raises:
        WrongUse: A measure that does not exist or cannot be computed here.
        BadData: There are no judgements, or a grade is too large for a measure.
    """

    def __init__(self, qrels: Qrels, measures: str | Iterable[str]) -> None:
        parsed = parse(measures)
        self.measures = tuple(map(str, parsed))
        self._judged = {q: {d: int(g) for d, g in judged.items()} for q, judged in qrels.items() if judged}
        if not self._judged:
            raise BadData("there are no judgements; lines of  query iteration document grade  are needed")
        self._programs = programs_for(parsed, self._judged)

    def __call__(self, run: Run) -> Scores:
        """Measure a run.

        Raises:
            BadData: No query is in both run and judgements.
        """
        ranked = {q: run[q].doc_ids for q in self._judged if q in run}
        ranked = {q: doc_ids for q, doc_ids in ranked.items() if doc_ids}
        if not ranked:
            raise BadData(_no_overlap(run, self._judged))
        values = np.zeros((len(self.measures), len(self._judged)))
        for program in self._programs:
            for row, column, value in program.values(ranked):
                values[row, column] = value
        values.flags.writeable = False
        apart = all(self._judged[q].keys().isdisjoint(doc_ids) for q, doc_ids in ranked.items())
        return Scores(
            self.measures,
            tuple(self._judged),
            values,
            tuple(q for q in self._judged if q not in ranked),
            without_judgements=tuple(q for q in run if q not in self._judged),
            mismatch=mismatch(ranked, "the run", self._judged, "the judgements", documents=NOTHING)
            if apart
            else "",
        )


def _no_overlap(run: Run, judged: Mapping[str, object]) -> str:
    if not len(run):
        return "the run is empty, so there is nothing to evaluate"
    if any(q in run for q in judged):
        return "the run has no results for any judged query, so there is nothing to evaluate"
    return (
        f"run and judgements have no query in common: the run has {_some(run)}; "
        f"the judgements have {_some(judged)}; give the judgements of the same topics"
    )


def _some(ids: Collection[str]) -> str:
    return name_few(ids) + (f" ({len(ids):,} in all)" if len(ids) > 5 else "")
