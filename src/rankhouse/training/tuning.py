"""Settings tuned on validation after a training: depth of reranking, runs to join, and their weights.

Source of depths and ensembles: Hofstätter, Zlabinger, Hanbury, "TU Wien @ TREC Deep Learning '19", section 4
(the depth is tuned on validation; run p3 is an ensemble). Unlike their code, nothing below the depth is lost.

A method of fusion takes runs and, for tuning, judgements; it returns what joins these runs or others that
stand for the same systems on other queries. Weighted sums are in ``ranking/fuse``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Ranking
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.sameness import NOTHING, warn_of_mismatch
from rankhouse.core.scores import with_room_below
from rankhouse.evaluation.measures import scorer
from rankhouse.ranking.fuse import FUSIONS, Fusion, TuningResult, interpolations, linear, tune

DEPTHS = (0, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1000)
"""Depths that are tried where none are named."""


def cut_at(reranked: Run, first_stage: Run, depth: int) -> Run:
    """Return the run that re-ranking only the first ``depth`` documents would have given.

    Scores of passages do not depend on each other, so one deep re-ranking holds all shallower ones.

    Args:
        reranked: The first stage's documents, rescored; those it lacks are not re-ranked.
        depth: How many documents a query to take from the top of the first stage. The rest follow below
            all others in first-stage order.

    Raises:
        WrongUse: A negative depth.
    """
    if depth < 0:
        raise WrongUse(f"depth={depth}: re-rank 0 documents a query or more")
    return Run.from_rankings({q: _cut(reranked, q, first_stage[q], depth) for q in first_stage})


def _cut(reranked: Run, query_id: str, ranking: Ranking, depth: int) -> Ranking:
    if query_id not in reranked:
        return ranking
    top = set(ranking.doc_ids[:depth])
    rescored = reranked[query_id]
    rows = [row for row, doc_id in enumerate(rescored.doc_ids) if doc_id in top]
    scored = [rescored.doc_ids[row] for row in rows]
    if not scored:
        return ranking
    pooled = set(scored)
    below = [doc_id for doc_id in ranking.doc_ids if doc_id not in pooled]
    return Ranking((*scored, *below), with_room_below(rescored.scores[rows], len(below)))


class Depth(NamedTuple):
    """The best depth and what every depth was worth."""

    depth: int
    value: float
    tried: Mapping[int, float]


def tune_depth(
    reranked: Run, first_stage: Run, qrels: Qrels, depths: Iterable[int], measure: str = "RR@10"
) -> Depth:
    """Find the re-ranking depth that is best on validation; of equal ones the smallest, which is cheapest.

    Args:
        reranked: The first stage re-ranked at the largest depth or deeper.
        depths: Depths to try; 0 is the first stage itself.

    Raises:
        WrongUse: No depths.
        BadData: No query is in both runs and judgements.
    """
    wanted = sorted(set(depths))
    if not wanted:
        raise WrongUse("no depths to try were given; give some, for example range(5, 101, 5)")
    value_of = scorer(qrels, measure)
    tried = {depth: value_of(cut_at(reranked, first_stage, depth)) for depth in wanted}
    best = max(wanted, key=lambda depth: (tried[depth], -depth))
    return Depth(best, tried[best], tried)


@dataclass(frozen=True)
class Ensemble:
    """Ensemble of runs, and the gain of joining them.

    Attributes:
        names: The runs kept, in the order they were taken.
    """

    names: tuple[str, ...]
    value: float
    alone: Mapping[str, float]


def greedy_ensemble(runs: Mapping[str, Run], qrels: Qrels, measure: str = "RR@10") -> Ensemble:
    """Choose runs greedily: best first, keep each next one only if the mean of raw scores improves.

    Apply the choice elsewhere with :func:`mean_of`. Runs are re-rankings of one first stage.

    Args:
        runs: Name -> run on validation queries.

    Raises:
        WrongUse: No runs.
    """
    if not runs:
        raise WrongUse("no runs were given; an ensemble needs one or more")
    value_of = scorer(qrels, measure)
    values = {name: value_of(run) for name, run in runs.items()}
    alone = dict(sorted(values.items(), key=lambda entry: (-entry[1], entry[0])))
    first = next(iter(alone))
    members, best = [first], alone[first]
    for name in list(alone)[1:]:
        value = value_of(mean_of([runs[each] for each in (*members, name)]))
        if value > best:
            members, best = [*members, name], value
    return Ensemble(tuple(members), best, alone)


def interpolated(
    reranked: Run, first_stage: Run, qrels: Qrels, measure: str = "AP", least: int = 10
) -> Run | None:
    """Join a re-ranking with its first stage, every query with the weight that is best for the other half.

    So what the joined run is worth is not flattered by the tuning.

    Returns:
        The joined run of the judged queries; None where fewer than ``least`` are judged.
    """
    judged = [query_id for query_id in first_stage if query_id in qrels and query_id in reranked]
    if len(judged) < least:
        return None
    joined: dict[str, Ranking] = {}
    fusion = linear()
    for part in range(2):
        own, other = judged[part::2], judged[1 - part :: 2]
        value_of = scorer({query_id: qrels[query_id] for query_id in other}, measure)
        weights = tune([r.restrict(other) for r in (reranked, first_stage)], value_of, fusion).weights
        run = fusion([r.restrict(own) for r in (reranked, first_stage)], weights)
        joined |= {query_id: run[query_id] for query_id in run}
    return Run.from_rankings(joined)


def mean_of(runs: Iterable[Run]) -> Run:
    """Average raw scores. A document that a run lacks has, in that run, its lowest score of the query.

    Raises:
        WrongUse: No runs.
    """
    given = list(runs)
    if not given:
        raise WrongUse("no runs were given; a mean needs one or more")
    if len(given) == 1:
        return given[0]
    queries = dict.fromkeys(query_id for run in given for query_id in run)
    return Run.from_rankings({query_id: _mean(given, query_id) for query_id in queries})


def _mean(runs: list[Run], query_id: str) -> dict[str, float]:
    rankings = [run[query_id] for run in runs if query_id in run and len(run[query_id].doc_ids)]
    scored = [dict(zip(r.doc_ids, r.scores.tolist(), strict=True)) for r in rankings]
    lowest = [float(r.scores[-1]) for r in rankings]
    doc_ids = dict.fromkeys(doc_id for ranking in rankings for doc_id in ranking.doc_ids)
    return {
        doc_id: sum(own.get(doc_id, low) for own, low in zip(scored, lowest, strict=True)) / len(rankings)
        for doc_id in doc_ids
    }


@dataclass(frozen=True)
class Tuning:
    """Settings of a tuning, which maximises the measure; ``refine`` adds steps of weights a tenth as large.

    Where no depths are named, the usual ones are tried.
    """

    qrels: Qrels
    measure: str = "AP"
    step: float = 0.05
    refine: bool = False
    depths: tuple[int, ...] = ()


class Combination(NamedTuple):
    """A method that is settled.

    Attributes:
        join: Makes one run of runs, given in the order of those it was settled on.
        facts: The settings chosen, for machines.
        sentence: The same for people; "" where nothing was.
    """

    join: Callable[[Sequence[Run]], Run]
    facts: dict[str, object]
    sentence: str = ""


Method = Callable[[Sequence[str], Sequence[Run], Tuning | None], Combination]
"""Settles (names, runs, tuning or None)."""


def fusion_method(text: str, weights: tuple[float, ...] | None = None) -> Method:
    """Return a method by its notation: ``linear("raw")``, ``rrf``, ``mean``, ``greedy``, ``depth(40)``.

    It warns where the runs, or runs and judgements, hardly name anything alike.

    Args:
        weights: One a run, or None.

    Raises:
        WrongUse: No such method, or weights where they have no meaning.
    """
    name = notation.parse(text).name
    notation.choose(name, {**dict.fromkeys(FUSIONS), **_OTHERS}, "method of fusion")
    if name in FUSIONS:
        method: Method = partial(_weighted, notation.make(text, FUSIONS, "method of fusion"), weights)
    elif weights is not None:
        raise WrongUse(f"--method {text}: takes no weights; {', '.join(FUSIONS)} do")
    else:
        method = notation.make(text, _OTHERS, "method of fusion")

    def settle(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
        first, *others = ({q: run[q].doc_ids for q in run} for run in runs) if runs else [{}]
        for other_name, other in zip(names[1:], others, strict=False):
            warn_of_mismatch(other, other_name, first, names[0], documents=NOTHING)
        if tuning is not None:
            warn_of_mismatch(first, names[0], tuning.qrels, "the judgements", documents=NOTHING)
        return method(names, runs, tuning)

    return settle


def _weighted(
    fusion: Fusion,
    weights: tuple[float, ...] | None,
    names: Sequence[str],
    runs: Sequence[Run],
    tuning: Tuning | None,
) -> Combination:
    """Join by a weighted sum, with the weights given or those that are best on judgements."""
    if tuning is None:
        chosen = dict(zip(names, weights, strict=False)) if weights else {}
        return Combination(lambda given: fusion(given, weights), {"weights": chosen, "tuned": None})
    value_of = scorer(tuning.qrels, tuning.measure)
    best = tune(runs, value_of, fusion, step=tuning.step, refine=tuning.refine)
    return _weighed(fusion, best, names, tuning)


def _weighed(fusion: Fusion, result: TuningResult, names: Sequence[str], tuning: Tuning) -> Combination:
    shown = ", ".join(f"{name} {weight:g}" for name, weight in zip(names, result.weights, strict=True))
    again = ",".join(f"{weight:g}" for weight in result.weights)
    return Combination(
        lambda given: fusion(given, result.weights),
        {
            "weights": dict(zip(names, result.weights, strict=True)),
            "tuned": _tuned(tuning, result.score, len(result.tried)),
        },
        f"best of {len(result.tried)} weightings: {shown}; {tuning.measure} {result.score:.4f}; for other "
        f"runs of these systems:  --weights {again}",
    )


def _tuned(tuning: Tuning, value: float, tried: int) -> dict[str, object]:
    return {"measure": tuning.measure, "value": value, "tried": tried}


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


def _by_mean(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
    """Join by the mean of raw scores of any number of runs."""
    del names, runs
    if tuning is not None:
        raise WrongUse("--method mean: there is nothing to tune; greedy chooses runs, linear weighs them")
    return Combination(mean_of, {})


def _by_best(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
    """Keep the run that is best on judgements: a pool, a model, a setting among several."""
    if tuning is None:
        raise WrongUse("--method best: chooses a run by judgements; give them with --tune QRELS")
    values = list(map(scorer(tuning.qrels, tuning.measure), runs))
    place = max(range(len(runs)), key=values.__getitem__)  # of equally good ones the first
    shown = ", ".join(f"{name} {value:.4f}" for name, value in zip(names, values, strict=True))
    tuned = _tuned(tuning, values[place], len(runs))
    return Combination(
        lambda given: given[place],
        {"chosen": names[place], "place": place + 1, "values": values, "tuned": tuned},
        f"{names[place]}, number {place + 1}, is best by {tuning.measure} ({shown})",
    )


def _by_greedy(names: Sequence[str], runs: Sequence[Run], tuning: Tuning | None) -> Combination:
    """Join by the mean of those runs that help, chosen one after the other."""
    if tuning is None:
        raise WrongUse("--method greedy: chooses runs by judgements; give them with --tune QRELS")
    numbered = {f"{place:06}": run for place, run in enumerate(runs)}  # one file may be given twice
    ensemble = greedy_ensemble(numbered, tuning.qrels, tuning.measure)
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
            return Combination(lambda given: cut_at(given[1], given[0], depth or 0), {"depth": depth})
        first, reranked = runs
        deepest = max((len(ranking.doc_ids) for ranking in first.values()), default=0)
        tried = tuning.depths or tuple(d for d in DEPTHS if d <= deepest)
        result = tune_depth(reranked, first, tuning.qrels, depths=tried, measure=tuning.measure)
        values = ", ".join(f"{d}: {value:.4f}" for d, value in result.tried.items())
        facts = {"depth": result.depth, "tuned": _tuned(tuning, result.value, len(result.tried))}
        return Combination(
            lambda given: cut_at(given[1], given[0], result.depth),
            facts | {"values": {str(d): value for d, value in result.tried.items()}},
            f"best depth {result.depth}; {tuning.measure} {result.value:.4f} (by depth: {values}); for other "
            f'queries:  rankhouse rerank --depth {result.depth}, or --method "depth({result.depth})"',
        )

    return settle


_OTHERS: dict[str, Callable[..., Method]] = {
    "mean": lambda: _by_mean,
    "best": lambda: _by_best,
    "greedy": lambda: _by_greedy,
    "depth": _depth,
    "sentences": _sentences,
}
