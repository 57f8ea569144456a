"""What a Ray cluster holds for a service that was started with one: the parts of its indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.jobs.parts import refuse_incomplete
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.search.view import IndexView

if TYPE_CHECKING:
    from rankhouse.cluster.parted_cluster import SearchCluster
    from rankhouse.cluster.parted_rankers import ReplicaWorker
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.serve.engine.worker import ModelWorker


class ServiceCluster:
    """What a cluster holds for a service."""

    def __init__(self, cluster: SearchCluster, *, partial: bool) -> None:
        self._cluster, self._partial = cluster, partial

    def view(self, name: str, path: Path) -> IndexView:
        """Return an index that the cluster holds.

        Args:
            path: An index, or a folder of parts; the same on every machine.

        Raises:
            PartFailed: A part cannot be opened.
        """
        if not self._partial:
            refuse_incomplete([path])
        index = self._cluster.index([path], partial=self._partial)
        return IndexView(name, index, partial=self._partial)

    def spreading(
        self, spec: str, options: ServeOptions
    ) -> Callable[[NeuralRanker, ModelWorker], ReplicaWorker]:
        """Return what has a ranker held by the cluster, and spreads its work."""

        def spread(ranker: NeuralRanker, thread: ModelWorker) -> ReplicaWorker:
            capacity, threads = options.limits.queue_tokens, options.compute.threads
            return self._cluster.ranker(spec, ranker, thread, (threads, len(options.rankers)), capacity)

        return spread


@contextmanager
def service_cluster(options: ServeOptions) -> Iterator[ServiceCluster | None]:
    """Connect to the cluster that a service is to work with, if any, as long as the block runs.

    Raises:
        WrongUse: There is no such address.
        MissingExtra: Ray is not installed.
        RankhouseError: Nobody answers at the address.
    """
    if not options.cluster:
        yield None
        return
    from rankhouse.cluster.parted_cluster import search_cluster
    from rankhouse.cluster.ray_options import ClusterOptions, read_address

    with search_cluster(ClusterOptions(read_address(options.cluster)), options.replicas) as cluster:
        yield ServiceCluster(cluster, partial=options.partial)
