"""Kernel rankers (KNRM, Conv-KNRM, TK): what each query word, kernel and passage word adds, read off exactly.

The score is a weighted sum of logarithms of soft counts (and, in TK's length path, of the counts): a part for
each query word and kernel. Of ln(K / e), with K the sum of K_j over the passage's words j and e its floor,
word j is given (K_j / K) ln(K / e): integrated gradients (Sundararajan et al., ICML 2017, eq. 1) on the
straight path from no words to these, which is complete. What the floors give is the part "no words".

TK with windows: a window scores v = exp(x), x a weighted sum of logarithms of its soft counts; windows of one
size are sorted by v and each place has a weight. The addends of the score are therefore weight × v, window by
window. Within a window, with x0 what the floors of the counts give and s = x - x0 what its words do,
v - exp(x0) is shared in proportion to the words' shares of s: integrated gradients on the straight path from
x0 to x.
Shapes: q query words, p passage words, k kernels, m n-gram lengths, w windows of one size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import nn

from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.core.scores import Doubles
from rankhouse.explanation.answer import Explanation, Grid, Part
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.explanation.units import NO_WORDS, numbered, ordinal
from rankhouse.explanation.word_texts import (
    ScoredPair,
    best_matches,
    explanation_of,
    no_words,
    numbers,
    scored,
)
from rankhouse.models import knrm
from rankhouse.models.tk import TK, KernelHead, WindowHead
from rankhouse.models.word_models import Evidence, array
from rankhouse.nn.layers.kernel_pooling import COUNT_FLOOR, Kernels, windowed_counts


def above_floor(counts: FloatArray | Doubles, weights: Doubles) -> Doubles:
    """Return w ln(K / e) of counts K (..., k), e their floor: 0 where nothing was counted."""
    gains: Doubles = weights * np.log(np.maximum(counts.astype(np.float64), COUNT_FLOOR) / COUNT_FLOOR)
    return gains


def at_floor(query_words: int, weights: Doubles) -> Doubles:
    """Return what the floors of all query words give, (k,): the log path of a passage without words."""
    return query_words * math.log(COUNT_FLOOR) * weights


def responses(match: FloatArray, kernels: Kernels) -> Doubles:
    """Return every kernel of every match: (k, q, p)."""
    values = np.empty((len(kernels), *match.shape))
    for out, centre, width in zip(values, *kernels, strict=True):
        np.subtract(match, centre, out=out)
        np.exp(np.square(out, out=out) * (-0.5 / width**2), out=out)
    return values


def spread(gains: Doubles, values: Doubles) -> Doubles:
    """Share what counts gained, (q, k), among the words that were counted: (p,), with the gains' sum."""
    totals = values.sum(2)
    rates = np.divide(gains.T, totals, out=np.zeros_like(totals), where=totals > 0)
    words: Doubles = np.einsum("kq,kqp->p", rates, values)
    return words


def kernel_parts(kernels: Kernels, gains: Doubles, counts: FloatArray, weights: Doubles) -> tuple[Part, ...]:
    """Return a part for each kernel that adds something to a query word."""
    rows = zip(*kernels, gains.tolist(), counts.tolist(), weights.tolist(), strict=True)
    return tuple(
        Part(
            "exact match" if width <= 0.01 else f"cosine ≈ {centre:g}",  # one so narrow counts the word only
            gain,
            facts={"count": count, "weight": weight},
        )
        for centre, width, gain, count, weight in rows
        if gain
    )


def share_grid(name: str, rows: Sequence[str], kernels: Kernels, gains: Doubles, floors: Doubles) -> Grid:
    """Return what each query word and kernel adds, and what the floors give: it sums to the score."""
    columns = tuple(f"{centre:g}" for centre in kernels.centres)
    values = np.concatenate([gains, floors[None]]).astype(np.float32)
    return Grid(name, (*rows, NO_WORDS), columns, values)


_WILD = (
    "The words of windows have no values: without its words a window would score so much more than with them "
    "that shares of the difference say nothing."
)


class _Windows(NamedTuple):
    """The windows of one size."""

    size: int  # in words
    addends: Doubles  # (w,) what each adds to the score
    values: FloatArray  # (w,) what each scores
    places: np.ndarray  # (w,) its place among them, from 0 for the best
    floors: Doubles  # (k,) addends to x0
    shares: Doubles  # (q, w, k) addends to s
    rates: Doubles  # (w,) what 1 of s is worth in the score

    @property
    def tame(self) -> bool:
        """Whether no window scores more than e^14 times as much without its words as with them."""
        start, sums = self.floors.sum(), self.shares.sum((0, 2))
        return bool((start - np.maximum(0.0, start + sums) < 14.0).all())


def _explain_windows(of: ScoredPair[TK], head: WindowHead) -> Explanation:
    """Explain a pair's score: a part for each window size, below it the windows, below them query words."""
    seen, match = of.evidence, of.evidence.matches["cosine"]
    sizes = _all_windows(head, match) if match.size else []
    tame = all(each.tame for each in sizes)
    names = tuple(numbered(seen.query_words))
    parts = tuple(_size_part(each, seen, names, tame) for each in sizes)
    words: list[float | None] = [None if match.size else 0.0] * match.shape[1]
    grids: tuple[Grid, ...] = ()
    if tame and match.size:
        values = responses(np.tanh(match), head.kernels)
        words = np.sum([_word_shares(each, values) for each in sizes], axis=0).tolist()
        shares = np.sum([np.einsum("w,qwk->qk", each.rates, each.shares) for each in sizes], axis=0)
        columns = tuple(f"{centre:g}" for centre in head.kernels.centres)
        grids = (Grid("kernel shares", names, columns, shares.astype(np.float32)),)
    notes = (_IN_CONTEXT,) if tame else (_WILD, _IN_CONTEXT)
    return explanation_of(of, "kernel shares by window", parts, words, grids=grids, notes=notes)


def _all_windows(head: WindowHead, match: FloatArray) -> list[_Windows]:
    cosines = torch.from_numpy(match)[None].to(head.scales.device)
    masks = (torch.ones(1, length, dtype=torch.bool, device=cosines.device) for length in match.shape)
    with torch.inference_mode():
        asked, said = masks
        counted = windowed_counts(cosines.tanh(), said, head.kernels, head.sizes)
        made = zip(counted, head.windows(cosines, asked, said), strict=True)
    merge, scales = numbers(head.merge.weight[0]), numbers(head.scales)
    return [
        _windows(
            size,
            numbers(counts[0]),
            values[0].cpu().numpy(),
            scales[i] * numbers(cast(nn.Linear, head.kernel_weights[i]).weight[0]),
            place_weights=merge[i] * numbers(cast(nn.Linear, head.window_weights[i]).weight[0]),
        )
        for i, (size, (counts, values)) in enumerate(zip(head.sizes, made, strict=True))
    ]


def _windows(
    size: int, counts: Doubles, values: FloatArray, kernel_weights: Doubles, place_weights: Doubles
) -> _Windows:
    """Weigh windows of one size."""
    places = np.empty(len(values), np.int64)
    places[np.argsort(-values, kind="stable")] = np.arange(len(values))
    weights = place_weights[places]
    shares, floors = above_floor(counts, kernel_weights), at_floor(len(counts), kernel_weights)
    sums = shares.sum((0, 2))
    with np.errstate(over="ignore", invalid="ignore"):
        start = np.exp(floors.sum())
        rates = weights * np.where(np.abs(sums) > 1e-9, start * np.expm1(sums) / (sums + (sums == 0)), start)
    return _Windows(size, weights * values, values, places, floors=floors, shares=shares, rates=rates)


def _size_part(each: _Windows, seen: Evidence, names: tuple[str, ...], tame: bool) -> Part:
    """Return the part of one window size, its windows below, the best first."""
    p = len(seen.passage_words)
    windows = []
    for window in np.argsort(each.places).tolist():
        start, stop = window * each.size, min(p, (window + 1) * each.size)
        place, first = int(each.places[window]), " ".join(seen.passage_words[start : min(stop, start + 8)])
        shares = (each.rates[window] * each.shares[:, window].sum(1)).tolist()
        rest = Part(NO_WORDS, float(each.addends[window]) - math.fsum(shares))
        finer = (*(Part(name, v) for name, v in zip(names, shares, strict=True) if v), rest)
        windows.append(
            Part(
                "best window" if place == 0 else f"{ordinal(place + 1)} window",
                float(each.addends[window]),
                f'words {start + 1} to {stop}: "{first} …"',
                {
                    "window score": float(each.values[window]),
                    "first word": start + 1.0,
                    "last word": float(stop),
                },
                parts=finer if tame else (),
            )
        )
    total = math.fsum(part.value for part in windows)
    return Part(f"windows of {each.size}", total, parts=tuple(windows))


def _word_shares(each: _Windows, values: Doubles) -> Doubles:
    """Return what each passage word adds in its window of this size: (p,)."""
    starts = np.arange(0, values.shape[2], each.size)
    totals = np.add.reduceat(values, starts, axis=2)  # (k, q, w)
    gains = np.moveaxis(each.shares * each.rates[:, None], 2, 0).swapaxes(1, 2)  # (k, w, q)
    per = np.divide(gains.swapaxes(1, 2), totals, out=np.zeros_like(totals), where=totals > 0)
    words: Doubles = np.einsum("kqp,kqp->p", per.repeat(each.size, 2)[..., : values.shape[2]], values)
    return words


METHOD = "kernel shares"
_IN_CONTEXT = "A passage word's share is that of the word as read in its context."


def explain_knrm(ranker: Ranker, pair: Pair, _: ExplainOptions) -> Explanation:
    """Explain KNRM: a part for each query word, with its kernels below."""
    of = scored(ranker, pair, knrm.KNRM)
    model, seen = of.model, of.evidence
    weights = knrm.LOG_FACTOR * numbers(model.weight.weight[0])
    counts, match = seen.gathered["kernel sums"], seen.matches["cosine"]
    gains, floors = above_floor(counts, weights), at_floor(len(counts), weights)
    names = tuple(numbered(seen.query_words))
    parts = tuple(
        Part(name, gain.sum(), note, parts=kernel_parts(model.kernels, gain, count, weights))
        for name, note, gain, count in zip(names, best_matches(seen), gains, counts, strict=True)
    )
    words = spread(gains, responses(match, model.kernels)).tolist()
    grid = share_grid("kernel shares", names, model.kernels, gains, floors=floors)
    return explanation_of(of, METHOD, (*parts, no_words(floors.sum())), words, grids=(grid,))


class _Gram(NamedTuple):
    """Query n-grams of one length against passage n-grams of one length."""

    asked: int
    said: int
    gains: Doubles  # (q, k)
    counts: FloatArray  # (q, k)
    weights: Doubles  # (k,)


def explain_conv_knrm(ranker: Ranker, pair: Pair, _: ExplainOptions) -> Explanation:
    """Explain Conv-KNRM: a part for each query n-gram, below it passage n-gram lengths and their kernels."""
    of = scored(ranker, pair, knrm.ConvKNRM)
    model, seen = of.model, of.evidence
    weights = knrm.LOG_FACTOR * numbers(model.weight.weight).reshape(-1, len(model.kernels))
    q, m, words = len(seen.query_words), model.design.grams, np.zeros(len(seen.passage_words))
    floors = np.zeros(len(model.kernels))
    made: list[_Gram] = []
    for at, weight in enumerate(weights):
        asked, said = at // m + 1, at % m + 1
        counts = seen.gathered[f"kernel sums {asked}-{said}"]
        gains = above_floor(counts, weight)
        shares = spread(gains, responses(seen.matches[f"cosine {asked}-{said}"], model.kernels))
        words += _over_words(shares, said)
        floors += at_floor(q, weight)
        made.append(_Gram(asked, said, gains, counts, weights=weight))
    filled = (*seen.query_words, *("·",) * (m - 1))  # "·" stands for what hangs over the end
    grams = [" ".join(filled[i : i + n]) for n in range(1, m + 1) for i in range(q)]
    names = tuple(numbered(grams, (NO_WORDS,)))
    sums = np.concatenate([sum(g.gains for g in made if g.asked == n) for n in range(1, m + 1)])
    parts = tuple(
        _gram_part(name, row % q, [g for g in made if g.asked == row // q + 1], model.kernels)
        for row, name in enumerate(names)
    )
    return explanation_of(
        of,
        METHOD,
        (*parts, no_words(floors.sum())),
        words.tolist(),
        grids=(share_grid("kernel shares", names, model.kernels, sums, floors=floors),),
        notes=("What an n-gram adds is spread evenly over its words.",) if m > 1 else (),
    )


def _gram_part(name: str, row: int, grams: Sequence[_Gram], kernels: Kernels) -> Part:
    """Return the part of the query n-gram that begins at word ``row``."""
    finer = [
        Part(
            f"passage {gram.said}-grams",
            gram.gains[row].sum(),
            parts=kernel_parts(kernels, gram.gains[row], gram.counts[row], gram.weights),
        )
        for gram in grams
    ]
    return Part(name, sum(part.value for part in finer), parts=tuple(part for part in finer if part.value))


def _over_words(shares: Doubles, length: int) -> Doubles:
    """Spread what each n-gram adds evenly over its words: (p,) by first words -> (p,)."""
    words, p = np.zeros_like(shares), len(shares)
    each = shares / np.minimum(length, p - np.arange(p))
    for shift in range(min(length, p)):
        words[shift:] += each[: p - shift]
    return words


def explain_tk(ranker: Ranker, pair: Pair, _: ExplainOptions) -> Explanation:
    """Explain TK: a part for each query word, below it the log path and the length path and their kernels.

    A TK that pools in windows is explained window by window.
    """
    of = scored(ranker, pair, TK, _look)
    head = of.model.head
    return _explain_paths(of, head) if isinstance(head, KernelHead) else _explain_windows(of, head)


@torch.inference_mode()
def _look(model: TK, pair: Pair) -> Evidence:
    """Return what a TK saw; of one with windows the cosines only, as nothing else is asked for."""
    if not model.design.windows:
        return model.evidence(pair)
    query_words, passage_words = model.reader.words(pair)
    match = model.match(model.encode([pair]).to(model.mix.device))
    cosines = array(match[0, : len(query_words), : len(passage_words)])
    return Evidence(query_words, passage_words, math.nan, {"cosine": cosines})


def _explain_paths(of: ScoredPair[TK], head: KernelHead) -> Explanation:
    """Explain TK without windows: both paths of each query word."""
    seen = of.evidence
    counts, kernels = seen.gathered["kernel sums"], head.kernels
    scale, (beta, gamma) = numbers(head.scale), numbers(head.merge.weight[0])
    log_weights = beta * scale / math.log(2) * numbers(head.log_weight.weight[0])
    length_weights = gamma * scale / (len(seen.passage_words) + 1) * numbers(head.length_weight.weight[0])
    logs, floors = above_floor(counts, log_weights), at_floor(len(counts), log_weights)
    lengths: Doubles = counts * length_weights
    names = tuple(numbered(seen.query_words))
    parts = []
    for i, (name, note) in enumerate(zip(names, best_matches(seen), strict=True)):
        paths = (
            Part("log", logs[i].sum(), parts=kernel_parts(kernels, logs[i], counts[i], log_weights)),
            Part(
                "length", lengths[i].sum(), parts=kernel_parts(kernels, lengths[i], counts[i], length_weights)
            ),
        )
        parts.append(Part(name, paths[0].value + paths[1].value, note, parts=paths))
    words = spread(logs + lengths, responses(seen.matches["cosine"], kernels))
    grids = (
        share_grid("kernel shares, log path", names, kernels, logs, floors=floors),
        share_grid("kernel shares, length path", names, kernels, lengths, floors=np.zeros(len(kernels))),
    )
    parts.append(no_words(floors.sum()))
    return explanation_of(of, METHOD, tuple(parts), words.tolist(), grids=grids, notes=(_IN_CONTEXT,))
