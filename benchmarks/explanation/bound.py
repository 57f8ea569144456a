"""Are explanations bound to model and text? Redrawn weights, an irrelevant sentence, a planted word.

Redrawn weights: Adebayo et al., "Sanity Checks for Saliency Maps", NeurIPS 2018: an explanation that stays as
it was when the weights are redrawn explains the text, not the model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np
import torch
from scipy.stats import spearmanr

from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.explanation.methods import explain_pair
from rankhouse.explanation.units import sentences_of, words_of
from rankhouse.models.ranker import NeuralRanker

from .ways import Way, as_read, game_of, sampled, values_by

_ROOM = 60  # words that are kept of a text, so that a sentence behind them is read
_ALIEN = 20  # words of that sentence


def redrawn(ranker: NeuralRanker, seed: int) -> NeuralRanker:
    """Return a ranker with every weight redrawn, with the mean and spread of its tensor.

    Args:
        ranker: Stays as it is.
        seed: Of the drawing.
    """
    model = deepcopy(ranker.model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in model.parameters():  # type: ignore[attr-defined]
            spread = weights.std().nan_to_num() if weights.numel() > 1 else weights.abs().mean()
            weights.copy_(weights.mean() + spread * torch.randn(weights.shape, generator=generator))
    return type(ranker)(model, ranker.compute)


def correlations(ranker: NeuralRanker, pairs: Sequence[Pair], way: Way) -> list[float]:
    """Return Spearman's correlation of units' values before and after redrawing, pair by pair.

    Args:
        ranker: What is explained.
        pairs: What it scores; each has weights of its own drawing.
        way: How.
    """
    out, others = [], [redrawn(ranker, seed) for seed in range(5)]
    for at, pair in enumerate(pairs):
        game = game_of(as_read(ranker, pair), way.unit)
        found = values_by(ranker, game, way), values_by(others[at % len(others)], game, way)
        if len(game.units) < 3 or None in found:
            continue
        values = [each[0] for each in found if each]
        if all(np.ptp(v) for v in values):
            out.append(float(spearmanr(*values).statistic))
    return out


def appended(ranker: NeuralRanker, pairs: Sequence[Pair], way: Way, seed: int = 0) -> list[bool]:
    """Append to each passage a sentence of another's, and return whether it gets less than the top sentence.

    Values of words are added up by sentence.

    Args:
        ranker: What is explained.
        pairs: What it scores.
        way: How.
        seed: Of the drawing of sentences.
    """
    draws, out = random.Random(seed), []
    for pair in pairs:
        other = draws.choice([p for p in pairs if p.query.id != pair.query.id])
        own = sentences_of(" ".join(pair.passage.text.split()[:_ROOM]).rstrip(" .") + ".")
        alien = sentences_of(other.passage.text)[0].text.split()[:_ALIEN]
        texts = [*(unit.text for unit in own), " ".join(alien).rstrip(" .").capitalize() + "."]
        sizes = [len(game_of(as_read(ranker, _saying(pair, text)), way.unit).units) for text in texts]
        game = game_of(as_read(ranker, _saying(pair, " ".join(texts))), way.unit)
        found = values_by(ranker, game, way)
        if found and sum(sizes) == len(game.units) and all(sizes):
            sums = np.add.reduceat(found[0], np.cumsum([0, *sizes[:-1]]))
            out.append(bool(sums[-1] < sums[:-1].max()))
    return out


def _saying(pair: Pair, text: str) -> Pair:
    return pair._replace(passage=pair.passage._replace(text=text))


def same_bytes(ranker: NeuralRanker, pairs: Sequence[Pair], way: Way) -> bool:
    """Return whether explaining again gives the same JSON to the byte."""

    def told(pair: Pair) -> str:
        return json.dumps(explain_pair(ranker, pair, way.options).to_dict())

    return all(told(pair) == told(pair) for pair in pairs)


class Counts:
    """The planted ranker: how often the passage says a word that the query says too.

    Args:
        word: The word.
    """

    scale = "score"

    def __init__(self, word: str) -> None:
        self._word = word

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Count."""
        counts = (sum(self._is(u.text) for u in words_of(p.passage.text)) * self._asked(p) for p in pairs)
        return np.fromiter(counts, np.float32, len(pairs))

    def truth(self, units: Sequence[str]) -> FloatArray:
        """Return what each unit adds."""
        return np.array([sum(self._is(u.text) for u in words_of(text)) for text in units], np.float32)

    def _is(self, word: str) -> bool:
        return word.lower().strip(".,;:!?()\"'") == self._word

    def _asked(self, pair: Pair) -> bool:
        return any(self._is(word) for word in pair.query.text.split())


def planted(pairs: Sequence[Pair]) -> Mapping[str, object]:
    """Plant a query word that the passage says, and return how often methods recover it exactly.

    Sampling is asked with the passes of removal; it counts as exact within 1e-6. Its penalty, which serves
    rankers that are not sums, shrinks every number, so it is asked without one too.
    """
    ways = [Way("removal", "sentence"), Way("removal", "word"), Way("shapley", "query word")]
    hits: dict[str, list[bool]] = {}
    for pair in pairs:
        said = {word.lower().strip(".,;:!?()\"'") for word in pair.passage.text.split()}
        asked = [w for w in pair.query.text.lower().split() if w in said and w.isalpha()]
        if not asked:
            continue
        ranker = Counts(asked[-1])
        for way in ways:
            game = game_of(pair, way.unit)
            found = values_by(ranker, game, way)
            if found is None:
                continue
            texts = [unit.text for unit in game.units]
            truth = ranker.truth(texts)
            if way.unit == "query word":
                truth = truth / truth.sum() * float(ranker.score([pair])[0])
            hits.setdefault(f"{way.method} of {way.unit}s", []).append(
                bool(np.abs(found[0] - truth).max() < 1e-6)
            )
            if way.unit == "word":
                for name, penalty in (("sampling of words", 1.0), ("sampling of words, no penalty", 0.0)):
                    fitted = sampled(ranker, game, found[1] + 1, 0, penalty)
                    hits.setdefault(name, []).append(bool(np.abs(fitted - truth).max() < 1e-6))
    return {name: {"pairs": len(each), "recovered": int(sum(each))} for name, each in hits.items()}
