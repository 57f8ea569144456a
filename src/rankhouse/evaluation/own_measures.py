"""Measures of one's own: a function of a ranking and its judgements, known by a name like any other measure.

:func:`define_measure` makes one known to this process. A package makes one known to every command and recipe
by an entry point of the group ``rankhouse.measures``, whose name is the measure's::

    [project.entry-points."rankhouse.measures"]
    FirstHit = "my_measures:first_hit"
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from rankhouse.core.errors import RankhouseError, WrongUse, needs
from rankhouse.core.notation import entries, load

GROUP = "rankhouse.measures"
RankedIds = tuple[str, ...]
MeasureFunction = Callable[[RankedIds, Mapping[str, int]], float]


class _Own(NamedTuple):
    measure: Any
    function: MeasureFunction


_defined: dict[str, _Own] = {}


def define_measure(name: str, function: MeasureFunction) -> None:
    """Make a measure of one's own known by its name, also with a cutoff: ``FirstHit``, ``FirstHit@10``.

    >>> import rankhouse as rh
    >>> from rankhouse.evaluation.own_measures import define_measure
    >>> def first_hit(ranked, judged):
    ...     return float(any(judged.get(doc_id, 0) > 0 for doc_id in ranked[:1]))
    >>> define_measure("FirstHit", first_hit)
    >>> print(rh.evaluate({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1}}, "FirstHit AP"))
    FirstHit  1.0000
    AP        1.0000

    A name that was defined before is redefined.

    Args:
        name: As it is written: letters, digits and underscores.
        function: From a query's document ids, best first and up to the cutoff, and its judgements (document
            id -> grade) to a value; a query without results is 0 and is not handed over.

    Raises:
        WrongUse: No name, or one of ir_measures' measures.
    """
    with needs("measures", "a measure of one's own"):
        from ir_measures.measures import Measure, ParamInfo, registry  # noqa: PLC0415 - only evaluation pays

    if not name.isidentifier():
        raise WrongUse(f'"{name}" cannot name a measure; use letters, digits and underscores, like  FirstHit')
    if name in registry:
        raise WrongUse(f'"{name}" is a measure of ir_measures; give your measure another name')
    cutoff = ParamInfo(dtype=int, desc="ranking cutoff")  # type: ignore[no-untyped-call]
    kind = type(name, (Measure,), {"NAME": name, "__name__": name, "SUPPORTED_PARAMS": {"cutoff": cutoff}})
    _defined[name] = _Own(kind(), function)


def own_measures() -> dict[str, Any]:
    """Return the measures defined here or by installed packages: name -> measure."""
    _load_installed()
    return {name: own.measure for name, own in _defined.items()}


@cache
def _load_installed() -> None:
    for name in entries(GROUP):
        if name not in _defined:
            define_measure(name, load(GROUP, name))


class OwnMeasures:
    """Computes measures of one's own, in the place of one of ir_measures' programs."""

    def is_available(self) -> bool:
        """Whether it can compute anything: always."""
        return True

    def supports(self, measure: Any) -> bool:  # noqa: ANN401 - the library is untyped
        """Whether a measure was defined here."""
        return measure.NAME in _defined

    def evaluator(self, measures: Iterable[Any], qrels: Mapping[str, Mapping[str, int]]) -> OwnEvaluator:
        """Return what measures any number of runs."""
        return OwnEvaluator({measure: _defined[measure.NAME].function for measure in measures}, qrels)


class OwnEvaluator(NamedTuple):
    """Measures runs by functions."""

    measures: Mapping[Any, MeasureFunction]
    qrels: Mapping[str, Mapping[str, int]]

    def iter_calc(self, run: Mapping[str, Mapping[str, float]]) -> Iterator[Any]:
        """Yield a value for each measure and query of a run, (query id -> document id -> falling score).

        Raises:
            RankhouseError: A measure raised an error, or returned no number.
        """
        from ir_measures import Metric  # noqa: PLC0415 - only evaluation pays for it

        for query_id, scores in run.items():
            for measure, function in self.measures.items():
                ranked = tuple(scores)[: measure.params.get("cutoff")]
                try:
                    value = float(function(ranked, self.qrels[query_id]))
                    if not math.isfinite(value):
                        raise ValueError(f'it returned {value}, for query "{query_id}"')
                except Exception as error:
                    raise RankhouseError(
                        f'the measure "{measure}" failed with {type(error).__name__}: {error}; it is given a '
                        "tuple of document ids and a mapping of document id to grade, and returns a number"
                    ) from error
                yield Metric(query_id, measure, value)
