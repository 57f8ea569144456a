"""Removal: what a score loses when one sentence, or one word, of the passage is left out.

It needs nothing of a ranker but its scores, so it explains any. For transformers the unit is the sentence:
rationales of sentences are the more consistent ones (arXiv 2403.01981). All variants are scored in one call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankhouse.core.nouns import Pair, Ranker, fingerprint_of
from rankhouse.core.scores import Doubles, scale_of
from rankhouse.explanation.answer import Explanation, Part, ReadText, Word
from rankhouse.explanation.options import ExplainOptions
from rankhouse.explanation.units import Unit, joined, numbered, sentences_of, without, words_of
from rankhouse.explanation.variants import finite_scores, with_text

REST = "rest"
_MOST_WORDS = 2_000_000  # of all variants of one text together
_LEAST_BLOCKS = 8
_SHORT = 30  # words; such texts are looked at word by word
_SHOWN = 80  # characters of a sentence that name its part


@dataclass(frozen=True)
class Effects:
    """What leaving out each unit of a passage takes from its score.

    Attributes:
        score: The pair's score.
        unit: "sentence" or "word".
        units: n of them, in reading order; blocks of neighbours where there were too many.
        values: (n,) the score less the score without the unit.
        notes: What a reader has to know.
    """

    score: float
    unit: str
    units: tuple[Unit, ...]
    values: Doubles
    notes: tuple[str, ...] = ()

    def read_text(self, index: int) -> ReadText:
        """Return the passage, each unit with what it adds."""
        said = tuple(Word(unit.text, float(v)) for unit, v in zip(self.units, self.values, strict=True))
        return ReadText(index, said, self.unit, value=self.score)


def explain_removal(ranker: Ranker, pair: Pair, options: ExplainOptions) -> Explanation:
    """Explain a score by what it loses when a sentence or word of the passage is left out.

    Each part is one unit's effect; the part "rest" is what all effects leave of the score.

    Args:
        ranker: Anything that scores.
        pair: Query and passage.
        options: The unit, and the most pairs scored.

    Raises:
        BadModel: A score is not a finite number.
        MissingExtra: The package that finds sentences is not installed.
    """
    effects = removal_effects(ranker, pair, options, unit_for(pair.passage.text, options.unit))
    rest = effects.score - math.fsum(effects.values)
    note = "what the effects leave: the ranker's own start, and what units say only together"
    parts = (*_parts(effects), Part(REST, rest, note))
    return Explanation(
        pair.query,
        pair.passage.doc_id,
        effects.score,
        f"{effects.unit} removal",
        exact=False,
        unit=scale_of(ranker),
        parts=parts,
        cost=len(effects.units),
        texts=(effects.read_text(pair.passage.index),),
        query_words=tuple(pair.query.text.split()),
        notes=effects.notes,
        ranker=fingerprint_of(ranker),
    )


def unit_for(text: str, wanted: str = "") -> str:
    """Return what is left out of a text at a time: "word" for short texts and single sentences.

    Args:
        text: The text.
        wanted: "sentence" or "word" settles it.
    """
    if wanted:
        return wanted
    return "word" if len(text.split()) <= _SHORT or len(sentences_of(text)) < 2 else "sentence"


def removal_effects(ranker: Ranker, pair: Pair, options: ExplainOptions, unit: str) -> Effects:
    """Score a pair and all its variants without one unit, in one call.

    Args:
        ranker: Anything that scores.
        pair: Query and passage.
        options: The most pairs scored.
        unit: "sentence" or "word".

    Raises:
        BadModel: A score is not a finite number.
    """
    text = pair.passage.text
    units, notes = bounded(text, sentences_of(text) if unit == "sentence" else words_of(text), options.passes)
    variants = [with_text(pair, without(text, units, {at})) for at in range(len(units))]
    score, *others = finite_scores(ranker, [pair, *variants])
    if not units:
        notes = ("The text is empty: nothing can be left out of it.",)
    return Effects(float(score), unit, tuple(units), float(score) - np.array(others), notes)


def bounded(text: str, units: Sequence[Unit], passes: int) -> tuple[list[Unit], tuple[str, ...]]:
    """Join units of a text until scoring it without each of them takes bounded time.

    Args:
        text: The text.
        units: Its units.
        passes: Most pairs scored, the text itself included.

    Returns:
        The units or blocks of them, and a note where they are blocks.
    """
    words = max(len(text.split()), 1)
    most = max(1, min(passes - 1, max(_LEAST_BLOCKS, _MOST_WORDS // words)))
    blocks = joined(text, units, most)
    if len(blocks) == len(units):
        return blocks, ()
    note = (
        f"The text has {len(units):,} units; {blocks[0].size} neighbours at a time were left out together, "
        "so single ones were not looked at."
    )
    return blocks, (note,)


def _parts(effects: Effects) -> list[Part]:
    names = numbered(f"{effects.unit}: {_short(unit.text)}" for unit in effects.units)
    return [Part(name, float(value)) for name, value in zip(names, effects.values, strict=True)]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1].rstrip()}…"
