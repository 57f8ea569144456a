"""Search over the shards of an index, each held by actors of a Ray cluster."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankhouse.cluster.actors import Opener
from rankhouse.cluster.replicas import PATIENCE, ReplicaFailed, Replicas
from rankhouse.cluster.session import ClusterOptions, ray_session
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.index.sharded.shard import IndexShard, Request, ShardFailed
from rankhouse.index.sharded.sharded_index import ShardedIndex


class HeldShard:
    """A shard in an actor; its folder has the same path on every machine."""

    def __init__(self, folder: Path) -> None:
        self._shard = IndexShard(Index.open(folder))

    @property
    def found(self) -> dict[str, str]:
        """The index's fingerprint."""
        return {"fingerprint": self._shard.index.fingerprint}

    def run(self, request: Request) -> Any:  # noqa: ANN401 - each request has its own kind of answer
        """Answer a request."""
        return request(self._shard)


class ClusterShards:
    """The shards of an index on a cluster, each with its replicas."""

    def __init__(self, shards: Sequence[tuple[str, Replicas]], patience: float = PATIENCE) -> None:
        self.names = tuple(name for name, _ in shards)
        self._shards, self._patience = tuple(shards), patience

    def hurried(self) -> ClusterShards:
        """Return the same shards, for searches that wait 2 seconds for a dead one and then do without it."""
        return ClusterShards(self._shards, 2.0)

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask several shards at the same time. Args: as in ``Shards.ask``."""
        if len(requests) < 2:
            return {number: self._asked(number, request) for number, request in requests.items()}
        threads = ThreadPoolExecutor(len(requests))
        try:
            return dict(zip(requests, threads.map(self._asked, requests, requests.values()), strict=True))
        finally:
            threads.shutdown(wait=False)  # a signal, or a shard that failed, waits for no other

    def _asked(self, number: int, request: Request) -> Any:  # noqa: ANN401 - each request has its own kind
        try:
            return self._shards[number][1].ask(request, self._patience)
        except ReplicaFailed as failure:
            raise ShardFailed(number, self.names[number], failure.reason) from failure


class SearchCluster:
    """What a cluster holds for one program, as long as that runs."""

    def __init__(self, ray: Any, replicas: int = 1) -> None:  # noqa: ANN401 - Ray's own types change
        self.ray, self.replicas = ray, replicas
        self._held: list[Replicas] = []

    def index(self, paths: Sequence[Path], *, partial: bool = False) -> ShardedIndex:
        """Have the shards of an index held, and return it to be searched.

        Paths are indexes, shards made with ``--shard``, or folders of such, the same on every machine. A
        shard that cannot be opened is left out where a ``partial`` index will do, else raises ShardFailed.
        """
        folders = [folder.absolute() for folder in index_folders(paths)]
        shards = ClusterShards(
            [(str(folder), self.hold(functools.partial(HeldShard, folder))) for folder in folders]
        )
        return ShardedIndex.reach(shards, partial=partial)

    def hold(self, opener: Opener, gpus: int = 0) -> Replicas:
        """Have something held by as many actors as there are replicas."""
        self._held.append(Replicas(self.ray, opener, self.replicas, gpus))
        return self._held[-1]

    def close(self) -> None:
        """End all actors."""
        for replicas in self._held:
            replicas.close()


@contextmanager
def search_cluster(options: ClusterOptions, replicas: int = 1) -> Iterator[SearchCluster]:
    """Connect to a cluster and yield what can hold shards and rankers there, as long as the block runs."""
    with ray_session(options) as ray:
        cluster = SearchCluster(ray, replicas)
        try:
            yield cluster
        finally:
            cluster.close()
