"""CEDR: match matrices of a BERT's states in every layer go into KNRM, PACRR or DRMM, beside [CLS].

Paper: MacAvaney, Yates, Cohan, Goharian, "CEDR: Contextualized Embeddings for Document Ranking", SIGIR 2019.
Query and passage are read together, ``[CLS] q [SEP] p [SEP]``; a passage that is longer than the encoder's
limit in pieces of equal length, each behind the query. States of the query are those beside the first piece,
[CLS] is the mean over pieces (sec. 3.2). Layers: the word embeddings and every layer above them, c = L + 1.
As in the authors' code the query always takes ``query_length`` positions, so that the passage begins at the
same one; positions that a shorter query leaves free are skipped. Deviations: nothing is padded, so that a
score does not depend on the other pairs of its batch (there, padded passage words match with cosine 0, and
pieces of padding count in the mean of [CLS]). docs/cedr.md has the rest.
Shapes: n pairs, r rows (pieces of all pairs), q query tokens, p passage tokens, c layers, w width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, Self, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair
from rankhouse.models.checkpoint import CheckpointModel, network_of, read_assets
from rankhouse.models.contract import Objective
from rankhouse.models.pair_encoding import pair_layout
from rankhouse.models.text_ids import TextIds
from rankhouse.models.transformer_encoders import encoder_of, first_position, rows_together, words_once
from rankhouse.nn.layers.bert import PostNormEncoder
from rankhouse.nn.layers.linear import two_hidden_layers
from rankhouse.nn.layers.ragged import Packed, Ragged, TwoSided
from rankhouse.nn.machine import Compute

_CENTRES = (-0.9, -0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_WIDTHS = (0.1,) * 10 + (0.001,)
_BINS, _HIDDEN = 11, 5
_FILTERS, _BEST, _LONGEST_GRAM, _DENSE = 32, 2, 3, 32
_EDGE = 1.000001  # a cosine of 1 must reach the last bin in spite of rounding
_LEAST_SUM, _LEAST_COUNT = 1e-6, 1e-5  # added before logarithms


class KNRMHead(nn.Module):
    """Kernels over all layers' matrices, one line over them and [CLS]; centres and widths are learned."""

    def __init__(self, layers: int, width: int, slots: int) -> None:
        super().__init__()
        del slots
        self.centres = nn.Parameter(torch.tensor(_CENTRES))
        self.widths = nn.Parameter(torch.tensor(_WIDTHS))
        self.combine = nn.Linear(len(_CENTRES) * layers + width, 1)

    def forward(self, match: Tensor, first: Tensor) -> Tensor:
        """Score one pair: ().

        Args:
            match: (c, q, p) cosines.
            first: (w,) mean [CLS] state of the last layer.
        """
        if not match.shape[2]:
            sums = match.new_zeros(len(self.centres) * match.shape[0])
        else:
            away = match - self.centres[:, None, None, None]
            near = torch.exp(-0.5 * (away / self.widths[:, None, None, None]) ** 2)
            sums = (near.sum(3) + _LEAST_SUM).log().sum(2).flatten()
        return self.combine(torch.cat([sums, first])).squeeze(0)  # type: ignore[no-any-return]


class PACRRHead(nn.Module):
    """Convolutions over all layers' matrices; each word's best matches and [CLS] go through a network."""

    def __init__(self, layers: int, width: int, slots: int) -> None:
        super().__init__()
        self.slots = slots
        sizes = range(1, _LONGEST_GRAM + 1)
        self.squares = nn.ModuleList(nn.Conv2d(layers, _FILTERS, size) for size in sizes)
        rows = slots * _LONGEST_GRAM * _BEST
        self.network = two_hidden_layers(rows + width, _DENSE)

    def forward(self, match: Tensor, first: Tensor) -> Tensor:
        """Score one pair: ()."""
        missing = max(0, _BEST - match.shape[2])
        match = F.pad(match, (0, missing, 0, self.slots - match.shape[1]))
        best = []
        for size, square in enumerate(self.squares, 1):
            wide = F.pad(match, (0, size - 1, 0, size - 1))
            best.append(square(wide[None])[0].relu().amax(0).topk(_BEST, dim=1).values)
        features = torch.cat(best, dim=1).flatten()
        return self.network(torch.cat([features, first])).squeeze(0)  # type: ignore[no-any-return]


class DRMMHead(nn.Module):
    """Each query word's histograms in all layers and [CLS] go through one small network; votes are added.

    A histogram has no gradient: the encoder learns by way of [CLS] alone.
    """

    def __init__(self, layers: int, width: int, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.hidden = nn.Linear(_BINS * layers + width, _HIDDEN)
        self.vote = nn.Linear(_HIDDEN, 1)

    @torch.no_grad()
    def histograms(self, match: Tensor) -> Tensor:
        """Count cosines in bins, ln(count + 1e-5): (c, slots, b)."""
        c, q, _ = match.shape
        counts = match.new_zeros(c, self.slots, _BINS)
        bins = ((match + _EDGE) / 2 * (_BINS - 1)).long().clamp(0, _BINS - 1)
        counts[:, :q].scatter_add_(2, bins, torch.ones_like(match))
        return (counts + _LEAST_COUNT).log()

    def forward(self, match: Tensor, first: Tensor) -> Tensor:
        """Score one pair: ()."""
        words = self.histograms(match).permute(1, 2, 0).flatten(1)
        rows = torch.cat([words, first.expand(self.slots, -1)], dim=1)
        return self.vote(self.hidden(rows).relu()).sum()  # type: ignore[no-any-return]


HEADS: dict[str, type[KNRMHead | PACRRHead | DRMMHead]] = {
    "knrm": KNRMHead,
    "pacrr": PACRRHead,
    "drmm": DRMMHead,
}
"""Name -> head."""


_NORM_EPS = 1e-9  # added to a vector's length before dividing, as in the authors' code


class PassagePiece(NamedTuple):
    """One piece of a pair, as the encoder reads it.

    Attributes:
        pair: Whose piece.
        order: Which of the pair's pieces, from 0.
        ids: (length,) token ids.
        positions: (length,) their positions.
        segments: (length,) their segments.
        passage: (start, end) of the piece's passage tokens in the row.
    """

    pair: int
    order: int
    ids: Tensor
    positions: Tensor
    segments: Tensor
    passage: tuple[int, int]


class CEDR(CheckpointModel):
    """A BERT and a head over its layers.

    Args:
        network: transformers' encoder without a head.
        tokenizer: The checkpoint's.
        policy: head, query_length, passage_length, max_length, row_length, segments: all JSON values.
        config: The checkpoint's config.json as read.

    Attributes:
        encoder_ranker: As :class:`~rankhouse.models.contract.HeadedModel` has it.
    """

    objective: Objective = "contrasts"
    encoder_ranker = ""
    scale = "score"

    def __init__(
        self, network: nn.Module, tokenizer: Tokenizer, policy: Mapping[str, Any], config: Mapping[str, Any]
    ) -> None:
        super().__init__(network, tokenizer, policy, config)
        self.family = f"cedr_{policy['head']}"
        own: Any = network.config
        self.head = HEADS[policy["head"]](own.num_hidden_layers + 1, own.hidden_size, policy["query_length"])
        self._layout = pair_layout(self._tokenizer, policy["segments"])
        self._first_position = first_position(own)
        self._room = policy["row_length"] - policy["query_length"] - self._layout.fixed
        if self._room < 1:
            most = policy["row_length"] - self._layout.fixed - 1
            raise WrongUse(
                f"query_length={policy['query_length']}: the network reads {policy['row_length']} tokens at "
                f"once, which leaves none for the passage; give {most} or less"
            )
        self._texts = TextIds(self._tokenizer, max(policy["query_length"], policy["passage_length"]))

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart."""
        tokenizer, config = read_assets(assets)
        return cls(network_of(config, "AutoModel"), tokenizer, policy, config)

    def encode(self, pairs: Sequence[Pair]) -> TwoSided:
        """Turn the text of n pairs into ids; what does not fit is cut off at the end."""
        query, passage = self.policy["query_length"], self.policy["passage_length"]
        asked = self._texts(pair.query.text for pair in pairs)
        read = self._texts(pair.passage.text for pair in pairs)
        queries = Ragged.of([one.kept[:query] for one in asked])
        passages = Ragged.of([one.kept[:passage] for one in read])
        query_lost = torch.tensor([one.total for one in asked], dtype=torch.int64) - queries.lengths
        lost = query_lost + torch.tensor([one.total for one in read], dtype=torch.int64) - passages.lengths
        return TwoSided(queries, passages, lost, query_lost=query_lost)

    def forward(self, batch: TwoSided) -> Tensor:
        """Score n pairs: (n,), with gradients where they are on.

        Rows of about one length go through the network together, since padding costs as much as text. On CUDA
        a batch stays whole: there, many small calls cost more.
        """
        device = next(self.head.parameters()).device
        rows = sorted(self._rows(batch), key=lambda row: len(row.ids))
        size = rows_together(device, len(rows))
        groups = (rows[start : start + size] for start in range(0, len(rows), size))
        with words_once(self.network, torch.cat([row.ids for row in rows])):
            states = [state for group in groups for state in _states(self.network, group, device)]
        return self._scores(batch, rows, states, self.head)

    def loss(self, batch: TwoSided, labels: Tensor) -> Tensor:
        """Return the authors' loss of contrasts (g, s): 1 minus the relevant pair's softmax in its group."""
        return (1 - self(batch).view(labels.shape).softmax(1)[:, 0]).mean()  # type: ignore[no-any-return]

    def scorer(self, compute: Compute) -> Callable[[TwoSided], Tensor]:
        """Return the packed forward pass, in which padding costs nothing; the head in fp32."""
        encoder = cast(PostNormEncoder, encoder_of(self.network, compute, first_only=False))
        head = deepcopy(self.head).float().to(compute.device).eval()

        def score(batch: TwoSided) -> Tensor:
            rows = list(self._rows(batch))
            lengths = torch.tensor([len(row.ids) for row in rows])
            ids, places, kinds = (
                torch.cat([getattr(row, name) for row in rows]) for name in ("ids", "positions", "segments")
            )
            packed = Packed(Ragged(ids, lengths), torch.zeros(len(rows), dtype=torch.int64), kinds)
            places = (places - self._first_position).to(compute.device)
            states = encoder.states(packed.to(compute.device), places)
            return self._scores(batch, rows, torch.split(states, lengths.tolist(), dim=1), head)

        return score

    def characters_read(self, pair: Pair) -> int | None:
        """Return how many characters of the passage are read; None: all of them."""
        spans, most = self._texts.spans(pair.passage.text), self.policy["passage_length"]
        return spans[most - 1][1] if len(spans) > most else None

    def forget(self) -> None:
        """Drop the ids of texts that were tokenised before."""
        self._texts.forget()

    def _rows(self, batch: TwoSided) -> Iterator[PassagePiece]:
        """Cut each pair's passage into pieces of equal length (the last may be shorter), behind the query."""
        layout, slots = self._layout, self.policy["query_length"]
        head, middle, tail = (torch.tensor(part) for part in (layout.head, layout.middle, layout.tail))
        kinds = torch.tensor(layout.segments or (0,) * 5)
        queries, passages = _parts(batch.query), _parts(batch.passage)
        for pair, (query, passage) in enumerate(zip(queries, passages, strict=True)):
            count = max(1, math.ceil(len(passage) / self._room))
            pieces = torch.split(passage, max(1, math.ceil(len(passage) / count)))
            for order, piece in enumerate(pieces):
                parts = [head, query, middle, piece, tail]
                sizes = torch.tensor([len(part) for part in parts])
                ids = torch.cat(parts)
                places = torch.arange(len(ids)) + self._first_position
                start = len(head) + len(query) + len(middle)
                places[len(head) + len(query) :] += slots - len(query)
                yield PassagePiece(
                    pair,
                    order,
                    ids,
                    places,
                    segments=kinds.repeat_interleave(sizes),
                    passage=(start, start + len(piece)),
                )

    def _scores(
        self, batch: TwoSided, rows: Sequence[PassagePiece], states: Sequence[Tensor], head: nn.Module
    ) -> Tensor:
        """Score n pairs by the states (c, length, w) of their rows: (n,).

        In fp32 where autocast computes the network in bf16, too: there, cosines near 1 are .004 apart, four
        widths of the narrowest kernel.
        """
        scores = []
        begin = len(self._layout.head)
        pieces: list[list[tuple[PassagePiece, Tensor]]] = [[] for _ in range(len(batch.query))]
        for row, state in zip(rows, states, strict=True):
            pieces[row.pair].append((row, state))
        for some, q in zip(pieces, batch.query.lengths.tolist(), strict=True):
            own = sorted(some, key=lambda one: one[0].order)
            query = own[0][1][:, begin : begin + q]
            passage = torch.cat([state[:, slice(*row.passage)] for row, state in own], dim=1)
            first = torch.stack([state[-1, 0] for _, state in own]).mean(0)
            with torch.autocast(first.device.type, enabled=False):
                scores.append(head(cosines(query, passage), first))
        return torch.stack(scores)


def _parts(side: Ragged) -> Sequence[Tensor]:
    """Return each row's ids, in the processor's memory."""
    return torch.split(side.values.cpu(), side.lengths.tolist())


def cosines(query: Tensor, passage: Tensor) -> Tensor:
    """Return the match matrices of states query (c, q, w) and passage (c, p, w): (c, q, p)."""
    query, passage = (side / (side.norm(dim=2, keepdim=True) + _NORM_EPS) for side in (query, passage))
    return query @ passage.transpose(1, 2)


def _states(network: Any, rows: Sequence[PassagePiece], device: torch.device) -> Iterator[Tensor]:  # noqa: ANN401
    """Compute all layers' states of rows, padded to one length: (c, length, w) float32 of each."""
    lengths = torch.tensor([len(row.ids) for row in rows])

    def rectangle(name: str) -> Tensor:
        return Ragged(torch.cat([getattr(row, name) for row in rows]), lengths).pad().to(device)

    given = {"input_ids": rectangle("ids"), "position_ids": rectangle("positions")}
    if network.config.type_vocab_size > 1:
        given["token_type_ids"] = rectangle("segments")
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long().to(device)
    states = network(**given, attention_mask=mask, output_hidden_states=True).hidden_states
    for row, length in enumerate(lengths.tolist()):
        yield torch.stack([layer[row, :length] for layer in states]).float()
