"""Indexes of many parts, each part held by actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rankhouse.cluster.parted_actor import actor_class
from rankhouse.cluster.parted_replicas import PATIENCE, ReplicaFailed, Replicas
from rankhouse.cluster.ray_options import ClusterOptions
from rankhouse.cluster.ray_session import Capacity, ray_session
from rankhouse.index.index import Index
from rankhouse.index.parts.messages import Answer, Request
from rankhouse.index.parts.part import IndexPart, part_folders
from rankhouse.index.parts.parted_index import PartedIndex
from rankhouse.index.parts.transport import PartFailed
from rankhouse.systems.rankers import ComputeOptions

if TYPE_CHECKING:
    from rankhouse.cluster.parted_rankers import ReplicaWorker
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.serve.engine.worker import ModelWorker

HURRIED: Final = 2.0
"""Seconds that a request waits for a dead part where a partial result will do."""


@dataclass(frozen=True)
class PartSetup:
    """How a part is opened where it is held.

    Attributes:
        folder: Its index; under the same path on every machine.
    """

    folder: Path

    def open(self) -> HeldPart:
        """Open it."""
        return HeldPart(Index.open(self.folder))


class HeldPart:
    """A part in an actor."""

    def __init__(self, index: Index) -> None:
        self._part = IndexPart(index)

    def mark(self) -> str:
        """Return the index's fingerprint."""
        return self._part.index.fingerprint

    def answer(self, request: Request) -> Answer:
        """Answer a request."""
        return self._part.answer(request)


class ClusterParts:
    """The parts of an index on a cluster, each with its replicas."""

    def __init__(self, parts: Sequence[tuple[str, Replicas]], patience: float = PATIENCE) -> None:
        self.names = tuple(name for name, _ in parts)
        self._parts, self._patience = tuple(parts), patience

    def hurried(self) -> ClusterParts:
        """Return the same parts for whoever would rather go without one than wait for it."""
        return ClusterParts(self._parts, HURRIED)

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask several parts at the same time. Args: as in ``Parts.ask``."""
        replicas = {number: self._parts[number][1] for number in requests}
        waiting = {number: replicas[number].send(request) for number, request in requests.items()}
        answers = dict[int, Any]()
        try:
            for number, request in requests.items():
                try:
                    answers[number] = replicas[number].receive(request, waiting.pop(number), self._patience)
                except ReplicaFailed as failure:
                    raise PartFailed(number, self.names[number], failure.reason) from failure
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

    def parts(self, paths: Sequence[Path]) -> ClusterParts:
        """Have the parts of an index held.

        Args:
            paths: Index folders, parts made with ``--shard``, or folders of such; each under the same path
                on every machine of the cluster.
        """
        actors = actor_class(self.ray)
        folders = [folder.absolute() for folder in part_folders(paths)]
        return ClusterParts([(str(folder), self.hold(actors, PartSetup(folder))) for folder in folders])

    def index(self, paths: Sequence[Path], *, partial: bool = False) -> PartedIndex:
        """Have an index held, and return it to be searched.

        Args:
            partial: Leave out parts that cannot be opened.

        Raises:
            PartFailed: A part cannot be opened.
            BadIndex: The parts do not go together.
        """
        return PartedIndex.reach(self.parts(paths), partial=partial)

    def ranker(
        self, spec: str, ranker: NeuralRanker, thread: ModelWorker, room: tuple[int, int], capacity: int = 0
    ) -> ReplicaWorker:
        """Have a ranker held, and return what spreads its work.

        Args:
            spec: What it was opened from; under the same path on every machine.
            ranker: It, as opened here: replicas are the same, in its precision and on its kind of device.
            room: Threads of a replica, 0 for its share of the cluster; how many rankers have such a share.
            capacity: Tokens that may wait for it; 0 for the usual bound.
        """
        from rankhouse.cluster.parted_rankers import RankerSetup, ReplicaWorker

        precision, device, _ = ranker.compute
        threads, rankers = room
        shared = ClusterOptions("", self.replicas * max(1, rankers), threads)
        share = Capacity(self.ray, shared, device.type)
        compute = ComputeOptions(precision, device.type, share.cpus)
        setup = RankerSetup(thread.name, spec, compute, ranker.fingerprint, str(Path.cwd()))
        replicas = self.hold(actor_class(self.ray, share.gpus), setup)
        return ReplicaWorker(thread, replicas, self.replicas, capacity)

    def hold(self, actors: Any, setup: Any) -> Replicas:  # noqa: ANN401 - Ray's own types change
        """Have something held by as many actors as there are replicas."""
        self._held.append(Replicas(self.ray, actors, setup, self.replicas))
        return self._held[-1]

    def close(self) -> None:
        """End all actors."""
        for replicas in self._held:
            replicas.close()


@contextmanager
def search_cluster(options: ClusterOptions, replicas: int = 1) -> Iterator[SearchCluster]:
    """Connect to a cluster and yield what can hold parts and rankers there, as long as the block runs.

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
