"""Kernel rankers (KNRM, Conv-KNRM, TK): what each query word, kernel and passage word adds, read off exactly.

The score is a weighted sum of logarithms of soft counts (and, in TK's length path, of the counts): a part for
each query word and kernel. Of ln(K / e), with K the sum of K_j over the passage's words j and e its floor,
word j is given (K_j / K) ln(K / e): integrated gradients (Sundararajan et al., ICML 2017, eq. 1) on the
straight path from no words to these, which is complete. What the floors give is the part "no words".
Shapes: q query words, p passage words, k kernels, m n-gram lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.core.scores import Doubles
from rankhouse.explanation import kernel_windows
from rankhouse.explanation.answer import Explanation, Part
from rankhouse.explanation.kernel_shares import (
    above_floor,
    at_floor,
    kernel_parts,
    responses,
    share_grid,
    spread,
)
from rankhouse.explanation.options import ExplainOptions
from rankhouse.explanation.units import NO_WORDS, numbered
from rankhouse.explanation.word_texts import (
    Account,
    best_matches,
    explanation_of,
    no_words,
    numbers,
    scored,
)
from rankhouse.models import conv_knrm, knrm
from rankhouse.models.tk import TK
from rankhouse.models.tk_heads import KernelHead
from rankhouse.models.word_models import Evidence, array
from rankhouse.nn.layers.kernel_pooling import Kernels

METHOD = "kernel shares"
_IN_CONTEXT = "A passage word's share is that of the word as read in its context."
_GRAMS = "What an n-gram adds is spread evenly over its words."


def explain_knrm(ranker: Ranker, pair: Pair, _: ExplainOptions) -> Explanation:
    """Explain KNRM: a part for each query word, with its kernels below.

    Raises:
        WrongUse: Another ranker.
    """
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
    account = Account(
        METHOD,
        (*parts, no_words(floors.sum())),
        spread(gains, responses(match, model.kernels)).tolist(),
        (share_grid("kernel shares", names, model.kernels, gains, floors),),
    )
    return explanation_of(of, account)


class _Gram(NamedTuple):
    """Query n-grams of one length against passage n-grams of one length.

    Attributes:
        asked: Length of the query's.
        said: Length of the passage's.
        gains: (q, k).
        counts: (q, k).
        weights: (k,).
    """

    asked: int
    said: int
    gains: Doubles
    counts: FloatArray
    weights: Doubles


def explain_conv_knrm(ranker: Ranker, pair: Pair, _: ExplainOptions) -> Explanation:
    """Explain Conv-KNRM: a part for each query n-gram, below it passage n-gram lengths and their kernels.

    Raises:
        WrongUse: Another ranker.
    """
    of = scored(ranker, pair, conv_knrm.ConvKNRM)
    model, seen = of.model, of.evidence
    weights = conv_knrm.LOG_FACTOR * numbers(model.weight.weight).reshape(-1, len(model.kernels))
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
        made.append(_Gram(asked, said, gains, counts, weight))
    grams = [name for n in range(1, m + 1) for name in _gram_names(seen.query_words, n)]
    names = tuple(numbered(grams, (NO_WORDS,)))
    sums = np.concatenate([sum(g.gains for g in made if g.asked == n) for n in range(1, m + 1)])
    parts = tuple(
        _gram_part(name, row % q, [g for g in made if g.asked == row // q + 1], model.kernels)
        for row, name in enumerate(names)
    )
    account = Account(
        METHOD,
        (*parts, no_words(floors.sum())),
        words.tolist(),
        (share_grid("kernel shares", names, model.kernels, sums, floors),),
        (_GRAMS,) if m > 1 else (),
    )
    return explanation_of(of, account)


def _gram_names(words: Sequence[str], length: int) -> list[str]:
    """Name the n-gram that begins at each word; "·" stands for what hangs over the end."""
    filled = (*words, *("·",) * (length - 1))
    return [" ".join(filled[i : i + length]) for i in range(len(words))]


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

    Raises:
        WrongUse: Another ranker.
    """
    of = scored(ranker, pair, TK, _look)
    model, seen = of.model, of.evidence
    if isinstance(model.head, KernelHead):
        account = _tk_account(model.head, seen)
    else:
        account = kernel_windows.account(model.head, seen)
    account = replace(account, notes=(*account.notes, _IN_CONTEXT))
    return explanation_of(of, account)


@torch.inference_mode()
def _look(model: TK, pair: Pair) -> Evidence:
    """Return what a TK saw; of one with windows the cosines only, as nothing else is asked for."""
    if not model.design.windows:
        return model.evidence(pair)
    query_words, passage_words = model.reader.words(pair)
    match = model.match(model.encode([pair]).to(model.mix.device))
    cosines = array(match[0, : len(query_words), : len(passage_words)])
    return Evidence(query_words, passage_words, math.nan, {"cosine": cosines})


def _tk_account(head: KernelHead, seen: Evidence) -> Account:
    """Explain TK without windows: both paths of each query word."""
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
        share_grid("kernel shares, log path", names, kernels, logs, floors),
        share_grid("kernel shares, length path", names, kernels, lengths, np.zeros(len(kernels))),
    )
    return Account(METHOD, (*parts, no_words(floors.sum())), words.tolist(), grids)
