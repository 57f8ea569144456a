"""A family: each word has a weight, and a passage scores the mean weight of the query words that it has."""

from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F

from rankhouse.models.word_models import WordDesign, WordModel


@dataclass(frozen=True)
class WordWeightsDesign(WordDesign):
    """Settings of ``word_weights(...)``: how texts are read."""


class WordWeights(WordModel):
    """Shapes: n pairs, q query words, p passage words; word 0 pads, and equals no word of a passage."""

    family = "word_weights"
    designed_by = WordWeightsDesign

    def __init__(self, design, reader, table):
        super().__init__(design, reader, table.shape[1])
        self.weights = nn.Embedding(len(table), 1, padding_idx=0)

    def forward(self, batch):
        """Score n pairs: (n,)."""
        query, passage = batch.query.pad(at_least=1), batch.passage.pad(at_least=1)
        mask = batch.query.mask(at_least=1)
        is_there = (query[:, :, None] == passage[:, None, :]).any(2) & mask
        weights = F.softplus(self.weights(query))[:, :, 0]
        return (weights * is_there).sum(1) / mask.sum(1).clamp(min=1)
