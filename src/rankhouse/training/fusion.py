"""Methods that make one run of several, each settled on judgements where something is to be settled.

A method takes runs and, for tuning, judgements; it returns what joins these runs or others that stand for the
same systems on other queries. Weighted sums are in ``ranking/fuse``, the rest in ``training/tuning``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.overlap import NOTHING, warn_of_mismatch
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import scorer
from rankhouse.ranking.fuse import FUSIONS, Fusion, TuningResult, interpolations, linear, tune
from rankhouse.training.tuning import cut_at, greedy_ensemble, mean_of, tune_depth

DEPTHS = (0, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1000)
"""Depths that are tried where none are named."""


@dataclass(frozen=True)
class Tuning:
    """What to settle on: the measure is made large; with ``refine`` steps of weights a tenth as large follow.

    Where no depths are named, the usual ones are tried.
    """

    qrels: Qrels
    measure: str = "AP"
    step: float = 0.05
    refine: bool = False
    depths: tuple[int, ...] = ()


class Combination(NamedTuple):
    """A method that is settled."""

    # makes one run of runs, given in the order of those it was settled on
    join: Callable[[Sequence[Run]], Run]
    facts: dict[str, object]  # what was settled, for machines
    sentence: str  # the same for people; "" where nothing was


Method = Callable[[Sequence[str], Sequence[Run], Tuning | None], Combination]
"""Settles (names, runs, tuning or None)."""


def fusion_method(text: str, weights: tuple[float, ...] | None = None) -> Method:
    """Return a method by its notation: ``linear("raw")``, ``rrf``, ``mean``, ``greedy``, ``depth(40)``.

    Raises:
        WrongUse: No such method, or weights where they have no meaning.
    """
    name = notation.parse(text).name
    table = {**dict.fromkeys(FUSIONS), **_OTHERS}
    notation.choose(name, table, "method of fusion")
    if name in FUSIONS:
        return _compared(_by_weights(notation.make(text, FUSIONS, "method of fusion"), weights))
    if weights is not None:
        raise WrongUse(f"--method {text}: takes no weights; {', '.join(FUSIONS)} do")
    return _compared(notation.make(text, _OTHERS, "method of fusion"))


def _compared(method: Method) -> Method:
    """Return a method that warns where the runs, or runs and judgements, hardly name anything alike."""

    def settle(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
        first, *others = ({q: run[q].doc_ids for q in run} for run in runs) if runs else [{}]
        for name, other in zip(names[1:], others, strict=False):
            warn_of_mismatch(other, name, first, names[0], documents=NOTHING)
        if tuning is not None:
            warn_of_mismatch(first, names[0], tuning.qrels, "the judgements", documents=NOTHING)
        return method(names, runs, tuning)

    return settle


def _by_weights(fusion: Fusion, weights: tuple[float, ...] | None) -> Method:
    def settle(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
        if tuning is None:
            chosen = dict(zip(names, weights, strict=False)) if weights else {}
            facts: dict[str, object] = {"weights": chosen, "tuned": None}
            return Combination(lambda given: fusion(given, weights), facts, "")
        value_of = scorer(tuning.qrels, tuning.measure)
        best = tune(runs, value_of, fusion, step=tuning.step, refine=tuning.refine)
        return _weighed(fusion, best, names, tuning)

    return settle


def _weighed(fusion: Fusion, result: TuningResult, names: Sequence[str], tuning: Tuning) -> Combination:
    shown = ", ".join(f"{name} {weight:g}" for name, weight in zip(names, result.weights, strict=True))
    again = ",".join(f"{weight:g}" for weight in result.weights)
    best = {"measure": tuning.measure, "value": result.score, "tried": len(result.tried)}
    return Combination(
        lambda given: fusion(given, result.weights),
        {"weights": dict(zip(names, result.weights, strict=True)), "tuned": best},
        f"best of {len(result.tried)} weightings: {shown}; {tuning.measure} {result.score:.4f}; for other "
        f"runs of these systems:  --weights {again}",
    )


def _sentences(step: float = 0.1) -> Method:
    """Interpolate a first stage with the scores of a document's best, second best ... sentence: birch."""
    interpolations(2, step)  # says what is wrong with a step

    def settle(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
        if tuning is None:
            raise WrongUse(
                "--method sentences: finds its weights by judgements; give them with --tune QRELS, or "
                'known already with --method linear("raw") --weights'
            )
        raw, grid = linear("raw"), interpolations(len(runs), step)
        return _weighed(raw, tune(runs, scorer(tuning.qrels, tuning.measure), raw, grid), names, tuning)

    return settle


def _mean() -> Method:
    """Return the mean of raw scores of any number of runs."""

    def settle(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
        del names, runs
        if tuning is not None:
            raise WrongUse("--method mean: there is nothing to tune; greedy chooses runs, linear weighs them")
        return Combination(mean_of, {}, "")

    return settle


def _best() -> Method:
    """Keep the run that is best on judgements: a pool, a model, a setting among several."""

    def settle(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
        if tuning is None:
            raise WrongUse("--method best: chooses a run by judgements; give them with --tune QRELS")
        value_of = scorer(tuning.qrels, tuning.measure)
        values = [value_of(run) for run in runs]
        place = max(range(len(runs)), key=values.__getitem__)  # of equally good ones the first
        shown = ", ".join(f"{name} {value:.4f}" for name, value in zip(names, values, strict=True))
        best = {"measure": tuning.measure, "value": values[place], "tried": len(runs)}
        return Combination(
            lambda given: given[place],
            {"chosen": names[place], "place": place + 1, "values": values, "tuned": best},
            f"{names[place]}, number {place + 1}, is best by {tuning.measure} ({shown})",
        )

    return settle


def _greedy() -> Method:
    """Return the mean of those runs that help, chosen one after the other."""

    def settle(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
        if tuning is None:
            raise WrongUse("--method greedy: chooses runs by judgements; give them with --tune QRELS")
        # By number: one file may be given twice.
        ensemble = greedy_ensemble(
            {f"{i:06}": run for i, run in enumerate(runs)}, tuning.qrels, tuning.measure
        )
        places = [int(name) for name in ensemble.names]
        chosen = [names[place] for place in places]
        alone = {names[int(name)]: value for name, value in ensemble.alone.items()}
        best = {"measure": tuning.measure, "value": ensemble.value}
        shown = ", ".join(f"{name} {value:.4f}" for name, value in alone.items())
        return Combination(
            lambda given: mean_of([given[place] for place in places]),
            {"chosen": chosen, "alone": alone, "tuned": best},
            f"the mean of {', '.join(chosen)}; {tuning.measure} {ensemble.value:.4f} (alone: {shown})",
        )

    return settle


def _depth(depth: int | None = None) -> Method:
    """Re-rank the first ``depth`` documents only; the rest stay below in first-stage order."""
    if depth is not None and depth < 0:
        raise WrongUse(f"depth({depth}): how many documents are re-ranked, 0 or more, like depth(40)")

    def settle(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
        if len(names) != 2:
            raise WrongUse(
                f"--method depth: takes two runs, the first stage and its re-ranking, in this order; "
                f"{len(names)} were given"
            )
        if (depth is None) == (tuning is None):
            raise WrongUse("--method depth: either name it, depth(40), or find it with --tune QRELS")
        if tuning is None:
            return Combination(lambda given: cut_at(given[1], given[0], depth or 0), {"depth": depth}, "")
        first, reranked = runs
        deepest = max((len(ranking.doc_ids) for ranking in first.values()), default=0)
        tried = tuning.depths or tuple(d for d in DEPTHS if d <= deepest)
        result = tune_depth(reranked, first, tuning.qrels, depths=tried, measure=tuning.measure)
        values = ", ".join(f"{d}: {value:.4f}" for d, value in result.tried.items())
        best = {"measure": tuning.measure, "value": result.value, "tried": len(result.tried)}
        by_depth = {str(d): value for d, value in result.tried.items()}
        return Combination(
            lambda given: cut_at(given[1], given[0], result.depth),
            {"depth": result.depth, "tuned": best, "values": by_depth},
            f"best depth {result.depth}; {tuning.measure} {result.value:.4f} (by depth: {values}); for other "
            f'queries:  rankhouse rerank --depth {result.depth}, or --method "depth({result.depth})"',
        )

    return settle


_OTHERS: dict[str, Callable[..., Method]] = {
    "mean": _mean,
    "best": _best,
    "greedy": _greedy,
    "depth": _depth,
    "sentences": _sentences,
}
