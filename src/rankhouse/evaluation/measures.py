"""Measures of a run against judgements, in ir_measures' notation: ``AP P@30 nDCG@20 RR@10 Judged@10``.

The numbers are trec_eval's to the last digit. The programs that compute them are given judgements and
rankings in a form that is safe for each. trec_eval's C code reserves a counter for every grade from 0 up to
the highest one of a query, and reads them up to ``rel``: negative grades alone, or a ``rel`` above all
grades, make it read and write elsewhere. Ids go through C strings, which end at a null character; the Perl
program splits its lines at white space. Therefore:

- Measures that only ask whether a grade reaches ``rel`` are given grades -1 (not judged), 0 and 1, at rel=1.
- nDCG is given the grades themselves up to :data:`MOST_GAIN`; its time grows with the square of the highest.
- A query of negative grades alone gets one more judged document, not relevant and never retrieved: trec_eval
  defines every measure of such a query (0, and the counts as they are), but computes none safely.
- Queries and documents stand under numbers.
- Scores are whole numbers that fall strictly: a Run is in trec_eval's order already, and not all programs
  break ties alike (MS MARCO's RR@k and Judged@k take the smaller document id first).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.core.frames import frame
from rankhouse.core.progress import counted
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.sameness import NOTHING, mismatch
from rankhouse.evaluation.measure_notation import OWN, Measure, parse, provider_of, registry
from rankhouse.page.tables import Table

if TYPE_CHECKING:
    import pandas as pd


Judgements = dict[str, dict[str, int]]
RankedDocuments = Mapping[str, tuple[str, ...]]

MOST_GAIN = 10_000
"""The highest grade, or gain given in its place, that nDCG takes: some 20 ms a query."""
_GDEVAL_LARGEST_GRADE = 4
_TREC_EVAL = "pytrec_eval"
_NONE_JUDGED = "none"
"""Stands in judgements for a document that no ranking has; real ones are numbers."""


@dataclass(frozen=True)
class Program:
    """A program with its measures and judgements made ready."""

    evaluator: Any  # takes (query -> document -> score), yields a value for each measure and query
    rows: Mapping[str, int]  # measure as the program is asked for it -> its place among all measures
    columns: Mapping[str, int]  # query id -> its place among all queries
    # query id -> document id -> the name it is handed over by; None: its own id
    names: Mapping[str, Mapping[str, str]] | None
    depth: int | None  # the rank below which these measures do not look; None if one of them reads to the end

    def values(self, ranked: RankedDocuments) -> Iterator[tuple[int, int, float]]:
        """Stream (row, column, value) of rankings, best first, of queries that have judgements."""
        longest = max(map(len, ranked.values()))
        longest = longest if self.depth is None else min(self.depth, longest)
        falling = [float(score) for score in range(longest, 0, -1)]
        unjudged = [f"-{rank}" for rank in range(longest)]
        run: dict[str, dict[str, float]] = {}
        for query_id, doc_ids in ranked.items():
            given: Sequence[str] = doc_ids
            if self.names is not None:
                names = self.names[query_id]
                given = [names.get(d, other) for d, other in zip(doc_ids, unjudged, strict=False)]
            run[str(self.columns[query_id])] = dict(zip(given, falling, strict=False))
        for metric in self.evaluator.iter_calc(run):
            yield self.rows[str(metric.measure)], int(metric.query_id), metric.value


def programs_for(measures: Sequence[Measure], judged: Judgements) -> list[Program]:
    """Return the programs that compute these measures for these judgements; none of a query is empty.

    Raises:
        BadData: A grade is too large for a measure.
    """
    groups: dict[_Group, list[int]] = {}
    for row, measure in enumerate(measures):
        groups.setdefault(_group(measure), []).append(row)
    columns = {query_id: column for column, query_id in enumerate(judged)}
    names = {q: {d: str(i) for i, d in enumerate(grades)} for q, grades in judged.items()}
    programs = []
    for (provider, rel, *_), rows in groups.items():
        asked = [measures[row] for row in rows]
        accepted = _accepted(provider, asked, judged, rel)
        if rel != 1:
            asked = [measure(rel=1) for measure in asked]
        named = None if provider == OWN else names
        handed = {
            str(columns[q]): {named[q].get(d, d) if named else d: grade for d, grade in grades.items()}
            for q, grades in accepted.items()
        }
        places = {str(measure): row for measure, row in zip(asked, rows, strict=True)}
        evaluator = registry()[provider].evaluator(asked, handed)
        programs.append(Program(evaluator, places, columns, named, depth=_depth(asked)))
    return programs


class _Group(NamedTuple):
    """Settings that the measures of one evaluator share.

    With ``judged_only`` apart, since the library counts NumRet as the first measure beside it asks.
    """

    provider: str
    rel: int = 1
    has_gains: bool = False
    judged_only: bool = False


def _group(measure: Measure) -> _Group:
    provider, params = provider_of(measure), measure.params
    if provider != _TREC_EVAL:
        return _Group(provider)
    return _Group(provider, params.get("rel", 1), "gains" in params, params.get("judged_only", False))


def _depth(measures: Sequence[Measure]) -> int | None:
    cutoffs = [None if m.params.get("judged_only") else m.params.get("cutoff") for m in measures]
    known = [cutoff for cutoff in cutoffs if cutoff is not None]
    return max(known) if len(known) == len(cutoffs) else None


def _accepted(provider: str, measures: Sequence[Measure], judged: Judgements, rel: int) -> Judgements:
    """Bring judgements into the form from which a program computes these measures safely."""
    if provider == "judged":  # it would count a grade below 0, which means "not in the pool"
        return {q: {d: grade for d, grade in grades.items() if grade >= 0} for q, grades in judged.items()}
    if provider == "gdeval":
        _check_gdeval(judged)
    if provider != _TREC_EVAL:
        return judged
    gains = [measure.params.get("gains", {}) for measure in measures if measure.NAME == "nDCG"]
    for table in gains:
        _check_gains(judged, table)
    return {q: _safe(grades, rel, graded=bool(gains)) for q, grades in judged.items()}


def _safe(grades: Mapping[str, int], rel: int, *, graded: bool) -> dict[str, int]:
    """Return a query's grades as trec_eval's code is given them, at least one of them 0 or more."""
    if graded:
        safe = {doc_id: max(grade, -1) for doc_id, grade in grades.items()}
    else:
        safe = {doc_id: -1 if grade < 0 else int(grade >= rel) for doc_id, grade in grades.items()}
    return safe if max(safe.values()) >= 0 else safe | {_NONE_JUDGED: 0}


def _check_gains(judged: Judgements, gains: Mapping[int, int]) -> None:
    for query_id, grades in judged.items():
        doc_id = max(grades, key=lambda one: gains.get(grades[one], grades[one]))
        if (gain := gains.get(grades[doc_id], grades[doc_id])) > MOST_GAIN:
            raise BadData(
                f'a grade of {gain:,} is in the judgements (query "{query_id}", document "{doc_id}"); nDCG '
                f"takes grades, and gains in their place, up to {MOST_GAIN:,}; map the grades down, or give "
                f"gains: nDCG(gains={{{grades[doc_id]}: 3}})@10"
            )


def _check_gdeval(judged: Judgements) -> None:
    largest = max(grade for grades in judged.values() for grade in grades.values())
    if largest > _GDEVAL_LARGEST_GRADE:
        raise BadData(
            f"a grade of {largest} is in the judgements; ERR and nDCG(dcg='exp-log2') take grades up to "
            f"{_GDEVAL_LARGEST_GRADE}; map the grades down, or give gains: nDCG(gains={{1: 1, 2: 3}})@10"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Values of a run, query by query.

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
        mismatch: Warning where not one of the documents in the run was judged; else "".
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
    def remarks(self) -> tuple[str, ...]:
        """Remarks that a reader of the numbers needs, one sentence each; empty if all is well."""
        sentences = []
        if missing := len(self.without_results):
            sentences.append(
                f"{missing} of {len(self.query_ids)} judged queries without results, counted as 0: "
                f"{name_few(self.without_results)}"
            )
        if unjudged := len(self.without_judgements):
            sentences.append(
                f"{counted(unjudged, 'query', 'queries')} with results but without judgements, left out: "
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
        qrels: The judgements; grades below 0 count as not judged, as in trec_eval.
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
