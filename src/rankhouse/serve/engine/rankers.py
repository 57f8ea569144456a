"""Rankers that are served: opened, and by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import torch

from rankhouse.core import notation
from rankhouse.models.biencoder import BiEncoder
from rankhouse.models.contract import TokenModel
from rankhouse.models.ranker import NeuralRanker
from rankhouse.ranking.pool import POOLS
from rankhouse.serve.engine.contract import Worker
from rankhouse.serve.engine.served import ServedRanker
from rankhouse.serve.engine.worker import ModelWorker
from rankhouse.systems.rankers import ComputeOptions, open_ranker, use_of
from rankhouse.text.split import SPLITTERS

LONG_SPLIT: Final = "sentences(10, 5)"
"""How long documents are cut for a model with a limit of tokens, where nobody says otherwise."""


class Rankers(Mapping[str, ServedRanker]):
    """The rankers of a service by name, the first of them the default."""

    def __init__(self, rankers: Iterable[ServedRanker] = ()) -> None:
        self._rankers = {ranker.name: ranker for ranker in rankers}

    def __getitem__(self, name: str) -> ServedRanker:
        return self._rankers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._rankers))

    def __len__(self) -> int:
        return len(self._rankers)

    def add(self, ranker: ServedRanker) -> None:
        """Serve one more; one of that name is replaced and closed."""
        before = self._rankers.get(ranker.name)
        self._rankers[ranker.name] = ranker
        if before is not None and before is not ranker:
            before.close()

    def close(self) -> None:
        """End the threads of all."""
        for ranker in self._rankers.values():
            ranker.close()


def open_served(
    name: str,
    spec: str,
    compute: ComputeOptions,
    *,
    split: str = "",
    pool: str = "",
    capacity: int = 0,
    spread: Callable[[NeuralRanker, ModelWorker], Worker] | None = None,
) -> ServedRanker:
    """Open a ranker to be served.

    Args:
        split: How documents are cut, in notation; "" as its bundle says, else windows of sentences for models
            with a limit of tokens, whole for models of words.
        pool: How passages' scores become a document's; "" as its bundle says, else max.
        capacity: Tokens of work that may wait for it; 0 for the usual bound.
        spread: Makes of the ranker and its thread what spreads work over replicas; None for the thread alone.

    Raises:
        RankhouseError: It cannot be opened, or the split or pool is not known.
    """
    threads = compute.threads or torch.get_num_threads()
    ranker = open_ranker(spec, ComputeOptions(compute.precision, compute.device, threads))
    use = use_of(spec)
    by_tokens = isinstance(ranker.model, TokenModel | BiEncoder)
    cut = split or use.get("split") or (LONG_SPLIT if by_tokens else "whole")
    thread = ModelWorker(name, capacity)
    return ServedRanker(
        name,
        spec,
        ranker,
        spread(ranker, thread) if spread else thread,
        split=notation.make(cut, SPLITTERS, "splitter"),
        pool=notation.make(pool or use.get("pool") or "max", POOLS, "pool"),
    )
