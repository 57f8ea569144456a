"""Search over the shards of an index, each held by actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rankhouse.cluster.messages import Setup
from rankhouse.cluster.replicas import PATIENCE, ReplicaFailed, Replicas
from rankhouse.cluster.session import ClusterOptions, ray_session
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.index.sharded.shard import IndexShard, Request, ShardFailed
from rankhouse.index.sharded.sharded_index import ShardedIndex

HURRIED: Final = 2.0
"""Seconds that a request waits for a dead shard where a partial result will do."""


@dataclass(frozen=True)
class ShardSetup:
    """How a shard is opened where it is held.

    Attributes:
        folder: Its index; under the same path on every machine.
    """

    folder: Path

    def open(self) -> HeldShard:
        """Open it."""
        return HeldShard(Index.open(self.folder))


class HeldShard:
    """A shard in an actor."""

    def __init__(self, index: Index) -> None:
        self._shard = IndexShard(index)

    @property
    def found(self) -> dict[str, str]:
        """The index's fingerprint."""
        return {"fingerprint": self._shard.index.fingerprint}

    def run(self, request: Request) -> Any:  # noqa: ANN401 - each request has its own kind of answer
        """Answer a request."""
        return self._shard.answer(request)


class ClusterShards:
    """The shards of an index on a cluster, each with its replicas."""

    def __init__(self, shards: Sequence[tuple[str, Replicas]], patience: float = PATIENCE) -> None:
        self.names = tuple(name for name, _ in shards)
        self._shards, self._patience = tuple(shards), patience

    def hurried(self) -> ClusterShards:
        """Return the same shards, for searches that do without one rather than wait for it."""
        return ClusterShards(self._shards, HURRIED)

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask several shards at the same time. Args: as in ``Shards.ask``."""
        replicas = {number: self._shards[number][1] for number in requests}
        waiting = {number: replicas[number].send(request) for number, request in requests.items()}
        answers = dict[int, Any]()
        try:
            for number, request in requests.items():
                try:
                    answers[number] = replicas[number].receive(request, waiting.pop(number), self._patience)
                except ReplicaFailed as failure:
                    raise ShardFailed(number, self.names[number], failure.reason) from failure
        finally:
            for number, sent in waiting.items():
                if sent is not None:
                    replicas[number].settle(sent)
        return answers


class SearchCluster:
    """What a cluster holds for one program, as long as that runs."""

    def __init__(self, ray: Any, replicas: int = 1) -> None:  # noqa: ANN401 - Ray's own types change
        self.ray, self.replicas = ray, replicas
        self._held: list[Replicas] = []

    def index(self, paths: Sequence[Path], *, partial: bool = False) -> ShardedIndex:
        """Have the shards of an index held, and return it to be searched.

        Args:
            paths: Index folders, shards made with ``--shard``, or folders of such; each under the same path
                on every machine of the cluster.
            partial: Leave out shards that cannot be opened.

        Raises:
            ShardFailed: A shard cannot be opened.
            BadIndex: The shards do not go together.
        """
        folders = [folder.absolute() for folder in index_folders(paths)]
        shards = ClusterShards([(str(folder), self.hold(ShardSetup(folder))) for folder in folders])
        return ShardedIndex.reach(shards, partial=partial)

    def hold(self, setup: Setup, gpus: int = 0) -> Replicas:
        """Have something held by as many actors as there are replicas."""
        self._held.append(Replicas(self.ray, setup, self.replicas, gpus))
        return self._held[-1]

    def close(self) -> None:
        """End all actors."""
        for replicas in self._held:
            replicas.close()


@contextmanager
def search_cluster(options: ClusterOptions, replicas: int = 1) -> Iterator[SearchCluster]:
    """Connect to a cluster and yield what can hold shards and rankers there, as long as the block runs.

    Raises:
        MissingExtra: Ray is not installed.
        RankhouseError: Nobody answers at the address.
    """
    with ray_session(options) as ray:
        cluster = SearchCluster(ray, replicas)
        try:
            yield cluster
        finally:
            cluster.close()
