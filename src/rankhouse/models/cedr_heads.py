"""CEDR's three heads: what KNRM, PACRR and DRMM make of one pair's match matrices of all layers.

Paper: MacAvaney, Yates, Cohan, Goharian, "CEDR: Contextualized Embeddings for Document Ranking", SIGIR 2019,
sec. 3. Sizes, masks and constants are those of its authors' code; so are the rows of words that a query of
fewer than ``slots`` words does not have: they are zeros to PACRR's convolutions, and to DRMM a word without
any match, which votes as well.
Shapes: c layers, q query tokens, p passage tokens, w width, k kernels, b bins.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_CENTRES = (-0.9, -0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_WIDTHS = (0.1,) * 10 + (0.001,)
_BINS, _HIDDEN = 11, 5
_FILTERS, _BEST, _LONGEST_GRAM, _DENSE = 32, 2, 3, 32
_EDGE = 1.000001  # a cosine of 1 must reach the last bin in spite of rounding
_LEAST_SUM, _LEAST_COUNT = 1e-6, 1e-5  # added before logarithms


class KNRMHead(nn.Module):
    """Kernels over all layers' matrices, one line over them and [CLS]; centres and widths are learned.

    Args:
        layers: c.
        width: w.
        slots: Not used: no row stands for a missing query word.
    """

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
    """Convolutions over all layers' matrices; each query word's best matches and [CLS] go through a network.

    Args:
        layers: c.
        width: w.
        slots: Query words that the network has room for.
    """

    def __init__(self, layers: int, width: int, slots: int) -> None:
        super().__init__()
        self.slots = slots
        sizes = range(1, _LONGEST_GRAM + 1)
        self.squares = nn.ModuleList(nn.Conv2d(layers, _FILTERS, size) for size in sizes)
        rows = slots * _LONGEST_GRAM * _BEST
        self.network = nn.Sequential(
            nn.Linear(rows + width, _DENSE),
            nn.ReLU(),
            nn.Linear(_DENSE, _DENSE),
            nn.ReLU(),
            nn.Linear(_DENSE, 1),
        )

    def forward(self, match: Tensor, first: Tensor) -> Tensor:
        """Score one pair: (). Args: as in :meth:`KNRMHead.forward`."""
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

    Args:
        layers: c.
        width: w.
        slots: Query words that vote, those that are missing included.
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
        """Score one pair: (). Args: as in :meth:`KNRMHead.forward`."""
        words = self.histograms(match).permute(1, 2, 0).flatten(1)
        rows = torch.cat([words, first.expand(self.slots, -1)], dim=1)
        return self.vote(self.hidden(rows).relu()).sum()  # type: ignore[no-any-return]


HEADS: dict[str, type[KNRMHead | PACRRHead | DRMMHead]] = {
    "knrm": KNRMHead,
    "pacrr": PACRRHead,
    "drmm": DRMMHead,
}
"""Name -> head."""
