"""Deletion and insertion: does the score fall soonest where what matters most is taken away first?

Units are removed from the most to the least important, and put back into an empty text in that order
(Petsiuk et al., BMVC 2018). The area under either curve is compared with random orders of the same units:
the better explanation has the smaller area of deletion and the larger area of insertion. Putting back in one
order is removing in the reverse order, so random orders go in with their reverses, and serve both. Gains are
in standard deviations of the ranker's scores over the pairs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from rankhouse.core.nouns import Pair, Ranker
from rankhouse.core.scores import Doubles

from .ways import Game, Way, as_read, by_value, game_of, sampled, values_by, ways_of

MOST_POINTS = 10
SHUFFLES = 5
LEAST_UNITS = {"sentence": 3, "word": 5, "query word": 2}


class Curves:
    """Areas under deletion curves of one game; each choice of units is scored once.

    Args:
        ranker: What scores.
        game: The units.
    """

    def __init__(self, ranker: Ranker, game: Game) -> None:
        self._ranker, self._game = ranker, game
        n = len(game.units)
        self._points = sorted({round(i * n / MOST_POINTS) for i in range(MOST_POINTS + 1)})

    def areas(self, orders: Sequence[Sequence[int]]) -> Doubles:
        """Return the area under each order's curve, as a mean score."""
        gone = [[frozenset(order[:k]) for k in self._points] for order in orders]
        every = sorted({places for row in gone for places in row}, key=sorted)
        scores = self._ranker.score([self._game.without(places) for places in every])
        by_choice = dict(zip(every, map(float, scores), strict=True))
        shares = np.array(self._points) / self._points[-1]
        return np.array([np.trapezoid([by_choice[p] for p in row], shares) for row in gone])


def gains(ranker: Ranker, pairs: Sequence[Pair], unit: str, progress: str = "") -> Mapping[str, object]:
    """Measure every way that tells the worth of a kind of unit, and sampling at the same budget.

    Args:
        ranker: What is explained.
        pairs: What it scores.
        unit: The kind of unit.
        progress: What is measured, for a line now and then.

    Returns:
        "pairs", "units" (mean), and by method "deletion" and "insertion" (a gain for each pair) and "passes".
    """
    ways = [way for way in ways_of(ranker) if way.unit == unit]
    rows: dict[str, dict[str, list[float]]] = {}
    sizes: list[int] = []
    for seed, pair in enumerate(pairs):
        game = game_of(as_read(ranker, pair), unit)
        if len(game.units) < LEAST_UNITS[unit]:
            continue
        orders = _orders(ranker, game, ways, seed)
        if orders is None:
            continue
        sizes.append(len(game.units))
        _measure(Curves(ranker, game), orders, seed, rows)
        if progress and len(sizes) % 25 == 0:
            print(f"{progress} {unit}: {len(sizes)} pairs", flush=True)
    spread = float(np.std(ranker.score([as_read(ranker, pair) for pair in pairs])))
    return {"pairs": len(sizes), "units": float(np.mean(sizes or [0])), "spread": spread, "methods": rows}


def _orders(
    ranker: Ranker, game: Game, ways: Sequence[Way], seed: int
) -> dict[str, tuple[list[int], int]] | None:
    """Return by method the order of units and the passes it took; None where a method has other units."""
    orders: dict[str, tuple[list[int], int]] = {}
    for way in ways:
        found = values_by(ranker, game, way)
        if found is None:
            return None
        values, cost = found
        orders[way.method or "own"] = by_value(values), cost
        if cost and f"sampling, {_budget(way)}" not in orders:
            fitted = sampled(ranker, game, cost + 1, seed)
            orders[f"sampling, {_budget(way)}"] = by_value(fitted), cost
    return orders


def _budget(way: Way) -> str:
    """Name a budget by the method that has it."""
    return f"as {way.method}" if way.method else "as own"


def _measure(
    curves: Curves,
    orders: Mapping[str, tuple[list[int], int]],
    seed: int,
    rows: dict[str, dict[str, list[float]]],
) -> None:
    """Add a pair's gains over random orders."""
    draws, n = random.Random(seed), len(next(iter(orders.values()))[0])
    shuffled = [draws.sample(range(n), n) for _ in range(SHUFFLES)]
    both = [*shuffled, *(order[::-1] for order in shuffled)]
    taken = [order for order, _ in orders.values()]
    areas = curves.areas([*both, *taken, *(order[::-1] for order in taken)])
    chance, found = areas[: len(both)].mean(), areas[len(both) :].reshape(2, -1)
    for at, (name, (_, cost)) in enumerate(orders.items()):
        row = rows.setdefault(name, {"deletion": [], "insertion": [], "passes": []})
        row["deletion"].append(float(chance - found[0, at]))
        row["insertion"].append(float(found[1, at] - chance))
        row["passes"].append(cost)


def interval(
    values: Sequence[float] | Doubles, seed: int = 0, draws: int = 2000
) -> tuple[float, float, float]:
    """Return mean and 95 % bootstrap interval (percentiles) over pairs."""
    numbers = np.array(values)
    picks = np.random.default_rng(seed).integers(0, len(numbers), (draws, len(numbers)))
    low, high = np.percentile(numbers[picks].mean(1), [2.5, 97.5])
    return float(numbers.mean()), float(low), float(high)
