"""Shared parts of explanations of word-level rankers: words as read, their names, and words not read.

Shapes: q query words, p passage words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.core.scores import Doubles
from rankhouse.explanation.answer import Explanation, Grid, Part, ReadText, Word
from rankhouse.explanation.methods import explanation_for
from rankhouse.explanation.units import NO_WORDS, UNREAD_LISTED, numbered
from rankhouse.models.drmm import DRMM
from rankhouse.models.knrm import KNRM, ConvKNRM
from rankhouse.models.pacrr import PACRR
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.tk import TK
from rankhouse.models.word_models import Evidence, WordModel
from rankhouse.text.vocabulary import UNKNOWN

_NAMED = 5  # words that one note names

M = TypeVar("M", KNRM, ConvKNRM, TK, DRMM, PACRR)


@dataclass(frozen=True)
class ScoredPair(Generic[M]):
    """A pair that a word-level ranker has scored; the first match of the evidence shows which words match."""

    ranker: NeuralRanker
    model: M
    pair: Pair
    score: float
    evidence: Evidence


def scored(
    ranker: Ranker, pair: Pair, kind: type[M], look: Callable[[M, Pair], Evidence] | None = None
) -> ScoredPair[M]:
    """Score a pair, and look what the model saw; WrongUse for a ranker whose model is of another kind."""
    model = ranker.model if isinstance(ranker, NeuralRanker) else None
    if not isinstance(ranker, NeuralRanker) or not isinstance(model, kind):
        raise WrongUse(
            f"{ranker!r} is no {kind.__name__}, whose parts this method reads off; "
            'choose method="removal", which asks any ranker'
        )
    score = float(ranker.score([pair])[0])
    with ranker.compute.active():
        evidence = model.evidence(pair) if look is None else look(model, pair)
    return ScoredPair(ranker, model, pair, score, evidence=evidence)


def explanation_of(
    of: ScoredPair[Any],
    method: str,
    parts: tuple[Part, ...],
    added: Sequence[float | None],
    grids: tuple[Grid, ...] = (),
    notes: Sequence[str] = (),
    cost: int = 0,
) -> Explanation:
    """Put an exact explanation together.

    Args:
        added: What each of the p passage words adds; None where nothing can be said of it.
    """
    seen, pair = of.evidence, of.pair
    cosines = next(iter(seen.matches.values()))
    words = words_read(seen.passage_words, added, cosines, seen.query_words)
    unread = of.model.reader.split(pair.passage.text)[len(words) :][:UNREAD_LISTED]
    words += [Word(word, read=False) for word in unread]
    grid = Grid("cosines", tuple(numbered(seen.query_words)), seen.passage_words, cosines)
    return explanation_for(of.ranker, pair, of.score)(
        method,
        exact=True,
        parts=parts,
        cost=cost,
        texts=(ReadText(pair.passage.index, tuple(words)),),
        query_words=seen.query_words,
        grids=(grid, *grids),
        notes=(*notes, *reading_notes(of.model, pair)),
    )


def no_words(value: float) -> Part:
    """Return the part that stands beside the words' own."""
    return Part(NO_WORDS, value, "what the query scores on a passage without words")


def best_matches(evidence: Evidence) -> list[str]:
    """Return a line for each query word: the passage word that matches it best."""
    cosines = next(iter(evidence.matches.values()))
    if not cosines.shape[1]:
        return [""] * len(cosines)
    best = cosines.argmax(1)
    words = (evidence.passage_words[place] for place in best.tolist())
    nearest = cosines[np.arange(len(best)), best]
    return [f'best match "{word}", cosine {near:.2f}' for word, near in zip(words, nearest, strict=True)]


def numbers(weights: Tensor) -> Doubles:
    """Return weights in double precision."""
    array: Doubles = weights.detach().double().cpu().numpy()
    return array


def words_read(
    words: Sequence[str], values: Sequence[float | None], cosines: FloatArray, query_words: Sequence[str]
) -> list[Word]:
    """Return the p words that were read, each with what it adds and the query word it matches best."""
    if not len(query_words):
        return [Word(word, value) for word, value in zip(words, values, strict=True)]
    best = cosines.argmax(0).tolist()
    nearest = np.clip(cosines.max(0, initial=-1.0), -1.0, 1.0).tolist()
    return [
        Word(word, value, query_words[i], similarity)
        for word, value, i, similarity in zip(words, values, best, nearest, strict=True)
    ]


def reading_notes(model: WordModel, pair: Pair) -> tuple[str, ...]:
    """Say what of a pair was not read or not known, a sentence each."""
    notes = []
    unknown: dict[str, None] = {}
    limits = (model.design.query_length, model.design.passage_length)
    for side, text, limit in zip(
        ("query", "passage"), (pair.query.text, pair.passage.text), limits, strict=True
    ):
        words = model.reader.split(text)
        if not words:
            notes.append(f"The {side} has no words.")
        notes += unread_note(side, len(words), limit)
        read = words[:limit]
        known = zip(read, model.reader.ids(read), strict=True)
        unknown |= {word: None for word, number in known if number == UNKNOWN}
    if unknown:
        named = ", ".join(f'"{word}"' for word in list(unknown)[:_NAMED])
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        notes.append(f"Not in the vocabulary, all read as the same unknown word: {named}{more}.")
    return tuple(notes)


def unread_note(side: str, total: int, limit: int, unit: str = "words") -> list[str]:
    """Say how many words of the "query" or "passage" were not read; nothing if all were."""
    if total <= limit:
        return []
    listed = f"; the first {UNREAD_LISTED} of those are listed" if total - limit > UNREAD_LISTED else ""
    unread = f"{total - limit:,} of the {side}'s {total:,} {unit} were not read"
    return [f"{unread}: the ranker reads {limit:,}{listed if side == 'passage' else ''}."]
