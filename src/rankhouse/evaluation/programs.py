"""The programs that compute measures, and judgements and rankings in a form that is safe for each of them.

trec_eval's C code reserves a counter for every grade from 0 up to the highest one of a query, and reads them
up to ``rel``: negative grades alone, or a ``rel`` above all grades, make it read and write elsewhere. Ids go
through C strings, which end at a null character; the Perl program splits its lines at white space. Therefore:

- Measures that only ask whether a grade reaches ``rel`` are given grades -1 (not judged), 0 and 1, at rel=1.
- nDCG is given the grades themselves up to :data:`MOST_GAIN`; its time grows with the square of the highest.
- A query of negative grades alone gets one more judged document, not relevant and never retrieved: trec_eval
  defines every measure of such a query (0, and the counts as they are), but computes none safely.
- Queries and documents stand under numbers.
- Scores are whole numbers that fall strictly: a Run is in trec_eval's order already, and not all programs
  break ties alike (MS MARCO's RR@k and Judged@k take the smaller document id first).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankhouse.core.errors import BadData
from rankhouse.evaluation.measure_notation import OWN, Measure, provider_of, registry

Judgements = dict[str, dict[str, int]]
Ranked = Mapping[str, tuple[str, ...]]

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

    def values(self, ranked: Ranked) -> Iterator[tuple[int, int, float]]:
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
    """What the measures of one evaluator have in common.

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
