"""What Ray starts: a process that opens something once and then answers requests."""

from __future__ import annotations

import pickle
from typing import Any

from rankhouse import __version__
from rankhouse.cluster.messages import Setup


def actor_class(ray: Any, at_once: int = 1) -> Any:  # noqa: ANN401 - Ray's own types change
    """Return the class of actors.

    Defined inside a function, it is sent to the cluster as it is, not as a name to be imported there: so it
    starts where another rankhouse or none is installed, and says so.

    Args:
        at_once: Requests that an actor works on at a time; what is more waits in its queue.
    """

    class RankhouseWorker:
        def __init__(self) -> None:
            self.held: Any = None
            self.fault: Any = None

        def open(self, version: str, threads: int, setup: bytes) -> Any:  # noqa: ANN401
            self.fault = self.opened(version, threads, setup)
            return self.fault or self.held.found

        def opened(self, version: str, threads: int, setup: bytes) -> Any:  # noqa: ANN401
            import os
            import pickle
            import platform

            if threads:
                os.environ["OMP_NUM_THREADS"] = str(threads)
            try:
                import rankhouse
            except ImportError:
                return f"{platform.node()}: rankhouse is not installed for the Python that Ray runs there"
            if rankhouse.__version__ != version:
                there = rankhouse.__version__
                return f"{platform.node()}: rankhouse {there} is installed there, not {version}"
            from rankhouse.cluster.messages import Fault

            try:
                self.held = pickle.loads(setup).open()  # noqa: S301 - from the driver
            except Exception as error:  # noqa: BLE001 - the driver raises it
                return Fault.of(error)
            return None

        def run(self, request: Any) -> Any:  # noqa: ANN401
            if self.fault is not None:
                return self.fault
            from rankhouse.cluster.messages import Fault

            try:
                return self.held.run(request)
            except Exception as error:  # noqa: BLE001 - the driver raises it
                return Fault.of(error)

        @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
        def fraction(self) -> float:
            return 0.0 if self.held is None else float(self.held.fraction())

    decorate = ray.remote(
        max_concurrency=at_once, concurrency_groups={"watch": 1}, max_restarts=0, max_task_retries=0
    )
    return decorate(RankhouseWorker)


def start_actor(actors: Any, setup: Setup, resources: dict[str, int], threads: int = 0) -> tuple[Any, Any]:  # noqa: ANN401
    """Start an actor on whichever machine has most room; return it and Ray's promise of what it found."""
    actor = actors.options(**resources, scheduling_strategy="SPREAD").remote()
    return actor, actor.open.remote(__version__, threads, pickle.dumps(setup))
