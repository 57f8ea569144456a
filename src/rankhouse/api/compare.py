"""Systems side by side: runs that are there already, or systems that are run here, each stage once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard, cast, overload

from rankhouse.api.index import as_index
from rankhouse.core import progress
from rankhouse.core.arguments import checked
from rankhouse.core.errors import WrongUse
from rankhouse.core.run import Run
from rankhouse.evaluation import compare as comparing
from rankhouse.evaluation.compare import Comparison
from rankhouse.index.index import Index
from rankhouse.io.files import PathLike, wrong_kind
from rankhouse.io.inputs import (
    QrelsLike,
    QueriesLike,
    RunLike,
    as_measures,
    as_qrels,
    as_queries,
    as_run,
    check_texts,
)
from rankhouse.systems.execution import Execution, costly
from rankhouse.systems.notation import system
from rankhouse.systems.system import System

_MEASURES = "AP nDCG@10"

SystemLike = System | str
"""A system, or its notation."""


@overload
def compare(
    systems: Mapping[str, RunLike],
    queries: QrelsLike,
    qrels: str | Iterable[str] = _MEASURES,
    *,
    baseline: str | None = None,
    test: str = "t",
    correction: str | None = None,
    seed: int = 0,
) -> Comparison: ...


@overload
def compare(
    systems: Mapping[str, RunLike],
    *,
    qrels: QrelsLike,
    measures: str | Iterable[str] = _MEASURES,
    baseline: str | None = None,
    test: str = "t",
    correction: str | None = None,
    seed: int = 0,
) -> Comparison: ...


@overload
def compare(
    systems: Mapping[str, SystemLike | RunLike] | Sequence[SystemLike | PathLike],
    queries: QueriesLike,
    qrels: QrelsLike,
    index: Index | PathLike,
    measures: str | Iterable[str] = _MEASURES,
    *,
    baseline: str | None = None,
    test: str = "t",
    correction: str | None = None,
    seed: int = 0,
) -> Comparison: ...


@checked
def compare(
    systems: Any,
    queries: Any = None,
    qrels: Any = None,
    index: Index | PathLike | None = None,
    measures: str | Iterable[str] | None = None,
    *,
    baseline: str | None = None,
    test: str = "t",
    correction: str | None = None,
    seed: int = 0,
) -> Comparison:
    """Evaluate systems side by side and test their differences to a baseline.

    Runs that exist already are compared by ``compare(runs, qrels, measures)``. Given queries and an index,
    systems are run first; a stage that stands in several of them is run once.

    >>> import rankhouse as rh
    >>> old, new = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 2.0, "a": 1.0}}
    >>> found = rh.compare({"old": old, "new": new}, {"q": {"b": 1}}, "AP", baseline="old")
    >>> found.cell("new", "AP").mean
    1.0
    >>> index = rh.Index.build([{"id": "a", "text": "ships"}, {"id": "b", "text": "ships sail"}], "i")
    >>> both = rh.compare(["bm25", "bm25 % 1"], {"q": "sail"}, {"q": {"b": 1}}, index, "AP")
    >>> both.systems
    ('bm25', 'bm25 % 1')

    Args:
        systems: Name -> a run; or, with queries and an index, name -> a system, its notation or a run, or a
            list of systems or run files, which are then called by their notation or path.
        queries: The queries of the systems.
        qrels: The judgements.
        index: The index that the systems search.
        measures: In ir_measures' notation; AP and nDCG@10 if not given.
        baseline: The system that the others are compared with.
        test: "t" or "randomization".
        correction: None, "bonferroni" or "holm".
        seed: Of the randomization test.

    Raises:
        WrongUse: An unknown baseline, test, correction or measure, or an expression with a fault.
    """
    if index is None:
        if queries is not None:  # compare(runs, qrels, measures)
            if qrels is not None and measures is not None:
                raise WrongUse("compare: queries were given and no index; name the index that is searched")
            queries, qrels, measures = None, queries, measures if qrels is None else qrels
        runs = _runs(systems)
    elif queries is None:
        raise WrongUse("compare: an index was given and no queries; give the queries to ask")
    else:
        runs = _found(systems, queries, as_index(index))
    wanted = as_measures(_MEASURES if measures is None else measures)
    return comparing.compare(
        runs, as_qrels(qrels), wanted, baseline, test=test, correction=correction, seed=seed
    )


def _runs(given: Any) -> dict[str, Run]:  # noqa: ANN401 - what Python hands in
    """Return runs by name."""
    if isinstance(given, Run) or not isinstance(given, Mapping):
        raise wrong_kind("runs", given, 'a mapping of names to runs, for example {"BM25": run}')
    check_texts("the systems' names", given)
    for name, run in given.items():
        if isinstance(run, System):
            raise WrongUse(f"compare: {name} is a system; give queries and an index to run it on")
        if _is_system(run) and _is_notation(run):
            raise WrongUse(
                f'compare: {name}: "{run}" is a system and no file; give queries= and index= to run it on'
            )
    return {name: as_run(run) for name, run in given.items()}


def _found(
    given: Mapping[str, SystemLike | RunLike] | Sequence[SystemLike | PathLike],
    queries: QueriesLike,
    index: Index,
) -> dict[str, Run]:
    """Run systems, what they share once; runs among them stay as they are."""
    if isinstance(given, str | System) or not isinstance(given, Mapping | Sequence):
        raise wrong_kind(
            "systems", given, 'names and systems, for example {"hybrid": "bm25 + dense(default)"}'
        )
    named = given if isinstance(given, Mapping) else _by_notation(given)
    check_texts("the systems' names", named)
    asked: dict[str, System] = {}
    runs: dict[str, Run] = {}
    for name, one in named.items():
        if _is_system(one):
            asked[name] = system(one)
        else:
            runs[name] = as_run(cast("RunLike", one))
    several = Counter(stage for one in asked.values() for stage in set(costly(one)))
    for stage, count in several.items():
        if count > 1:
            progress.note(f"{stage} is part of {count} systems and is run once")
    texts = as_queries(queries)
    with progress.shown("running systems", None, "work") as show:
        runs |= Execution(index, texts, progress=show).run_all(asked)
    return {name: runs[name] for name in named}


def _by_notation(given: Sequence[SystemLike | PathLike]) -> dict[str, SystemLike | PathLike]:
    """Return the systems of a list by their notation; WrongUse for what has none, or one that came before."""
    named: dict[str, SystemLike | PathLike] = {}
    for one in given:
        if not isinstance(one, str | os.PathLike | System):  # a path is that of a run
            raise wrong_kind("one of a list of systems", one, 'names, too, for example {"BM25": run}')
        if str(one) in named:
            raise WrongUse(f"compare: {one} stands twice in the list of systems; leave one out, or name them")
        named[str(one)] = one
    return named


def _is_notation(given: SystemLike) -> bool:
    try:
        system(given)
    except WrongUse:
        return False
    return True


def _is_system(given: SystemLike | RunLike) -> TypeGuard[SystemLike]:
    """Return whether something is a system or its notation; a text that names a file is that run."""
    if isinstance(given, str):  # a long expression is no name that a file could have, which Path would raise
        return not os.path.isfile(given)  # noqa: PTH113
    return isinstance(given, System)
