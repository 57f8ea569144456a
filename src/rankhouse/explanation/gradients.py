"""Integrated gradients on the word vectors of cross-encoders and monoT5.

Sundararajan, Taly, Yan, "Axiomatic Attribution for Deep Networks", ICML 2017, eq. 1: along the straight line
from a baseline b to the passage's token vectors x, token i gets (x_i - b_i) times the mean gradient there.
The mean is taken over the middles of m steps, so that what the tokens get sums to F(x) - F(b) but for a gap,
which shrinks as m grows and is always stated. Baseline: padding in the place of every token of the passage;
query, prompt, positions and segments stay. Always computed in fp32, whatever the ranker runs in.
Shapes: m steps, t tokens of the row, p tokens of the passage, d width.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.core.scores import Doubles
from rankhouse.explanation.answer import Explanation, Part, ReadText, Word
from rankhouse.explanation.methods import ExplainOptions, characters_read, explanation_for, finite_scores
from rankhouse.explanation.removal import limit_notes, short
from rankhouse.explanation.units import NO_WORDS, UNREAD_LISTED, Unit, cut, numbered, words_of
from rankhouse.models.contract import TokenModel
from rankhouse.models.monot5 import MonoT5
from rankhouse.models.ranker import NeuralRanker

_UNIT = "word"
_ROWS = 4  # steps computed together


class Attributions(NamedTuple):
    """Result of integrated gradients."""

    whole: float  # F(x), the score in fp32
    baseline: float  # F(b), the score with padding for a passage
    tokens: Doubles  # (p,) what each token of the passage adds

    @property
    def gap(self) -> float:
        """The difference of score and baseline minus the sum over the tokens."""
        return self.whole - self.baseline - float(self.tokens.sum())


def explain_gradients(ranker: Ranker, pair: Pair, options: ExplainOptions) -> Explanation:
    """Explain a score of a cross-encoder or monoT5 by integrated gradients, joined to words.

    Sums over sentences are not offered: when the sentences were left out, they did not do surely better than
    chance (docs/explanation-quality.md).

    Raises WrongUse: another unit or kind of ranker, or a tokenizer that reads a pair only as one text;
    BadModel: the score is not a finite number.
    """
    if options.unit not in ("", _UNIT):
        raise WrongUse(
            f'unit="{options.unit}": gradients tell what words add; ask for sentences with method="removal"'
        )
    ranker, model = _transformer(ranker)
    score = float(finite_scores(ranker, [pair])[0])
    found = integrated_gradients(ranker, pair, options.steps)
    spans = model.pair_reader.passage_tokens(pair).spans
    text = pair.passage.text
    read, unread = cut(text, words_of(text), characters_read(ranker, pair))
    values = _by_unit(read, spans, found.tokens)
    names = numbered(f"{_UNIT}: {short(each.text)}" for each in read)
    parts = [Part(name, float(value)) for name, value in zip(names, values, strict=True)]
    if spans and not read:
        parts.append(Part("white space", float(found.tokens.sum()), "the passage has no words"))
    words = [Word(each.text, float(value)) for each, value in zip(read, values, strict=True)]
    words += [Word(each.text, read=False) for each in unread[:UNREAD_LISTED]]
    start = Part(NO_WORDS, found.baseline, "the score with padding in the place of every word of the passage")
    return explanation_for(ranker, pair, score)(
        "integrated gradients",
        exact=False,
        parts=(*parts, start),
        cost=options.steps + 2,
        texts=(ReadText(pair.passage.index, tuple(words), _UNIT, value=score),),
        query_words=tuple(pair.query.text.split()),
        notes=(*_notes(ranker, score, found, options.steps), *limit_notes(len(read), len(unread), _UNIT)),
    )


def integrated_gradients(ranker: NeuralRanker, pair: Pair, steps: int) -> Attributions:
    """Compute what each token of a passage adds for a cross-encoder or monoT5, in fp32.

    Raises WrongUse: another kind of ranker, or a tokenizer that reads a pair only as one text.
    """
    _, model = _transformer(ranker)
    tokens = model.pair_reader.passage_tokens(pair)
    batch = model.encode([pair])
    network: Any = model
    path = _Path(slice(tokens.start, tokens.start + len(tokens.spans)), int(batch.lengths[0]), network)
    was_training = network.training
    network.eval()
    shares = torch.cat([torch.tensor([1.0, 0.0]), (torch.arange(steps) + 0.5) / steps])
    hook = path.embedding.register_forward_hook(path)
    try:
        with ranker.compute.active(), torch.inference_mode(mode=False), torch.enable_grad():
            points = [
                path.gradient(network, batch, shares[at : at + _ROWS]) for at in range(0, steps + 2, _ROWS)
            ]
    finally:
        hook.remove()
        network.train(was_training)
    whole, baseline, *_ = torch.cat([scores for scores, _ in points]).tolist()
    slopes = torch.cat([gradients for _, gradients in points])[2:].double().mean(0)
    return Attributions(whole, baseline, (path.difference.double() * slopes).sum(1).numpy())


class _Path:
    """The line from the baseline to a passage's token vectors: a hook behind the table of word vectors.

    Calls of another length than t (a decoder's) are let through.
    """

    def __init__(self, places: slice, length: int, model: nn.Module) -> None:
        network: Any = model.network
        reader = network.get_encoder() if isinstance(model, MonoT5) else network
        self.embedding: nn.Embedding = reader.get_input_embeddings()
        self._padding = self.embedding.weight.detach()[network.config.pad_token_id or 0]
        self._places, self._length = places, length
        self._shares = self._point = self.difference = torch.empty(0)

    def __call__(self, _module: nn.Module, _given: object, vectors: Tensor) -> Tensor | None:
        """Put points on the line in the place of the passage's vectors (n, t, d)."""
        if vectors.shape[1] != self._length:
            return None
        vectors = vectors.detach()
        passage = vectors[:, self._places]
        self.difference = (passage - self._padding)[0].cpu()
        shares = self._shares.to(vectors.device)[:, None, None]
        self._point = (self._padding + shares * (passage - self._padding)).requires_grad_()
        end = self._places.stop
        return torch.cat([vectors[:, : self._places.start], self._point, vectors[:, end:]], dim=1)

    def gradient(self, model: nn.Module, batch: Any, shares: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Return scores (n,) and gradients (n, p, d) at n points of the line."""
        self._shares = shares
        scores = model(batch.take(torch.zeros(len(shares), dtype=torch.int64)))
        (slopes,) = torch.autograd.grad(scores.sum(), self._point)
        return scores.detach().cpu(), slopes.cpu()


def _transformer(ranker: Ranker) -> tuple[NeuralRanker, TokenModel]:
    """Return a ranker and its model if gradients can be taken of it; refuse it otherwise."""
    if not isinstance(ranker, NeuralRanker) or not isinstance(ranker.model, TokenModel):
        raise WrongUse(
            f"integrated gradients explain cross-encoders and monoT5, not {ranker!r}; "
            'leave method out, or choose "removal"'
        )
    if not ranker.model.pair_reader.joins:
        raise WrongUse(
            "this model's tokenizer reads query and passage only as one text, so its tokens cannot be told "
            'apart for integrated gradients; leave method out, or choose "removal"'
        )
    return ranker, ranker.model


def _by_unit(units: Sequence[Unit], spans: Sequence[tuple[int, int]], values: Doubles) -> Doubles:
    """Add up tokens' values (p,) by the units in which their (start, end) characters end: (n,)."""
    sums = np.zeros(len(units))
    if not units:  # tokens of nothing but white space
        return sums
    starts = [unit.start for unit in units]
    for (start, end), value in zip(spans, values, strict=True):
        sums[max(0, bisect_right(starts, max(start, end - 1)) - 1)] += value
    return sums


def _notes(ranker: NeuralRanker, score: float, found: Attributions, steps: int) -> list[str]:
    """Say how complete the parts are, and in which precision they are."""
    way, precision = found.whole - found.baseline, ranker.compute.precision
    gap = (
        f"Integrated gradients in {steps} steps from padding to the passage leave a gap of {found.gap:.2g} "
        f"of the {way:.4g} between them."
    )
    other = (
        f"The ranker runs in {precision} and scores {score:.6g}; the gradients are of the same model in "
        f"fp32, which scores {found.whole:.6g}: the difference is in the gap too."
    )
    return [gap] if precision == "fp32" else [gap, other]
