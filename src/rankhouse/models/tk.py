"""TK: words put lightly into context, one cosine match matrix, kernels, a log path and a length path.

Paper: Hofstätter, Zlabinger, Hanbury, "TU Wien @ TREC Deep Learning '19", eq. 1-10; windows: run TUW19-d3.
Deviations from the text, all with the authors' code (docs/tk.md has the measured effects): layers have norms
and a residual around the feed-forward part; 16 heads share 32 columns; eq. 7 floors counts at 1e-10 and both
paths carry a learned factor; eq. 8 divides by length + 1. Unlike their code, an empty text is safe.
Shapes: n pairs, q query tokens, p passage tokens, d width, k kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, cast

import numpy as np
import torch
from torch import Tensor, nn

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair, PassageRows
from rankhouse.models.bundle import best_of, load
from rankhouse.models.precomputing import KernelModel
from rankhouse.models.word_models import (
    Evidence,
    WordDesign,
    WordReader,
    array,
    blank_table,
    embedding,
    on_distinct,
    seeded,
)
from rankhouse.nn.cpu import train
from rankhouse.nn.cpu.train_words import TextRows
from rankhouse.nn.layers import compiled
from rankhouse.nn.layers.kernel_pooling import Kernels, log_counts, soft_counts, windowed_logs
from rankhouse.nn.layers.linear import query_sums, through
from rankhouse.nn.layers.match import cosines, dots, unit
from rankhouse.nn.layers.ragged import Ragged, TwoSided
from rankhouse.nn.layers.tk_encoder import Order, TKEncoder

_FIRST_SPREAD = 0.014
_SCALE_START = 0.01
_SIMILAR = 0.25
"""Centre from which on a kernel counts similar words, for a head that begins upwards."""
_OTHERS = 0.1
"""What is left there of the weights of other kernels."""


class KernelHead(nn.Module):
    """Eq. 7-10: kernel counts -> log path and length path -> score."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.scale = nn.Parameter(torch.tensor(_SCALE_START))
        self.log_weight = nn.Linear(len(kernels), 1, bias=False)
        self.length_weight = nn.Linear(len(kernels), 1, bias=False)
        self.merge = nn.Linear(2, 1, bias=False)
        for layer in (self.log_weight, self.length_weight):
            nn.init.uniform_(layer.weight, -_FIRST_SPREAD, _FIRST_SPREAD)

    def paths(self, counts: Tensor, query_mask: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log path (eq. 7) and the length path (eq. 8), (n, k) each."""
        logs = log_counts(counts, query_mask, base=2) * self.scale
        sums = query_sums(counts * query_mask.unsqueeze(2))
        return logs, sums * self.scale / (lengths[:, None] + 1)

    def score(self, counts: Tensor, query_mask: Tensor, lengths: Tensor) -> Tensor:
        """Score counts: (n,), eq. 9 and 10."""
        logs, means = self.paths(counts, query_mask, lengths)
        both = torch.cat([through(self.log_weight, logs), through(self.length_weight, means)], dim=1)
        return through(self.merge, both).squeeze(1)

    def forward(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> Tensor:
        """(n, q, p), (n, q), (n, p) -> (n,)."""
        counts = soft_counts(match, passage_mask, self.kernels)
        return self.score(counts, query_mask, passage_mask.sum(1))

    def parts(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> dict[str, float]:
        """Split one pair's score, (1, q, p), into what each kernel gave on each path; they sum to the score.

        The merging weights are multiplied in, which the rows of the paper's figure 2 lack.
        """
        counts = soft_counts(match, passage_mask, self.kernels)
        logs, means = self.paths(counts, query_mask, passage_mask.sum(1))
        parts: dict[str, float] = {}
        beta, gamma = self.merge.weight[0]
        for name, weight, values, factor in (
            ("log", self.log_weight.weight[0], logs[0], beta),
            ("length", self.length_weight.weight[0], means[0], gamma),
        ):
            shares = (weight * values * factor).tolist()
            parts |= {f"{name} {c:g}": s for c, s in zip(self.kernels.centres, shares, strict=True)}
        return parts


class WindowHead(nn.Module):
    """TUW19-d3: kernels counted in windows of several sizes; each size weighs its sorted window scores."""

    def __init__(self, kernels: Kernels, sizes: tuple[int, ...], passage_length: int) -> None:
        super().__init__()
        self.kernels, self.sizes = kernels, sizes
        self.most = tuple(-(-passage_length // size) for size in sizes)
        self.scales = nn.Parameter(torch.full((len(sizes),), _SCALE_START))
        self.kernel_weights = nn.ModuleList(nn.Linear(len(kernels), 1, bias=False) for _ in sizes)
        self.window_weights = nn.ModuleList(nn.Linear(most, 1, bias=False) for most in self.most)
        self.merge = nn.Linear(len(sizes), 1, bias=False)
        for layer, most in zip(self.window_weights, self.most, strict=True):
            nn.init.constant_(cast(nn.Linear, layer).weight, 1 / most)

    @torch.no_grad()
    def begin_upwards(self) -> None:
        """Turn drawn weights so that a window of similar words scores higher, in every size."""
        self.merge.weight.abs_()
        similar = torch.tensor(self.kernels.centres) > _SIMILAR
        for layer in self.kernel_weights:
            weight = cast(nn.Linear, layer).weight
            weight.copy_(torch.where(similar, weight.abs(), _OTHERS * weight))

    def windows(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> list[Tensor]:
        """Score the windows of each size: (n, w) each."""
        found = windowed_logs(match.tanh(), query_mask, passage_mask, kernels=self.kernels, sizes=self.sizes)
        scores = []
        for i, (logs, size) in enumerate(zip(found, self.sizes, strict=True)):
            starts = passage_mask[:, ::size] & query_mask.any(1, keepdim=True)  # (n, w): a window with a word
            logits = through(cast(nn.Linear, self.kernel_weights[i]), logs).squeeze(2)
            scores.append((logits * self.scales[i]).exp() * starts)
        return scores

    def by_size(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> Tensor:
        """Score each window size: (n, number of sizes)."""
        scores = []
        for i, values in enumerate(self.windows(match, query_mask, passage_mask)):
            most, layer = self.most[i], cast(nn.Linear, self.window_weights[i])
            filled = nn.functional.pad(values, (0, max(0, most - values.shape[1])))[:, :most]
            scores.append(through(layer, filled.sort(1, descending=True).values))
        return torch.cat(scores, dim=1)

    def forward(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> Tensor:
        """(n, q, p), (n, q), (n, p) -> (n,)."""
        return through(self.merge, self.by_size(match, query_mask, passage_mask)).squeeze(1)

    def parts(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> dict[str, float]:
        """Split one pair's score into what each window size gave; they sum to the score."""
        shares = (self.by_size(match, query_mask, passage_mask)[0] * self.merge.weight[0]).tolist()
        return {f"windows of {size}": share for size, share in zip(self.sizes, shares, strict=True)}


_TOGETHER = 64  # stored passages that are laid out as a rectangle, to be counted in windows
_GRID = 4  # tokens; attention's bits depend on how wide a rectangle is
_TAKEN: Final = ("words", "order", "layers", "heads", "attention_width", "feed_forward")
"""Settings that a TK has from the one whose weights it begins with."""


@dataclass(frozen=True)
class TKDesign(WordDesign):
    """Settings of ``tk(...)``: reading, then sizes; the defaults are the paper's.

    Attributes:
        order: "ff-first" as published, or "attention-first".
        layers: Transformer layers.
        heads: Attention heads of a layer.
        attention_width: Columns that all heads of a layer share; 0: the word vectors' width.
        feed_forward: Hidden size of the feed-forward parts.
        windows: Sizes of pooling windows (TUW19-d3 with passage_length=800); none: the paper's TK.
        start: Folder of a trained TK whose words, word vectors and layers it begins with; the head is drawn.
    """

    order: Order = "ff-first"
    layers: int = 2
    heads: int = 16
    attention_width: int = 32
    feed_forward: int = 100
    windows: tuple[int, ...] = ()
    start: str = ""

    def __post_init__(self) -> None:
        """Take lists as tuples; refuse sizes below 1."""
        super().__post_init__()
        object.__setattr__(self, "windows", tuple(self.windows))
        if any(size < 1 for size in self.windows):
            raise WrongUse(f"windows={list(self.windows)}: every size must be 1 token or more")
        check_least(self, 0, "layers", "attention_width")
        check_least(self, 1, "heads", "feed_forward")
        if self.order not in {"ff-first", "attention-first"}:
            raise WrongUse(f'order="{self.order}" is not known; choose from: attention-first, ff-first')
        if not self.vectors and self.width < self.heads:
            raise WrongUse(f"width={self.width}, heads={self.heads}: a word has a number a head or more")
        if self.attention_width % self.heads:
            raise WrongUse(
                f"heads={self.heads}, attention_width={self.attention_width}: the heads must share the width "
                "evenly; choose a number of heads that divides the attention width"
            )
        if self.start and self.vectors:
            raise WrongUse(f'start="{self.start}" has word vectors of its own; leave vectors out')
        if self.start and not Path(self.start).is_dir():
            raise WrongUse(f'start="{self.start}" is no folder; give that of a trained TK')

    def fresh(self, texts: Iterable[str], seed: int = 0) -> TK:
        """Start a model to be trained; with ``start`` it knows the words of that one, whatever the texts."""
        if not self.start:
            return cast(TK, super().fresh(texts, seed))
        other = load(best_of(self.start))
        if not isinstance(other, TK):
            raise WrongUse(
                f'start="{self.start}" is a ranker of the family {other.family}; give that of a TK'
            )
        usual = {one.name: one.default for one in fields(self)}
        for name in _TAKEN:
            given, there = getattr(self, name), getattr(other.design, name)
            if given not in (usual[name], there):
                raise WrongUse(f'{name}={given}: the TK in "{self.start}" has {there}; leave it out')
        taken = {name: getattr(other.design, name) for name in _TAKEN}
        design = replace(self, start="", width=other.policy["width"], **taken)
        reader = WordReader(design, other.reader.vocabulary)
        with seeded(seed):
            model = TK(design, reader, blank_table(reader, design.width))
        weights = {name: one for name, one in other.state_dict().items() if not name.startswith("head.")}
        model.load_state_dict(model.state_dict() | weights)
        return model


class TK(KernelModel):
    """The model; see the head of this file."""

    family = "tk"
    designed_by = TKDesign
    design: TKDesign

    def __init__(self, design: TKDesign, reader: WordReader, table: FloatArray) -> None:
        super().__init__(design, reader, table.shape[1])
        width = table.shape[1]
        self.embedding = embedding(table)
        inner = design.attention_width or width
        self.encoder = TKEncoder(
            width, design.heads, inner, design.feed_forward, layers=design.layers, order=design.order
        )
        self.mix = nn.Parameter(torch.tensor(0.5))
        kernels = self.kernels = Kernels.usual()
        self.head: KernelHead | WindowHead = (
            WindowHead(kernels, design.windows, design.passage_length)
            if design.windows
            else KernelHead(kernels)
        )

    def represent(self, rows: Ragged) -> Tensor:
        """Put words into context: n rows -> (n, t, d), eq. 1; zero beyond a row's length."""
        if torch.is_grad_enabled():
            return self._contextual(rows, 1)
        out = self.embedding.weight.new_zeros(
            len(rows), max(1, int(rows.lengths.max())), self.policy["width"]
        )
        if self.encoder.goes_along(self.embedding.weight):
            out[rows.mask(at_least=1)] = self._along(rows)[0][: len(rows.values)]
            return out
        widths = (rows.lengths.clamp_min(1) + _GRID - 1) // _GRID * _GRID
        for width in torch.unique(widths).tolist():
            at = (widths == width).nonzero().flatten()
            some = self._contextual(rows.take(at), width)[:, : out.shape[1]]
            out[at, : some.shape[1]] = some
        return out

    def _contextual(self, rows: Ragged, width: int) -> Tensor:
        """Put words into context in one rectangle, at least ``width`` tokens wide."""
        ids, mask = rows.pad(at_least=width), rows.mask(at_least=width)
        words = self.embedding(ids)
        mixed = self.mix * words + (1 - self.mix) * self.encoder(words, mask)
        return cast(Tensor, mixed * mask.unsqueeze(2))

    def _along(self, rows: Ragged) -> tuple[Tensor, Tensor]:
        """Put words into context end to end, unpadded: (t, d) and a few more, and their places."""
        values, learned = rows.values, torch.is_grad_enabled()  # a query alone is a few rows
        size = train.rounded(len(values) + 1) if learned else train.rounded(len(values) + 1, few=8)
        words = self.embedding(nn.functional.pad(values, (0, size - len(values))))
        mixed = torch.lerp(self.encoder.along(words, rows), words, self.mix)
        return mixed, torch.arange(len(values), device=values.device)

    def _match_along(self, batch: TwoSided) -> Tensor:
        """Return the matrix by the compiled loops: all rows of both sides end to end, equal queries once."""
        queries, which = batch.query, None
        if not torch.is_grad_enabled() or batch.crossed:
            queries, which = _distinct(queries)
        passages, whose = _distinct(batch.passage) if batch.crossed else (batch.passage, None)
        sides = queries, passages
        values, lengths = (
            torch.cat(each) for each in zip(*((s.values, s.lengths) for s in sides), strict=True)
        )
        vectors, places = self._along(Ragged(values, lengths))
        query, passage = (
            TextRows(Ragged(at, side.lengths).pad(at_least=1), side.lengths)
            for at, side in zip(torch.split(places, [len(s.values) for s in sides]), sides, strict=True)
        )
        if which is not None:
            query = TextRows(query.at[which], query.lengths[which])
        if whose is not None:
            passage = TextRows(passage.at[whose], passage.lengths[whose])
        return compiled.match(unit(vectors), query, passage)

    def match(self, batch: TwoSided) -> Tensor:
        """Return the one matrix all evidence passes through, (n, q, p), eq. 4."""
        if self.encoder.goes_along(self.embedding.weight):
            return self._match_along(batch)
        if torch.is_grad_enabled():
            query = self.represent(batch.query)
        else:  # reranking: one query, many passages
            query = on_distinct(
                batch.query.pad(at_least=1), lambda ids: self.represent(_ragged(ids, (ids != 0).sum(1)))
            )
        return cosines(query, self.represent(batch.passage))

    def forward(self, batch: TwoSided) -> Tensor:
        """Score n pairs: (n,)."""
        masks = batch.query.mask(at_least=1), batch.passage.mask(at_least=1)
        return cast(Tensor, self.head(self.match(batch), *masks))

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of."""
        batch = self.encode([pair]).to(self.mix.device)
        masks = batch.query.mask(at_least=1), batch.passage.mask(at_least=1)
        match = self.match(batch)
        counts = soft_counts(match.tanh() if self.design.windows else match, masks[1], self.head.kernels)
        return self.shown(
            pair,
            float(self.head(match, *masks)),
            {"cosine": match},
            gathered={"kernel sums": (counts, [f"{c:g}" for c in self.head.kernels.centres])},
            parts=self.head.parts(match, *masks),
        )

    @property
    def stored_shape(self) -> tuple[int, int]:
        """One vector a word."""
        return 1, self.policy["width"]

    def stored_vectors(self, rows: Ragged) -> Tensor:
        """Put words into context: (n, 1, t, d), of length 1."""
        return unit(self.represent(rows)).unsqueeze(1)

    def query_vectors(self, row: Ragged) -> Tensor:
        """Put the words of one query into context: (1, q, d), of length 1."""
        words = self.embedding(row.values)
        if not len(words) or not self.encoder.goes_along(words):
            return super().query_vectors(row)
        return unit(torch.lerp(self.encoder.alone(words), words, self.mix)).unsqueeze(0)

    @torch.inference_mode()
    def score_stored(self, query: str, rows: PassageRows) -> FloatArray:
        """Score stored passages for a query, (n,) float32: in windows from the match matrix on."""
        if not isinstance(self.head, WindowHead):
            return super().score_stored(query, rows)
        asked, found = self.asked_vectors(query)[0], [np.empty(0, np.float32)]
        for start in range(0, len(rows.lengths), _TOGETHER):
            lengths = torch.from_numpy(rows.lengths[start : start + _TOGETHER])
            span = slice(rows.offsets[start], rows.offsets[start + len(lengths)])
            vectors = torch.from_numpy(rows.values[span]).float()
            if len(rows.scales):
                vectors *= torch.from_numpy(rows.scales[span])[:, None]
            found.append(array(self._in_windows(asked, Ragged(vectors, lengths))))
        return np.concatenate(found)

    def _in_windows(self, asked: Tensor, words: Ragged) -> Tensor:
        """Score n passages by their words' vectors (t, d) for a query's (q, d): (n,)."""
        true = words.mask(at_least=1)
        passages = asked.new_zeros(*true.shape, asked.shape[1])
        passages[true] = words.values.to(asked.device)
        match = dots(asked.expand(len(words), -1, -1).contiguous(), passages)
        scores: Tensor = self.head(
            match, match.new_ones(match.shape[:2], dtype=torch.bool), true.to(asked.device)
        )
        return scores

    def count_weights(self) -> tuple[Tensor, Tensor]:
        """Return the weights of eq. 7-10 as one product: (1, 1, k) each."""
        head = cast(KernelHead, self.head)
        layers = torch.cat([head.log_weight.weight, head.length_weight.weight])
        log_weights, weights = (layers * head.merge.weight.T * head.scale).unbind()
        return log_weights.view(1, 1, -1), weights.view(1, 1, -1)


def _distinct(rows: Ragged) -> tuple[Ragged, Tensor]:
    """Return the distinct rows among n, and for each of the n which of them it is: (n,)."""
    ids, which = torch.unique(rows.pad(at_least=1), dim=0, return_inverse=True)
    return _ragged(ids, (ids != 0).sum(1)), which


def _ragged(ids: Tensor, lengths: Tensor) -> Ragged:
    """Padded ids (n, t) back to ragged rows."""
    mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    return Ragged(ids[mask], lengths)
