"""Search over the shards of an index, each held by actors of a Ray cluster that all hold the same.

A request whose replica dies goes to another; an actor that died is replaced in the background. Callers notice
nothing as long as one lives, and wait while the only one comes back.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rankhouse.cluster.actors import Fault, Opener, actor_class, received, start_actor
from rankhouse.cluster.session import ClusterOptions, full_store, ray_session
from rankhouse.core.errors import RankhouseError
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.index.sharded.shard import IndexShard, Request, ShardFailed
from rankhouse.index.sharded.sharded_index import ShardedIndex

AT_ONCE: Final = 16
"""Requests that a replica works on at a time; what is more waits in its queue."""
PATIENCE: Final = 60.0
"""Seconds that a request waits for a replica to come back, and for its answer."""
_OPENING: Final = 300.0
_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds until what did not open is tried again
_TRIES: Final = 3
_LAST: Final = 10.0
"""Seconds that threads which wait for an actor have to notice that it was ended."""


class ReplicaFailed(RankhouseError):
    """No replica answers."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class _Replica:
    """One actor; None while another is opened in its place."""

    actor: Any = None
    load: int = 0
    fault: str = ""


class Replicas:
    """Several actors that hold the same.

    Each takes so many GPUs. Processors are not set aside: shards of an index need none for long, and rankers
    are given their number of threads.
    """

    def __init__(self, ray: Any, opener: Opener, count: int, gpus: int = 0) -> None:  # noqa: ANN401
        self._ray, self._actors, self._opener = ray, actor_class(ray, AT_ONCE), opener
        self._resources = {"num_cpus": 0, "num_gpus": gpus}
        self._changed = threading.Condition()
        self._closed = False
        self._found: dict[str, str] | None = None
        self._asking = 0  # threads that wait for an answer
        self._opening = dict[threading.Thread, Any]()  # actors that are opened, by the thread that waits
        self._replicas = [_Replica() for _ in range(count)]
        for replica in self._replicas:
            self._replace(replica)

    def ask(self, request: Any, patience: float = PATIENCE) -> Any:  # noqa: ANN401 - each kind has its own
        """Return the answer to a request, which is asked again where its replica dies.

        Raises ReplicaFailed where no replica answers, RankhouseError where one refuses the request.
        """
        with self._changed:
            self._asking += 1
        try:
            for _ in range(_TRIES):
                replica, actor = self._chosen(patience)
                try:
                    return received(self._ray.get(actor.run.remote(request), timeout=PATIENCE))
                except self._ray.exceptions.GetTimeoutError:
                    self._lost(replica, actor)
                    raise ReplicaFailed(f"no answer in {PATIENCE:.0f} s") from None
                except Exception as error:
                    if reason := full_store(error):
                        raise ReplicaFailed(reason) from error
                    if not self._is_death(error):
                        raise
                    self._lost(replica, actor)
                finally:
                    with self._changed:
                        replica.load = max(0, replica.load - 1)
            raise ReplicaFailed(f"{_TRIES} replicas died over the same request")
        finally:
            with self._changed:
                self._asking -= 1
                self._changed.notify_all()

    def _chosen(self, patience: float) -> tuple[_Replica, Any]:
        """Wait for a ready replica, the first for as long as it needs to open; take that of least load."""
        until = time.monotonic() + (_OPENING if self._found is None else patience)
        with self._changed:
            while not (ready := [replica for replica in self._replicas if replica.actor is not None]):
                if self._closed:
                    raise ReplicaFailed("the program is ending")
                faults = [replica.fault for replica in self._replicas]
                if all(faults):
                    raise ReplicaFailed(faults[0])
                left = until - time.monotonic()
                if left <= 0:
                    raise ReplicaFailed("it has died and is not back yet")
                self._changed.wait(min(left, 1.0))
            replica = min(ready, key=lambda one: one.load)
            replica.load += 1
            return replica, replica.actor

    def _is_death(self, error: BaseException) -> bool:
        """Return whether an error means that an actor, or what held its answer, is gone."""
        exceptions = self._ray.exceptions
        others = (exceptions.RayTaskError, exceptions.RaySystemError)
        return isinstance(error, exceptions.RayError) and not isinstance(error, others)

    def _lost(self, replica: _Replica, actor: Any) -> None:  # noqa: ANN401
        """Replace the actor that did not answer a request, unless that is under way."""
        with self._changed:
            if replica.actor is not actor or self._closed:
                return
            replica.actor, replica.load, replica.fault = None, 0, ""
        self._dismiss(actor)
        self._replace(replica)

    def close(self) -> None:
        """End all actors, and the threads that wait for one: only then may Ray be shut down."""
        with self._changed:
            self._closed = True
            actors = [replica.actor for replica in self._replicas] + list(self._opening.values())
            for replica in self._replicas:
                replica.actor = None
            self._changed.notify_all()
        for actor in actors:
            if actor is not None:
                self._dismiss(actor)
        with self._changed:
            self._changed.wait_for(lambda: not (self._asking or self._opening), _LAST)

    def _replace(self, replica: _Replica) -> None:
        thread = threading.Thread(target=self._open, args=(replica,), name="open-replica", daemon=True)
        with self._changed:
            self._opening[thread] = None
        thread.start()

    def _open(self, replica: _Replica) -> None:
        """Start actors until one has opened what it is to hold."""
        tries = 0
        try:
            while not self._closed and not self._is_opened(replica, tries):
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, _PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1
        finally:
            with self._changed:
                del self._opening[threading.current_thread()]
                self._changed.notify_all()

    def _is_opened(self, replica: _Replica, tries: int) -> bool:
        """Start an actor; return whether it has opened what it is to hold."""
        actor, found, fault, lasts = self._opened()
        with self._changed:
            if not fault and self._found not in (None, found):
                fault, lasts = "it was changed while it was in use; start again", True
            is_opened = not fault and not self._closed
            if is_opened:
                self._found, replica.actor, replica.fault = found, actor, ""
            elif lasts or tries >= _TRIES:  # an actor may have been put on a node that is just dying
                replica.fault = fault
            self._changed.notify_all()
        if actor is not None and not is_opened:
            self._dismiss(actor)
        return is_opened

    def _opened(self) -> tuple[Any, Any, str, bool]:
        """Start an actor: it, what it found, what went wrong, and whether that will last."""
        actor = None
        try:
            actor, opened = start_actor(self._actors, self._opener, self._resources)
            with self._changed:
                self._opening[threading.current_thread()] = actor
            found = self._ray.get(opened, timeout=_OPENING)
        except self._ray.exceptions.GetTimeoutError:
            return actor, None, f"it did not open within {_OPENING:.0f} s; has the cluster room for it?", True
        except Exception as error:  # noqa: BLE001 - whatever Ray raises when a cluster goes
            return actor, None, f"{type(error).__name__}: {str(error).strip().splitlines()[0]:.200}", False
        fault = found.message if isinstance(found, Fault) else found if isinstance(found, str) else ""
        return actor, found, fault, True

    def _dismiss(self, actor: Any) -> None:  # noqa: ANN401
        try:
            self._ray.kill(actor)
        except Exception:  # noqa: BLE001 - it is gone already
            return


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
    """Shards of indexes in actors, as long as the program runs."""

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
