"""Replicas: actors that all hold the same; a request whose replica dies goes to another.

An actor that died is replaced in the background. Callers notice nothing as long as one lives, and wait while
the only one comes back.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from rankhouse.cluster.actors import Fault, Opener, actor_class, received, start_actor
from rankhouse.core.errors import RankhouseError

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
