"""doc2query: a sequence-to-sequence model writes questions that a document answers.

Papers: Nogueira, Yang, Lin, Cho, "Document Expansion by Query Prediction", 2019; Nogueira, Lin, "From
doc2query to docTTTTTquery", 2019: a T5 reads the document, each token is drawn from the 10 likeliest ones.
Deviation: one document is read at a time, and its draws depend on the seed and its id alone, so that no
question depends on the documents beside it. Any T5 or mT5 that was trained to write questions will do.
Shapes: m questions of a document, w width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.core.arguments import check_least
from rankhouse.core.nouns import Document
from rankhouse.core.sampling import short_lot
from rankhouse.models.monot5 import MAX_LENGTH, T5Checkpoint, open_t5
from rankhouse.models.text_ids import TextIds
from rankhouse.nn.machine import Compute, choose


class Doc2Query:
    """A T5 that asks."""

    def __init__(
        self,
        checkpoint: T5Checkpoint,
        count: int = 3,
        top: int = 10,
        longest: int = 64,
        max_length: int = MAX_LENGTH,
        prompt: str = "",
        compute: Compute | None = None,
    ) -> None:
        self.count, self.top, self.longest, self.max_length = count, top, longest, max_length
        check_least(self, 1, "count", "top", "longest", "max_length")
        self._checkpoint, self._prompt = checkpoint, prompt
        self._compute = compute or choose("fp32")
        self._network: Any = checkpoint.network.to(self._compute.device).eval()
        self._texts = TextIds(checkpoint.tokenizer, max_length)

    def __call__(self, document: Document, seed: int = 0) -> list[str]:
        """Write questions: at most ``count`` that differ."""
        draws = torch.Generator().manual_seed(short_lot(seed, "doc2query", document.id) >> 1)
        with self._compute.active():
            ids = self._sample(self._encode(document), draws).tolist()
        ends = [row.index(self._checkpoint.end) if self._checkpoint.end in row else len(row) for row in ids]
        decode = self._checkpoint.tokenizer.decode
        texts = [decode(row[:end]).strip() for row, end in zip(ids, ends, strict=True)]
        return [text for text in dict.fromkeys(texts) if text]

    def _encode(self, document: Document) -> Tensor:
        """Return the encoder's states of a document, once a question: (m, tokens, w)."""
        ids = self._texts([f"{self._prompt}{document.full_text}"])[0].kept[: self.max_length - 1]
        tokens = torch.tensor([[*ids.tolist(), self._checkpoint.end]], device=self._compute.device)
        states: Tensor = self._network.encoder(input_ids=tokens).last_hidden_state
        return states.expand(self.count, -1, -1)

    def _sample(self, encoded: Tensor, draws: torch.Generator) -> Tensor:
        """Draw m questions token by token, until all have ended: (m, at most ``longest``)."""
        token = torch.full((self.count, 1), self._checkpoint.start, device=encoded.device)
        said, past, ended = list[Tensor](), None, torch.zeros(self.count, dtype=torch.bool)
        while len(said) < self.longest and not ended.all():
            step = self._network.decoder(
                input_ids=token, encoder_hidden_states=encoded, past_key_values=past, use_cache=True
            )
            past, states = step.past_key_values, step.last_hidden_state[:, -1]
            if self._checkpoint.scaled:
                states = states * states.shape[-1] ** -0.5
            logits = F.linear(states, self._network.lm_head.weight).float().cpu()
            best = logits.topk(min(self.top, logits.shape[1]))
            chosen = best.indices.gather(1, torch.multinomial(best.values.softmax(1), 1, generator=draws))
            ended |= chosen[:, 0] == self._checkpoint.end
            said.append(chosen)
            token = chosen.to(encoded.device)
        return torch.cat(said, 1)


def open_doc2query(
    path: str,
    count: int = 3,
    top: int = 10,
    longest: int = 64,
    max_length: int = MAX_LENGTH,
    prompt: str = "",
    allow_pickle: bool = False,
) -> Doc2Query:
    """Open a published checkpoint: ``doc2query("castorini/doc2query-t5-base-msmarco", count=5)``.

    Raises BadModel: not a T5 or mT5 checkpoint, or damaged, or without tokenizer; WrongUse: a number below 1.
    """
    checkpoint = open_t5(path, "doc2query", allow_pickle=allow_pickle)
    return Doc2Query(checkpoint, count, top, longest, max_length=max_length, prompt=prompt)
