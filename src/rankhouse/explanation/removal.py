"""Methods that need nothing of a ranker but its scores, so that they explain any: removal and Shapley values.

Removal: what a score loses when one sentence, or one word, of the passage is left out. For transformers the
unit is the sentence: rationales of sentences are the more consistent ones (arXiv 2403.01981). All variants
are scored in one call. Of a passage that is longer than the ranker's limit only what is read is looked at,
and nothing moves up from behind the limit into the place of what is left out.

Shapley values of query words (Shapley, "A value for n-person games", 1953): with v(S) the score when only the
words S are asked, word i gets the sum over all S without i of |S|! (n - |S| - 1)! / n! (v(S and i) - v(S)).
All 2^n queries are scored, none is sampled, so the values sum to the score less that of the empty query.
Sampled ones (SHAP, LIME) contradict each other on rankings (arXiv 2405.01848).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import comb

import numpy as np

from rankhouse.core.nouns import Pair, Ranker
from rankhouse.core.scores import Doubles
from rankhouse.explanation import methods
from rankhouse.explanation.answer import Explanation, Part, ReadText, Word
from rankhouse.explanation.units import (
    NO_WORDS,
    UNREAD_LISTED,
    Unit,
    cut,
    joined,
    numbered,
    sentences_of,
    without,
    words_of,
)

REST = "rest"
_SHORT = 30  # words; such texts are looked at word by word
_SHOWN = 80  # characters of a sentence that name its part


@dataclass(frozen=True)
class Removal:
    """A passage with units left out, one at a time."""

    unit: str  # "sentence" or "word"
    units: tuple[Unit, ...]  # n of them, in reading order; blocks of neighbours where there were too many
    unread: tuple[Unit, ...]  # the units behind the ranker's limit
    variants: tuple[Pair, ...]  # n pairs, each without one unit, to be scored

    @classmethod
    def of(cls, ranker: Ranker, pair: Pair, options: methods.ExplainOptions) -> Removal:
        """Cut what a ranker reads of a passage into units."""
        text, end = pair.passage.text, methods.characters_read(ranker, pair)
        unit = options.unit or unit_for(ranker, text[:end])
        read, unread = cut(text, units_of(text, unit), end)
        units = joined(text, read, most_units(text[:end], options.passes))
        variants = (methods.with_text(pair, without(text, units, {at})) for at in range(len(units)))
        return cls(unit, tuple(units), tuple(unread), tuple(variants))

    def read_text(self, index: int, score: float, effects: Doubles) -> ReadText:
        """Return the passage, each unit with what it adds; of what is not read only the beginning."""
        words = [Word(unit.text, float(v)) for unit, v in zip(self.units, effects, strict=True)]
        words += [Word(unit.text, read=False) for unit in self.unread[:UNREAD_LISTED]]
        return ReadText(index, tuple(words), self.unit, value=score)

    def parts(self, effects: Doubles) -> list[Part]:
        """Return each unit's effect, (n,), as a part."""
        kinds = (self.unit + "s" * (unit.size > 1) for unit in self.units)
        names = numbered(f"{kind}: {short(unit.text)}" for kind, unit in zip(kinds, self.units, strict=True))
        return [Part(name, float(value)) for name, value in zip(names, effects, strict=True)]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader: an empty text, a limit, units that were not looked at one by one."""
        notes = [] if self.units else ["Nothing of the text is read, so nothing can be left out of it."]
        size, sizes = max((u.size for u in self.units), default=1), sum(u.size for u in self.units)
        if size > 1:
            notes.append(
                f"The {sizes:,} {self.unit}s of the text were left out {size} neighbours at a time, so "
                "single ones were not looked at."
            )
        return (*notes, *limit_notes(sizes, len(self.unread), self.unit))


def explain_removal(ranker: Ranker, pair: Pair, options: methods.ExplainOptions) -> Explanation:
    """Explain a score by what it loses when a sentence or word of the passage is left out.

    Each part is one unit's effect; the part "rest" is what all effects leave of the score. n units take
    n + 1 scores, the passage's own included, in one call.

    Raises BadModel: a score is not a finite number; MissingExtra: the package that finds sentences is not
    installed.
    """
    removal = Removal.of(ranker, pair, options)
    scores = methods.finite_scores(ranker, [pair, *removal.variants])
    score, effects = float(scores[0]), scores[0] - scores[1:]
    note = "not due to any one alone: the score without them all, and what several do together"
    rest = Part(REST, score - math.fsum(effects), note)
    return methods.explanation_for(ranker, pair, score)(
        f"{removal.unit} removal",
        exact=False,
        parts=(*removal.parts(effects), rest),
        cost=len(removal.variants),
        texts=(removal.read_text(pair.passage.index, score, effects),),
        query_words=tuple(pair.query.text.split()),
        notes=removal.notes,
    )


def unit_for(ranker: Ranker, text: str) -> str:
    """Return what is best left out of a text at a time.

    "word" for rankers that know words apart, for single sentences, and for short texts before a black box;
    else "sentence".
    """
    is_short = not methods.family_of(ranker) and len(text.split()) <= _SHORT
    return "word" if methods.reads_words(ranker) or is_short or len(sentences_of(text)) < 2 else "sentence"


def limit_notes(read: int, unread: int, unit: str) -> list[str]:
    """Say how many sentences or words of a text its ranker does not read; nothing, where it reads all."""
    note = (
        f"The text is longer than the ranker's limit: {unread:,} of its {read + unread:,} {unit}s, or parts "
        "of them, were not read."
    )
    return [note] if unread else []


def units_of(text: str, unit: str) -> list[Unit]:
    """Cut a text into its units: "sentence" or "word"."""
    return sentences_of(text) if unit == "sentence" else words_of(text)


def most_units(text: str, passes: int) -> int:
    """Return into how many units a text may be cut, so that scoring it without each takes bounded time."""
    words = max(len(text.split()), 1)
    return max(1, min(passes - 1, max(8, 2_000_000 // words)))  # words of all variants together


def short(text: str) -> str:
    """Return a text on one line, its end cut off where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1].rstrip()}…"


MOST_PLAYERS = 10
_SHAPLEY = (
    "Shapley values: each query word's share over all ways to ask without it; they sum to the score, but the "
    "model itself does not add them up."
)


def explain_shapley(ranker: Ranker, pair: Pair, options: methods.ExplainOptions) -> Explanation:
    """Explain a score by the Shapley value of each query word, and of the passage by removal.

    The parts sum to the score: the empty query's own score is the part "no words". Of more than 10 words,
    or more than the passes allow, neighbours are joined.

    Raises BadModel: a score is not a finite number; MissingExtra: the package that finds sentences is not
    installed.
    """
    query = pair.query.text
    words = words_of(query)
    players = joined(query, words, min(MOST_PLAYERS, options.passes.bit_length() - 1))
    notes = [_SHAPLEY]
    if len(players) < len(words):
        notes.append(f"The query has {len(words)} words; neighbours were joined to {len(players)} blocks.")
    read = methods.with_text(pair, pair.passage.text[: methods.characters_read(ranker, pair)])
    fewer = [read._replace(query=pair.query._replace(text=text)) for text in subsets(query, players)[:-1]]
    asked = [*fewer, pair]
    removal = Removal.of(ranker, pair, options)
    scores = methods.finite_scores(ranker, [*asked, *removal.variants])
    worth = scores[: len(asked)]
    effects = worth[-1] - scores[len(asked) :]
    return methods.explanation_for(ranker, pair, float(worth[-1]))(
        "Shapley values of query words",
        exact=False,
        parts=(*_parts(players, worth), Part(NO_WORDS, float(worth[0]), "the score of an empty query")),
        cost=len(scores) - 1,
        texts=(removal.read_text(pair.passage.index, float(worth[-1]), effects),),
        query_words=tuple(word.text for word in words),
        notes=(*notes, *removal.notes),
    )


def subsets(query: str, players: list[Unit]) -> list[str]:
    """Return the queries of all 2^n subsets of n players; bit i of an index says that player i is in."""
    every = range(len(players))
    out = [{i for i in every if not subset >> i & 1} for subset in range(1 << len(players))]
    return [without(query, players, places) for places in out]


def shapley_values(worth: Doubles) -> Doubles:
    """Return the value of each of n players: (n,), summing to the worth of all less that of none.

    The worth is (2^n,) of every subset; bit i of its place says that player i is in.
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
