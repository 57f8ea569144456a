"""Late interaction: a vector for each token; each token of the query looks for its best match in the passage.

Papers: Khattab, Zaharia, "ColBERT", SIGIR 2020, eq. 1 and 2 (marks before either side, a query filled up with
masks to 32 tokens, no punctuation in passages, sum of maxima); Santhanam et al., "ColBERTv2", NAACL 2022.
Read are the forms of Stanford's code, of PyLate and of sentence-transformers 6.
Deviations: none; special tokens that a text spells are read as text.
Shapes: n texts or pairs, t tokens together, q tokens of a query, p of a passage, w width of the encoder, d
width of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from rankhouse.core.nouns import FloatArray, PassageRows, Storage
from rankhouse.models.biencoder import in_batch_loss
from rankhouse.models.checkpoint import encoder_class, network_of, read_assets
from rankhouse.models.contract import Objective
from rankhouse.models.dual_encoder import DualBatch, DualEncoder, distinct
from rankhouse.models.pair_encoding import Layout, TextReader, text_layout
from rankhouse.models.precomputing import check_storage, stored
from rankhouse.models.sentence_transformers import layers_of
from rankhouse.models.transformer_encoders import Finish, encoder_of
from rankhouse.nn.layers.linear import products, query_sums
from rankhouse.nn.layers.ragged import Packed, Ragged, within_budget
from rankhouse.nn.machine import Compute

_ENCODE_BUDGET = 8_192  # tokens that are encoded at once
_BLOCK = 3_072  # stored tokens that are compared at once, so that they stay in a core's cache


class LateInteraction(DualEncoder):
    """An encoder that ranks by the vectors of tokens.

    Args:
        policy: max_length, query_length (most tokens), query_filled (tokens that queries are filled up to; 0:
            they are not), filler (the id that does), attend (whether other tokens read it), markers (ids
            behind the first one, of queries and of passages), prompts, skipped (ids that do not count),
            skipped_sides, similarity ("maxsim" or "meanmaxsim"), normalised, dense: all JSON values.
    """

    family = "colbert"
    objective: Objective = "positives"
    scale = "similarity"
    temperature = 1.0

    def __init__(
        self,
        network: nn.Module,
        dense: nn.Sequential,
        tokenizer: Tokenizer,
        policy: Mapping[str, Any],
        config: Mapping[str, Any],
    ) -> None:
        layout = _behind(tokenizer, policy["markers"][1])
        super().__init__(network, tokenizer, policy, config, layout=layout)
        self.dense = dense
        layout = _behind(tokenizer, policy["markers"][0])
        self._ask = TextReader(self._read.texts, layout, policy["query_length"])

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart."""
        tokenizer, config = read_assets(assets)
        network = network_of(config, encoder_class(config))
        return cls(network, layers_of(policy["dense"]), tokenizer, policy, config=config)

    def encode_queries(self, texts: Sequence[str]) -> Packed:
        """Turn n queries into ids, prompt before them, filled up."""
        batch = self._ask(self.policy["query_prompt"] + text for text in texts)
        filler, least = self.policy["filler"], self.policy["query_filled"]
        if not least or not len(batch):
            return batch
        lengths = batch.lengths.clamp(min=least)
        wide = Ragged(
            batch.ids.pad(filler, at_least=least).flatten(), torch.full_like(lengths, int(lengths.max()))
        )
        return Packed(
            Ragged(wide.values[wide.positions() < lengths.repeat_interleave(wide.lengths)], lengths),
            batch.lost,
        )

    def token_vectors(self, batch: Packed, *, query: bool = False) -> TokenVectors:
        """Return the vectors of the tokens that count, with gradients where they are on."""
        net, states = cast(Any, self.network), []
        batch = batch.to(net.device)
        for some in (batch,) if torch.is_grad_enabled() else _one_by_one(batch):
            read = self._read_lengths(some) if query else some.lengths
            ids, mask = some.ids.pad(net.config.pad_token_id or 0), some.ids.mask()
            seen = (torch.arange(ids.shape[1], device=ids.device) < read[:, None]).long()
            states.append(net(input_ids=ids, attention_mask=seen).last_hidden_state[mask])
        return self._finished(torch.cat(states), batch, Finish(self.dense, self.policy["normalised"]), query)

    def forward(self, batch: DualBatch) -> Tensor:
        """Score a batch: (n,), higher is better, with gradients where they are on."""
        read, of = distinct(batch.passages)
        scores = self._all_scores(batch.queries, read)
        return scores[batch.which.to(scores.device), of.to(scores.device)]

    def loss(self, batch: DualBatch, labels: Tensor) -> Tensor:
        """Negative log likelihood of each group's first passage among all passages of the batch."""
        groups, size = labels.shape
        scores = self._all_scores(batch.queries, batch.passages)
        scores = scores[batch.which.view(groups, size)[:, 0].to(scores.device)]
        return in_batch_loss(scores, torch.arange(groups, device=scores.device) * size)

    def _all_scores(self, asked: Packed, read: Packed) -> Tensor:
        """Score every one of u queries for every one of n passages: (u, n)."""
        queries, passages = self.token_vectors(asked, query=True), self.token_vectors(read)
        best = torch.stack([(queries.values @ rows.T).amax(1) for rows in passages.rows()], 1)
        return torch.stack([self._joined(rows.T) for rows in torch.split(best, queries.counts.tolist())])

    def scorer(self, compute: Compute) -> Callable[[DualBatch], Tensor]:
        """Return the packed forward pass; queries with fillers that none reads go one by one."""
        read, ask = self._scorer_of(compute), self._scorer_of(compute, query=True)

        def score(batch: DualBatch) -> Tensor:
            passages, queries = read(batch.passages), ask(batch.queries)
            scores = torch.empty(len(batch), device=compute.device)
            for number, query in enumerate(queries.rows()):
                rows = (batch.which == number).nonzero()[:, 0].to(compute.device)
                own = passages.take(rows)
                scores[rows] = self._joined(best_matches(query, own.values, own.counts))
            return scores

        return score

    def _scorer_of(self, compute: Compute, *, query: bool = False) -> Callable[[Packed], TokenVectors]:
        """Return the quickest way from ids to the vectors of the tokens that count."""
        if query and self.policy["query_filled"] and not self.policy["attend"]:
            return partial(self.token_vectors, query=True)
        encoder = encoder_of(self.network, compute, first_only=False)
        finish = Finish(self.dense, self.policy["normalised"], compute)

        def vectors(batch: Packed) -> TokenVectors:
            batch = batch.to(compute.device)
            return self._finished(encoder.hidden(batch), batch, finish, query)

        return vectors

    def _kept(self, ids: Tensor, query: bool) -> Tensor:
        """Return which of a side's tokens count, (t,) bool."""
        if ("query" if query else "document") not in self.policy["skipped_sides"]:
            return torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        return ~torch.isin(ids, torch.tensor(self.policy["skipped"], dtype=ids.dtype, device=ids.device))

    @torch.inference_mode()
    def matches(self, query: str, passage: str, compute: Compute) -> TokenMatches:
        """Compare the tokens of a query with those of a passage, as a score does."""
        asked, read = self.encode_queries([query]), self.encode_passages([passage])
        return TokenMatches(
            products(
                self._scorer_of(compute, query=True)(asked).values, self._scorer_of(compute)(read).values
            ),
            self._kept(asked.ids.values, True),
            self._kept(read.ids.values, False),
            self.policy["similarity"] == "meanmaxsim",
        )

    @property
    def query_reader(self) -> TextReader:
        """Reader of queries, fillers apart."""
        return self._ask

    def _finished(self, states: Tensor, batch: Packed, finish: Finish, query: bool) -> TokenVectors:
        kept = self._kept(batch.ids.values, query)
        return TokenVectors(finish(states[kept]), _counted(kept, batch.lengths))

    def _read_lengths(self, batch: Packed) -> Tensor:
        """Return how many of each query's tokens all its tokens read: (n,)."""
        if not self.policy["query_filled"] or self.policy["attend"]:
            return batch.lengths
        return _counted(batch.ids.values != self.policy["filler"], batch.lengths)

    def _joined(self, best: Tensor) -> Tensor:
        """Join the best matches (n, q) of a query's tokens: (n,)."""
        total = query_sums(best)
        return total / max(best.shape[1], 1) if self.policy["similarity"] == "meanmaxsim" else total

    id_format = ""

    @torch.inference_mode()
    def store_passages(self, texts: Sequence[str], storage: Storage = "float16") -> PassageRows:
        """Encode n passages once, in fp32, for any query; WrongUse for an unknown storage."""
        check_storage(storage)
        batch = self.encode_passages(texts)
        rows: list[Tensor] = [torch.empty(0)] * len(batch)
        for chosen in within_budget(batch.lengths, _ENCODE_BUDGET):
            own = self._fp32(batch.take(chosen))
            for place, row in zip(chosen.tolist(), own.rows(), strict=True):
                rows[place] = row.cpu()
        offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        return PassageRows(*stored(torch.cat(rows), storage), offsets, batch.lost.numpy())

    @torch.inference_mode()
    def score_stored(self, query: str, rows: PassageRows) -> FloatArray:
        """Score stored passages for a query: (n,) float32."""
        asked = self._ask_fp32(self.encode_queries([query])).values.cpu()
        counts, ends = torch.from_numpy(rows.lengths), rows.offsets
        best = torch.empty(len(counts), len(asked))
        start = 0
        while start < len(counts):
            stop = max(start + 1, int(np.searchsorted(ends, ends[start] + _BLOCK, "right")) - 1)
            block = slice(int(ends[start]), int(ends[stop]))
            matches = products(torch.from_numpy(rows.values[block]).float(), asked)
            if len(rows.scales):
                matches *= torch.from_numpy(rows.scales[block])[:, None]
            best[start:stop] = torch.segment_reduce(matches, "max", lengths=counts[start:stop], axis=0)
            start = stop
        scores: FloatArray = self._joined(best).numpy()
        return scores

    @cached_property
    def _fp32(self) -> Callable[[Packed], TokenVectors]:
        return self._scorer_of(Compute(device=cast(Any, self.network).device))

    @cached_property
    def _ask_fp32(self) -> Callable[[Packed], TokenVectors]:
        return self._scorer_of(Compute(device=cast(Any, self.network).device), query=True)


class TokenVectors(NamedTuple):
    """The vectors of n texts' tokens."""

    values: Tensor  # (t, d), text after text
    counts: Tensor  # (n,) int64, how many each text has

    def rows(self) -> tuple[Tensor, ...]:
        """Return each text's own, (p, d)."""
        return torch.split(self.values, self.counts.tolist())

    def take(self, texts: Tensor) -> TokenVectors:
        """Return these texts', (m,) int64, in this order."""
        places = torch.arange(len(self.values), device=self.values.device)
        own = Ragged(places, self.counts).take(texts)
        return TokenVectors(self.values[own.values], own.lengths)


class TokenMatches(NamedTuple):
    """Match of the tokens of a query and of a passage."""

    values: Tensor  # (q, p)
    asked: Tensor  # which of all tokens of the query that were read count, q of them, bool
    read: Tensor  # the same of the passage's, p of them
    is_mean: bool  # whether the score is the mean of best matches, not their sum


def best_matches(query: Tensor, tokens: Tensor, counts: Tensor) -> Tensor:
    """Return each query token's best match in n passages: (q, d), (t, d), (n,) -> (n, q)."""
    return torch.segment_reduce(products(tokens, query), "max", lengths=counts, axis=0)


def _one_by_one(batch: Packed) -> Iterator[Packed]:
    return (batch.take(row) for row in torch.split(torch.arange(len(batch)), 1))


def _counted(chosen: Tensor, lengths: Tensor) -> Tensor:
    """Count the chosen among each row's tokens: (t,) bool, (n,) -> (n,)."""
    ends = torch.cat([lengths.new_zeros(1), chosen.long().cumsum(0)])
    stops = lengths.cumsum(0)
    return ends[stops] - ends[stops - lengths]


def _behind(tokenizer: Tokenizer, markers: Sequence[int]) -> Layout:
    """Return what stands around a text: the model's own tokens, a side's marker behind the first."""
    own = text_layout(tokenizer)
    return Layout((*own.head[:1], *markers, *own.head[1:]), (), own.tail)
