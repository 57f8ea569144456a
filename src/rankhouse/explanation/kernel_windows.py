"""TK with windows: what each window of each size adds, and how its query words and passage words share that.

A window scores v = exp(x), x a weighted sum of logarithms of its soft counts; windows of one size are sorted
by v and each place has a weight. The addends of the score are therefore weight × v, window by window. Within
a window, with x0 what the floors of the counts give and s = x - x0 what its words do, v - exp(x0) is shared
in proportion to the words' shares of s: integrated gradients on the straight path from x0 to x, complete.
Shapes: q query words, p passage words, k kernels, w windows of one size.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import nn

from rankhouse.core.nouns import FloatArray
from rankhouse.core.scores import Doubles
from rankhouse.explanation.answer import Grid, Part
from rankhouse.explanation.kernel_shares import above_floor, at_floor, responses
from rankhouse.explanation.units import NO_WORDS, numbered, ordinal
from rankhouse.explanation.word_texts import Account, numbers
from rankhouse.models.tk_heads import WindowHead
from rankhouse.models.word_models import Evidence

_TAME = 14.0  # e^14: how many times what it scores a window may score without its words
_WILD = (
    "The words of windows have no values: without its words a window would score so much more than with them "
    "that shares of the difference say nothing."
)


class _Windows(NamedTuple):
    """The windows of one size.

    Attributes:
        size: In words.
        addends: (w,) what each adds to the score.
        values: (w,) what each scores.
        places: (w,) its place among them, from 0 for the best.
        floors: (k,) addends to x0.
        shares: (q, w, k) addends to s.
        rates: (w,) what 1 of s is worth in the score.
    """

    size: int
    addends: Doubles
    values: FloatArray
    places: np.ndarray
    floors: Doubles
    shares: Doubles
    rates: Doubles

    @property
    def tame(self) -> bool:
        """Whether shares within the windows are numbers of a reasonable size."""
        start, sums = self.floors.sum(), self.shares.sum((0, 2))
        return bool((start - np.maximum(0.0, start + sums) < _TAME).all())


def account(head: WindowHead, seen: Evidence) -> Account:
    """Explain a pair's score: a part for each window size, below it the windows, below them query words."""
    match = seen.matches["cosine"]
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
    return Account("kernel shares by window", parts, words, grids, () if tame else (_WILD,))


def _all_windows(head: WindowHead, match: FloatArray) -> list[_Windows]:
    cosines = torch.from_numpy(match)[None].to(head.scales.device)
    masks = (torch.ones(1, length, dtype=torch.bool, device=cosines.device) for length in match.shape)
    with torch.inference_mode():
        made = head.windows(cosines, *masks)
    merge, scales = numbers(head.merge.weight[0]), numbers(head.scales)
    return [
        _windows(
            size,
            numbers(counts[0]),
            values[0].cpu().numpy(),
            scales[i] * numbers(cast(nn.Linear, head.kernel_weights[i]).weight[0]),
            merge[i] * numbers(cast(nn.Linear, head.window_weights[i]).weight[0]),
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
    return _Windows(size, weights * values, values, places, floors, shares, rates)


def _size_part(each: _Windows, seen: Evidence, names: tuple[str, ...], tame: bool) -> Part:
    """Return the part of one window size, its windows below, the best first."""
    p = len(seen.passage_words)
    windows = []
    for window in np.argsort(each.places).tolist():
        start, stop = window * each.size, min(p, (window + 1) * each.size)
        place, first = int(each.places[window]), " ".join(seen.passage_words[start : min(stop, start + 8)])
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
                _query_parts(each, window, names) if tame else (),
            )
        )
    total = math.fsum(part.value for part in windows)
    return Part(f"windows of {each.size}", total, parts=tuple(windows))


def _query_parts(each: _Windows, window: int, names: tuple[str, ...]) -> tuple[Part, ...]:
    """Return what each query word adds in a window, and what the window has without words."""
    shares = (each.rates[window] * each.shares[:, window].sum(1)).tolist()
    rest = float(each.addends[window]) - math.fsum(shares)
    return (*(Part(name, v) for name, v in zip(names, shares, strict=True) if v), Part(NO_WORDS, rest))


def _word_shares(each: _Windows, values: Doubles) -> Doubles:
    """Return what each passage word adds in its window of this size: (p,)."""
    starts = np.arange(0, values.shape[2], each.size)
    totals = np.add.reduceat(values, starts, axis=2)  # (k, q, w)
    gains = np.moveaxis(each.shares * each.rates[:, None], 2, 0).swapaxes(1, 2)  # (k, w, q)
    per = np.divide(gains.swapaxes(1, 2), totals, out=np.zeros_like(totals), where=totals > 0)
    words: Doubles = np.einsum("kqp,kqp->p", per.repeat(each.size, 2)[..., : values.shape[2]], values)
    return words
