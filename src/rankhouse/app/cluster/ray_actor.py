"""The actor: the shell around a worker that Ray starts, even where another rankhouse or none is installed."""

from __future__ import annotations

from typing import Any


def actor_class(ray: Any, resources: dict[str, int]) -> Any:  # noqa: ANN401 - Ray's own types change
    """Return the class of actors that each hold one worker; asked for its progress while it works.

    Defined inside a function, it is sent to the cluster as it is, not as a name to be imported there: so it
    can say that rankhouse is missing.

    Args:
        ray: Ray, connected.
        resources: What one actor takes.
    """

    class RankhouseWorker:
        def __init__(self) -> None:
            self.worker: Any = None

        def open(self, version: str, cpus: int, setup: bytes) -> Any:  # noqa: ANN401
            import os
            import pickle
            import platform

            os.environ["OMP_NUM_THREADS"] = str(cpus)
            try:
                import rankhouse
            except ImportError:
                return f"{platform.node()}: rankhouse is not installed for the Python that Ray runs there"
            if rankhouse.__version__ != version:
                return (
                    f"{platform.node()}: rankhouse {rankhouse.__version__} is installed there, not {version}"
                )
            from rankhouse.app.cluster.ray_worker import SliceWorker

            self.worker = SliceWorker(pickle.loads(setup))  # noqa: S301 - from the one who asks
            return self.worker.open()

        def run(self, one: Any) -> Any:  # noqa: ANN401
            return self.worker.run(one)

        def piece(self, one: Any, name: str, start: int, size: int) -> bytes:  # noqa: ANN401
            content: bytes = self.worker.piece(one, name, start, size)
            return content

        def forget(self, one: Any) -> None:  # noqa: ANN401
            self.worker.forget(one)

        @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
        def fraction(self) -> float:
            return 0.0 if self.worker is None else float(self.worker.fraction())

    decorate = ray.remote(**resources, concurrency_groups={"watch": 1}, max_restarts=0, max_task_retries=0)
    return decorate(RankhouseWorker)
