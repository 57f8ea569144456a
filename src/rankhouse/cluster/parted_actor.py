"""The actor that holds a part of an index, or a ranker, and answers for it; Ray starts one a replica."""

from __future__ import annotations

from typing import Any, Final

AT_ONCE: Final = 16
"""Requests that an actor works on at a time; what is more waits in its queue."""


def actor_class(ray: Any, gpus: int = 0) -> Any:  # noqa: ANN401 - Ray's own types change
    """Return the class of actors that each hold one replica.

    Defined inside a function, it is sent to the cluster as it is, not as a name to be imported there: so it
    can say that rankhouse is missing.

    Args:
        gpus: How many one replica takes. Processors are not set aside: parts need none for long, and rankers
            are told how many threads they have.
    """

    class RankhouseReplica:
        def __init__(self) -> None:
            self.held: Any = None

        def open(self, version: str, setup: bytes) -> Any:  # noqa: ANN401
            import pickle
            import platform

            try:
                import rankhouse
            except ImportError:
                return "", f"{platform.node()}: rankhouse is not installed for the Python that Ray runs there"
            if rankhouse.__version__ != version:
                return (
                    "",
                    f"{platform.node()}: rankhouse {rankhouse.__version__} is installed there, not {version}",
                )
            from rankhouse.core.errors import RankhouseError

            try:
                self.held = pickle.loads(setup).open()  # noqa: S301 - from the one who asks
            except (RankhouseError, OSError) as error:
                return "", str(error)
            return self.held.mark(), ""

        def answer(self, request: Any) -> Any:  # noqa: ANN401
            from rankhouse.cluster.parted_protocol import Refusal
            from rankhouse.core.errors import RankhouseError

            try:
                return self.held.answer(request)
            except RankhouseError as error:
                return Refusal.of(error)

    decorate = ray.remote(
        num_cpus=0, num_gpus=gpus, max_restarts=0, max_task_retries=0, max_concurrency=AT_ONCE
    )
    return decorate(RankhouseReplica)
