"""What models that read queries and passages apart have in common: batches, and how texts become ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from rankhouse.core.nouns import Pair
from rankhouse.models.checkpoint import CheckpointModel
from rankhouse.models.pair_encoding import Layout, TextReader, text_layout
from rankhouse.models.text_ids import TextIds
from rankhouse.models.transformer_encoders import STATIC
from rankhouse.nn.layers.ragged import Packed


@dataclass(frozen=True)
class DualBatch:
    """A batch of n pairs; each distinct query stands in it once."""

    queries: Packed  # u distinct queries
    which: Tensor  # (n,) int64, the query of each pair
    passages: Packed  # n passages

    @classmethod
    def join(cls, parts: Sequence[DualBatch]) -> DualBatch:
        """Put the pairs of several batches into one, in this order."""
        starts = accumulate((len(p.queries) for p in parts[:-1]), initial=0)
        which = torch.cat([p.which + start for p, start in zip(parts, starts, strict=True)])
        return cls(Packed.join([p.queries for p in parts]), which, Packed.join([p.passages for p in parts]))

    def __len__(self) -> int:
        return len(self.which)

    @property
    def lengths(self) -> Tensor:
        """(n,) int64: tokens of each passage; a query is computed once a batch."""
        return self.passages.lengths

    @property
    def lost(self) -> Tensor:
        """(n,) int64: tokens of either side that did not fit."""
        return self.passages.lost + self.queries.lost[self.which]

    def take(self, rows: Tensor) -> DualBatch:
        """Return these rows, (m,) int64, in this order."""
        used, which = torch.unique(self.which[rows], return_inverse=True)
        return DualBatch(self.queries.take(used), which, self.passages.take(rows))

    def to(self, device: torch.device) -> DualBatch:
        """Move to a device."""
        return DualBatch(self.queries.to(device), self.which.to(device), self.passages.to(device))


def distinct(texts: Packed) -> tuple[Packed, Tensor]:
    """Return the distinct rows of n texts (m), and which of them each text is, (n,): encode them once."""
    places: dict[bytes, int] = {}
    kind = kinds(texts, places)
    if len(places) == len(texts):
        return texts, kind
    first = torch.full((len(places),), len(texts)).scatter_reduce_(0, kind, torch.arange(len(texts)), "amin")
    return texts.take(first.to(texts.lengths.device)), kind


def kinds(texts: Packed, places: dict[bytes, int]) -> Tensor:
    """Number n texts so that equal ones have one number, also across calls: (n,)."""
    rows = torch.split(texts.ids.values.cpu(), texts.lengths.tolist())
    return torch.tensor([places.setdefault(row.numpy().tobytes(), len(places)) for row in rows])


class DualEncoder(CheckpointModel):
    """A checkpoint that reads queries and passages apart (bi-encoders, sparse encoders, late interaction).

    Its policy has "max_length", "query_prompt" and "passage_prompt".

    Args:
        layout: What stands around a text; None: what the tokenizer puts there.
    """

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Tokenizer,
        policy: Mapping[str, Any],
        config: Mapping[str, Any],
        layout: Layout | None = None,
    ) -> None:
        super().__init__(network, tokenizer, policy, config)
        if layout is None:
            is_static = config["model_type"] == STATIC
            layout = Layout((), (), ()) if is_static else text_layout(self._tokenizer)
        kept = max(policy["max_length"], policy.get("query_length", 0))
        self._read = TextReader(TextIds(self._tokenizer, kept), layout, policy["max_length"])

    def encode(self, pairs: Sequence[Pair]) -> DualBatch:
        """Turn the text of n pairs into ids."""
        places: dict[str, int] = {}
        which = [places.setdefault(pair.query.text, len(places)) for pair in pairs]
        passages = self.encode_passages([pair.passage.text for pair in pairs])
        return DualBatch(self.encode_queries(list(places)), torch.tensor(which, dtype=torch.int64), passages)

    def encode_queries(self, texts: Sequence[str]) -> Packed:
        """Turn n queries into ids, prompt before them."""
        return self._read(self.policy["query_prompt"] + text for text in texts)

    def encode_passages(self, texts: Sequence[str]) -> Packed:
        """Turn n passages into ids, prompt before them."""
        return self._read(self.policy["passage_prompt"] + text for text in texts)

    @property
    def text_reader(self) -> TextReader:
        """What turns texts, prompt included, into ids."""
        return self._read

    def forget(self) -> None:
        """Drop the ids of texts that were tokenised before."""
        self._read.texts.forget()
