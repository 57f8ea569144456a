"""What Ray starts: shells around our own code, which start even where another rankhouse or none is installed.

They are defined inside functions, so that they are sent to the cluster as they are, and not as names to be
imported there: so they can say that rankhouse is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def actor_class(ray: Any, resources: dict[str, int]) -> Any:  # noqa: ANN401 - Ray's own types change
    """Return the class of actors that each hold one worker; asked for its progress while it works."""
    prepared = _preparation()

    class RankhouseWorker:
        def __init__(self) -> None:
            self.worker: Any = None

        def open(self, version: str, cpus: int, setup: bytes) -> Any:  # noqa: ANN401
            import pickle

            if other := prepared(version, cpus):
                return other
            from rankhouse.cluster.ray_worker import SliceWorker

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


def pass_function(ray: Any, resources: dict[str, int]) -> Any:  # noqa: ANN401 - Ray's own types change
    """Return the function that does one pass of a recipe in a process of its own."""
    prepared = _preparation()

    def rankhouse_pass(version: str, cpus: int, order: bytes) -> Any:  # noqa: ANN401
        if other := prepared(version, cpus):
            return other
        from rankhouse.cluster.ray_pass import do_pass

        return do_pass(order)

    return ray.remote(**resources, max_calls=1, max_retries=0)(rankhouse_pass)


def _preparation() -> Callable[[str, int], str]:
    """Return what a process of the cluster does first; it says what is wrong with the rankhouse there."""

    def prepared(version: str, cpus: int) -> str:
        import os
        import platform

        os.environ["OMP_NUM_THREADS"] = str(cpus)
        try:
            import rankhouse
        except ImportError:
            return f"{platform.node()}: rankhouse is not installed for the Python that Ray runs there"
        if rankhouse.__version__ != version:
            return f"{platform.node()}: rankhouse {rankhouse.__version__} is installed there, not {version}"
        return ""

    return prepared
