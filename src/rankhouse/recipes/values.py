"""From what steps made to numbers: runs against judgements, or places in what a step said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rankhouse.core.errors import BadData, RankhouseError, WrongUse
from rankhouse.evaluation.measures import Evaluator, Scores
from rankhouse.io.decoding import read_own
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.recipes.execute import State
from rankhouse.recipes.lines import Key
from rankhouse.recipes.loops import ALL, Pass, labels_of, said
from rankhouse.recipes.parse import FigureSpec, TableSpec
from rankhouse.recipes.plan import SAID, RecipePlan


class Sample(NamedTuple):
    """A row before its loops are summed up: labels ("seed=1 fold=2") and scores of each pass."""

    labels: tuple[str, ...]
    scores: tuple[Scores, ...]


class Quantity(NamedTuple):
    """Quantity to measure for each row."""

    measures: str = ""  # of runs, in ir_measures' notation; "" for numbers
    qrels: str = ""  # reference to the judgements
    numbers: Mapping[str, str] = {}  # column -> place in the JSON


def check_references(plan: RecipePlan, spec: TableSpec | FigureSpec, place: Key) -> None:
    """Check, before anything runs, that all rows and judgements name something; a fault says the line."""
    for row, reference in spec.rows.items():
        plan.loops.needed(reference, (*place, "rows", row))
    plan.loops.needed(spec.qrels, (*place, "qrels"))


def heading(
    plan: RecipePlan, spec: TableSpec | FigureSpec, bindings: Mapping[str, Any], place: Key
) -> tuple[str, str]:
    """Return name and note of a table or figure, for one pass of the variables that it writes in braces."""
    name, note = (plan.loops.fill(text, bindings, place) for text in (spec.name, spec.note))
    return f"{name} ({said(labels_of(bindings))})" if bindings and name == spec.name else name, note


class Results:
    """Finds the results of each pass of a step."""

    def __init__(self, plan: RecipePlan, states: list[State], out: Path) -> None:
        self._plan, self._out = plan, out
        self._states: dict[Pass, State] = {state.task.which: state for state in states}
        self._evaluator = cache(lambda path, measures: Evaluator(read_qrels(path), measures))

    def sample(self, row: str, quantity: Quantity, bindings: Mapping[str, Any], place: Key) -> Sample | None:
        """Measure all passes of a row; None if its data are absent."""
        loops = self._plan.loops
        needed = loops.needed([row, quantity.qrels], place) - bindings.keys()
        free = tuple(name for name in self._plan.file.recipe.loop if name in needed)
        labels, scores = [], []
        for chosen in loops.passes(free):
            both = {**bindings, **chosen}
            path = self._path(row, both, place, of_run=bool(quantity.measures))
            judged = self._path(quantity.qrels, both, place, of_run=True) if quantity.qrels else ""
            if path is None or judged is None:
                return None
            labels.append(said(labels_of(chosen)))
            scores.append(self._measured(path, judged, quantity, place))
        return Sample(tuple(labels), tuple(scores))

    def _path(self, text: str, bindings: Mapping[str, Any], place: Key, *, of_run: bool) -> str | None:
        """Follow a reference to a file; None if it is absent."""
        lines, loops = self._plan.file.lines, self._plan.loops
        filled = loops.fill(text, bindings, place)
        references = loops.references(filled, place)
        whole = len(references) == 1 and references[0].text == filled
        if not whole or any(v == ALL for _, v in references[0].fixed):
            raise lines.fault(place, f'"{text}": give one reference, like "@bm25" (loops are averaged over)')
        (reference,) = references
        if reference.name in self._plan.sources:
            source = self._plan.sources.find(reference.name, reference.inner)
            return None if source.absent else source.word
        (which,) = loops.targets(reference, bindings)
        state = self._states[which]
        if state.record is None:
            return None
        if not of_run and not reference.inner:
            return str(self._out / state.task.folder / SAID)
        return str(self._out / state.task.output / reference.inner)

    def _measured(self, path: str, qrels: str, quantity: Quantity, place: Key) -> Scores:
        try:
            if quantity.measures:
                measured: Scores = self._evaluator(qrels, quantity.measures)(read_run(path))
                return measured
            return _numbers(Path(path), quantity.numbers)
        except RankhouseError as error:
            where = self._plan.file.lines.where(place)
            kind = WrongUse if isinstance(error, WrongUse) else RankhouseError
            raise kind(f"{where}: {error}") from error


def _numbers(path: Path, places: Mapping[str, str]) -> Scores:
    """Read numbers from a JSON file, as the scores of one pass."""
    whole = read_own(path, object, "numbers are read from the JSON that a step writes")
    values = np.array([[_at(whole, where, path)] for where in places.values()], dtype=np.float64)
    return Scores(tuple(places), ("",), values)


def _at(whole: Any, where: str, path: Path) -> float:  # noqa: ANN401 - any JSON
    """Follow a place like ``agreement.kappa`` or ``cells.0.mean``."""
    inside = whole
    for name in where.split("."):
        index: str | int = int(name) if isinstance(inside, list) and name.lstrip("-").isdigit() else name
        try:
            inside = inside[index]
        except (KeyError, IndexError, TypeError):
            raise BadData(f'"{where}": there is no "{name}"; there is: {_inside(inside)}', path) from None
    if inside is None:
        return math.nan
    if not isinstance(inside, int | float):
        raise BadData(f'"{where}" is no number but {inside!r:.80}', path)
    return float(inside)


def _inside(value: object) -> str:
    """Say what a JSON value offers."""
    if isinstance(value, dict):
        return ", ".join(value)
    return f"a list of {len(value)}, from 0" if isinstance(value, list) else repr(value)


def over_queries(sample: Sample) -> Scores:
    """Average each query's values over the passes that have it."""
    first = sample.scores[0]
    if len(sample.scores) == 1:
        return first
    sums: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for scores in sample.scores:
        for column, query_id in enumerate(scores.query_ids):
            sums[query_id] = sums.get(query_id, 0.0) + scores.values[:, column]
            counts[query_id] = counts.get(query_id, 0) + 1
    values = np.stack([sums[q] / counts[q] for q in sums], axis=1)
    without = [set(scores.without_results) for scores in sample.scores]
    unjudged = dict.fromkeys(q for scores in sample.scores for q in scores.without_judgements)
    return Scores(
        first.measures,
        tuple(sums),
        values,
        tuple(q for q in sums if all(q in some for some in without)),
        without_judgements=tuple(q for q in unjudged if q not in sums),
        mismatch=first.mismatch if all(scores.mismatch for scores in sample.scores) else "",
    )


def over_passes(sample: Sample) -> Scores:
    """Put the passes in the place of queries: each pass's mean is one value."""
    first = sample.scores[0]
    means = [[scores.mean(measure) for scores in sample.scores] for measure in first.measures]
    return Scores(first.measures, sample.labels, np.array(means, dtype=np.float64))
