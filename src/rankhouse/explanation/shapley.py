"""Shapley values of query words: what each adds to the score, averaged over all ways to ask without it.

Shapley, "A value for n-person games", 1953: with v(S) the score when only the words S are asked, word i gets
the sum over all S without i of |S|! (n - |S| - 1)! / n! (v(S and i) - v(S)). All 2^n queries are scored, none
is sampled, so the values sum to the score less that of the empty query. Sampled ones (SHAP, LIME) contradict
each other on rankings (arXiv 2405.01848).
"""

from __future__ import annotations

from math import comb

import numpy as np

from rankhouse.core.nouns import Pair, Ranker, fingerprint_of
from rankhouse.core.scores import Doubles, base_of, scale_of
from rankhouse.explanation.answer import Explanation, Part
from rankhouse.explanation.options import ExplainOptions
from rankhouse.explanation.reading import characters_read
from rankhouse.explanation.removal import Removal
from rankhouse.explanation.units import NO_WORDS, Unit, joined, numbered, without, words_of
from rankhouse.explanation.variants import finite_scores, with_text

MOST_PLAYERS = 10


def explain_shapley(ranker: Ranker, pair: Pair, options: ExplainOptions) -> Explanation:
    """Explain a score by the Shapley value of each query word, and of the passage by removal.

    The parts sum to the score: the empty query's own score is the part "no words". Of more than 10 words,
    or more than the passes allow, neighbours are joined.

    Raises:
        BadModel: A score is not a finite number.
        MissingExtra: The package that finds sentences is not installed.
    """
    query = pair.query.text
    words = words_of(query)
    players = joined(query, words, min(MOST_PLAYERS, options.passes.bit_length() - 1))
    read = with_text(pair, pair.passage.text[: characters_read(ranker, pair)])
    fewer = [read._replace(query=pair.query._replace(text=text)) for text in subsets(query, players)[:-1]]
    asked = [*fewer, pair]
    removal = Removal.of(ranker, pair, options)
    scores = finite_scores(ranker, [*asked, *removal.variants])
    worth = scores[: len(asked)]
    effects = worth[-1] - scores[len(asked) :]
    return Explanation(
        pair.query,
        pair.passage.doc_id,
        float(worth[-1]),
        "Shapley values of query words",
        exact=False,
        unit=base_of(scale_of(ranker)),
        parts=(*_parts(players, worth), Part(NO_WORDS, float(worth[0]), "the score of an empty query")),
        cost=len(scores) - 1,
        texts=(removal.read_text(pair.passage.index, float(worth[-1]), effects),),
        query_words=tuple(word.text for word in words),
        notes=(*_notes(len(words), len(players)), *removal.notes),
        ranker=fingerprint_of(ranker),
    )


def subsets(query: str, players: list[Unit]) -> list[str]:
    """Return the queries of all 2^n subsets of n players; bit i of an index says that player i is in."""
    every = range(len(players))
    out = [{i for i in every if not subset >> i & 1} for subset in range(1 << len(players))]
    return [without(query, players, places) for places in out]


def shapley_values(worth: Doubles) -> Doubles:
    """Return the value of each of n players: (n,), summing to the worth of all less that of none.

    Args:
        worth: (2^n,) of every subset; bit i of its place says that player i is in.
    """
    n = len(worth).bit_length() - 1
    subset = np.arange(len(worth))
    sizes = (subset[:, None] >> np.arange(n) & 1).sum(1)
    weights = np.array([1 / (n * comb(n - 1, size)) for size in range(n)])
    without_each = [subset[subset >> i & 1 == 0] for i in range(n)]
    return np.array([weights[sizes[s]] @ (worth[s | 1 << i] - worth[s]) for i, s in enumerate(without_each)])


def _parts(players: list[Unit], worth: Doubles) -> list[Part]:
    """Make a part of each player, with what it adds alone and to all others."""
    names = numbered((player.text for player in players), (NO_WORDS,))
    last = len(worth) - 1
    parts = []
    for i, (name, value) in enumerate(zip(names, shapley_values(worth), strict=True)):
        alone, to_others = float(worth[1 << i] - worth[0]), float(worth[last] - worth[last ^ 1 << i])
        note = f"alone {alone:+.4g}, to the others {to_others:+.4g}"
        parts.append(Part(name, float(value), note, {"alone": alone, "to the others": to_others}))
    return parts


def _notes(words: int, players: int) -> tuple[str, ...]:
    told = (
        "Shapley values: each query word's share over all ways to ask without it; they sum to the score, "
        "but the model itself does not add them up."
    )
    blocks = f"The query has {words} words; neighbours were joined to {players} blocks."
    return (told, blocks) if players < words else (told,)
