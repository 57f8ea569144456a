"""TK's heads: from one match matrix to a score, by kernels over the whole passage or over windows of it.

Paper and deviations: tk.py. Shapes: n pairs, q query tokens, p passage tokens, k kernels, w windows.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from rankhouse.nn.layers.kernel_pooling import Kernels, log_counts, soft_counts, windowed_counts
from rankhouse.nn.layers.linear import query_sums, through

_FIRST_SPREAD = 0.014
_SCALE_START = 0.01


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
        """(n, q, p), (n, q), (n, p) -> (n,).

        Args:
            query_mask: (n, q), 1 for words and 0 for padding.
        """
        counts = soft_counts(match, passage_mask, self.kernels)
        return self.score(counts, query_mask, passage_mask.sum(1))

    def parts(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> dict[str, float]:
        """Split one pair's score, (1, q, p), into what each kernel gave on each path; they sum to the score.

        The merging weights are multiplied in, which the rows of the paper's figure 2 lack.

        Args:
            match: (1, q, p) cosines.
            query_mask: (1, q) bool.
            passage_mask: (1, p) bool.
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

    def windows(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the soft counts (n, q, w, k) and the scores (n, w) of the windows of each size."""
        all_counts = windowed_counts(match.tanh(), passage_mask, self.kernels, self.sizes)
        windows = []
        for i, (counts, size) in enumerate(zip(all_counts, self.sizes, strict=True)):
            starts = passage_mask[:, ::size] & query_mask.any(1, keepdim=True)  # (n, w): a window with a word
            logs = counts.clamp_min(1e-10).log() * query_mask[:, :, None, None]
            logits = through(cast(nn.Linear, self.kernel_weights[i]), query_sums(logs)).squeeze(2)  # (n, w)
            windows.append((counts, (logits * self.scales[i]).exp() * starts))
        return windows

    def by_size(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> Tensor:
        """Score each window size: (n, number of sizes)."""
        scores = []
        for i, (_, values) in enumerate(self.windows(match, query_mask, passage_mask)):
            most, layer = self.most[i], cast(nn.Linear, self.window_weights[i])
            filled = nn.functional.pad(values, (0, max(0, most - values.shape[1])))[:, :most]
            scores.append(through(layer, filled.sort(1, descending=True).values))
        return torch.cat(scores, dim=1)

    def forward(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> Tensor:
        """(n, q, p), (n, q), (n, p) -> (n,). Args: as in :meth:`KernelHead.forward`."""
        return through(self.merge, self.by_size(match, query_mask, passage_mask)).squeeze(1)

    def parts(self, match: Tensor, query_mask: Tensor, passage_mask: Tensor) -> dict[str, float]:
        """Split one pair's score into what each window size gave; they sum to the score.

        Args: as in :meth:`KernelHead.parts`.
        """
        shares = (self.by_size(match, query_mask, passage_mask)[0] * self.merge.weight[0]).tolist()
        return {f"windows of {size}": share for size, share in zip(self.sizes, shares, strict=True)}
