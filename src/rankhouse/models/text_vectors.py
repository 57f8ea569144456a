"""From token states to the vector of a text: pooling, linear layers, length 1.

Shapes: n texts, t tokens, w width of states, d width of vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.models.transformer_encoders import Encoder
from rankhouse.nn.layers.ragged import Packed


class Finish:
    """Linear layers and length 1, behind the pooling.

    Args:
        normalised: Whether vectors are given length 1.
    """

    def __init__(self, dense: nn.Module, normalised: bool) -> None:
        self._dense, self._normalised = dense, normalised

    def __call__(self, pooled: Tensor) -> Tensor:
        """(n, w) -> (n, d)."""
        vectors: Tensor = self._dense(pooled)
        return F.normalize(vectors, dim=-1) if self._normalised else vectors


class VectorScorer:
    """The quickest way from ids to vectors.

    Args:
        first: Whether the first token's state is the text's; else the mean of all.
    """

    def __init__(self, encoder: Encoder, finish: Finish, first: bool, device: torch.device) -> None:
        self._encoder, self._finish, self._first, self._device = encoder, finish, first, device

    def __call__(self, batch: Packed) -> Tensor:
        """Return the vectors of n texts: (n, d)."""
        batch = batch.to(self._device)
        return self._finish(
            self._encoder.first(batch) if self._first else _means(self._encoder.hidden(batch), batch.lengths)
        )

    def states(self, batch: Packed) -> Tensor:
        """Return the states of all tokens, end to end, of which vectors are means: (t, w)."""
        return self._encoder.hidden(batch.to(self._device))


def _means(states: Tensor, lengths: Tensor) -> Tensor:
    """Average the states (t, w) of each of n rows of these lengths: (n, w)."""
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=states.device), lengths)
    return states.new_zeros(len(lengths), states.shape[1]).index_add_(0, rows, states) / lengths[:, None]
