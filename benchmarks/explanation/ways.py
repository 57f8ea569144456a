"""The ways a ranker is explained: values of units that can be taken away."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Collection as Places
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankhouse.core.nouns import Pair, Ranker
from rankhouse.core.scores import Doubles
from rankhouse.explanation.answer import Word
from rankhouse.explanation.methods import (
    ANY_FAMILY,
    ExplainOptions,
    characters_read,
    explain_pair,
    family_of,
    methods_for,
    own_method,
)
from rankhouse.explanation.removal import explain_removal
from rankhouse.explanation.units import NO_WORDS, Unit, sentences_of, without, words_of
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.word_models import WordModel

TRANSFORMERS = ("crossencoder", "monot5", "biencoder")


class Way(NamedTuple):
    """One way to explain.

    Attributes:
        method: Of ExplainOptions; "" is the family's own.
        unit: "word" or "sentence" of the passage, or "query word".
    """

    method: str
    unit: str

    @property
    def options(self) -> ExplainOptions:
        """Options of the method."""
        return ExplainOptions(self.method, "" if self.unit == "query word" else self.unit)


def ways_of(ranker: Ranker) -> list[Way]:
    """List the ways to explain a ranker that say how much each unit of a text adds, each once."""
    has_own = own_method(ranker) is not explain_removal
    own = [""] if has_own else []
    if family_of(ranker) in TRANSFORMERS:
        inside = [name for name in methods_for(ranker) if name not in ANY_FAMILY]  # these tell of words only
        methods = {"sentence": (*own, "removal"), "word": (*own, "removal", *inside)}
        return [Way(name, unit) for unit, names in methods.items() for name in names]
    return [*(Way(name, "word") for name in (*own, "removal")), Way("shapley", "query word")]


@dataclass(frozen=True)
class Game:
    """A pair whose passage, or query, is taken away unit by unit.

    Attributes:
        pair: All of it.
        units: n units.
        of_query: Whether they are the query's.
    """

    pair: Pair
    units: tuple[Unit, ...]
    of_query: bool

    def without(self, places: Places[int]) -> Pair:
        """Return the pair without some units."""
        query, passage = self.pair
        if self.of_query:
            return Pair(query._replace(text=without(query.text, self.units, places)), passage)
        return Pair(query, passage._replace(text=without(passage.text, self.units, places)))


def as_read(ranker: Ranker, pair: Pair) -> Pair:
    """Return the pair as far as a ranker reads it, so that nothing moves up where something is taken away.

    Texts of rankers that know words apart become those words, a space between two.
    """
    text = pair.passage.text[: characters_read(ranker, pair)]
    if isinstance(ranker, NeuralRanker) and isinstance(ranker.model, WordModel):
        asked, said = ranker.model.reader.words(pair)
        return Pair(pair.query._replace(text=" ".join(asked)), pair.passage._replace(text=" ".join(said)))
    return Pair(pair.query, pair.passage._replace(text=text))


def game_of(pair: Pair, unit: str) -> Game:
    """Cut a pair into units of a kind."""
    of_query = unit == "query word"
    text = pair.query.text if of_query else pair.passage.text
    return Game(pair, tuple(sentences_of(text) if unit == "sentence" else words_of(text)), of_query)


def values_by(ranker: Ranker, game: Game, way: Way) -> tuple[Doubles, int] | None:
    """Explain a pair; None if the explanation joins units, or says nothing of some of them.

    Words that are finer than the game's units are added up.

    Returns:
        What each unit adds, (n,), and the pairs scored for it.
    """
    answer = explain_pair(ranker, game.pair, way.options)
    if game.of_query:
        values: list[float | None] = [part.value for part in answer.parts if part.name != NO_WORDS]
        cost = 2 ** len(values) - 1
    else:
        words = [word for word in answer.texts[0].words if word.read]
        values, cost = [word.value for word in words], answer.cost
        if len(words) > len(game.units):
            values = _added_up(words, game)
    told = np.array([np.nan if value is None else value for value in values])
    return (told, cost) if len(told) == len(game.units) and np.isfinite(told).all() else None


def _added_up(words: Sequence[Word], game: Game) -> list[float | None]:
    """Add words' values up by the units in which they begin; the words stand in the text, in order."""
    sums, end, text = [0.0] * len(game.units), 0, game.pair.passage.text
    ends = [unit.end for unit in game.units]
    for word in words:
        start = text.index(word.text, end)
        end = start + len(word.text)
        sums[bisect_right(ends, start)] += word.value or 0.0
    return list(sums)


def sampled(ranker: Ranker, game: Game, passes: int, seed: int, penalty: float = 1.0) -> Doubles:
    """Attribute by sampling: a plain linear fit to the scores of random choices of units, (n,).

    Each unit stays with a chance of one half; ridge regression with an intercept (LIME without its kernel).
    It is deterministic only by its seed.

    Args:
        ranker: What scores.
        game: The units.
        passes: Pairs scored, the whole text first.
        seed: Of the choices.
        penalty: Of the ridge; 0 fits by least squares, which recovers whatever adds up.
    """
    draws, n = random.Random(seed), len(game.units)
    kept = [[1] * n, *([draws.randint(0, 1) for _ in range(n)] for _ in range(passes - 1))]
    variants = [game.without({i for i, stays in enumerate(row) if not stays}) for row in kept]
    scores = np.asarray(ranker.score(variants), np.float64)
    rows = np.array(kept, np.float64)
    rows, centred = rows - rows.mean(0), scores - scores.mean()
    fitted: Doubles
    if penalty:
        fitted = np.linalg.solve(rows.T @ rows + penalty * np.eye(n), rows.T @ centred)
    else:
        fitted = np.linalg.lstsq(rows, centred)[0]
    return fitted


def by_value(values: Sequence[float] | Doubles) -> list[int]:
    """Return places from the most to the least important; equal values in reading order."""
    return sorted(range(len(values)), key=lambda i: -values[i])
