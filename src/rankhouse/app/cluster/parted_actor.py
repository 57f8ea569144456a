"""The actor that holds a part of an index, or a ranker, and answers for it; Ray starts one a replica."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

from rankhouse.core import errors
from rankhouse.core.errors import RankhouseError

AT_ONCE: Final = 16
"""Requests that an actor works on at a time; what is more waits in its queue."""


class Refused(NamedTuple):
    """Why an actor does not do what is asked.

    Attributes:
        kind: Name of the error.
        text: What it says.
    """

    kind: str
    text: str

    @classmethod
    def of(cls, error: RankhouseError) -> Refused:
        """Return an error as it travels: not every one can be made again from its pickle."""
        return cls(type(error).__name__, str(error))

    def error(self) -> RankhouseError:
        """Return the error as it was raised there."""
        kind = getattr(errors, self.kind, RankhouseError)
        made: RankhouseError = kind.__new__(kind, self.text)
        made.__dict__.setdefault("reason", self.text)
        return made


class Held(Protocol):
    """What an actor holds."""

    def mark(self) -> str:
        """Return a text that is the same for all replicas."""
        ...

    def answer(self, request: Any) -> Any:  # noqa: ANN401 - each kind has its own messages
        """Answer a request."""
        ...


class Setup(Protocol):
    """How a replica opens what it holds; pickled on its way there."""

    def open(self) -> Held:
        """Open it."""
        ...


def actor_class(ray: Any, cpus: int) -> Any:  # noqa: ANN401 - Ray's own types change
    """Return the class of actors that each hold one replica.

    Defined inside a function, it is sent to the cluster as it is, not as a name to be imported there: so it
    can say that rankhouse is missing.

    Args:
        ray: Ray, connected.
        cpus: Processors that one replica takes; 0 for what takes none for long.
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
            from rankhouse.app.cluster.parted_actor import Refused
            from rankhouse.core.errors import RankhouseError

            try:
                return self.held.answer(request)
            except RankhouseError as error:
                return Refused.of(error)

    decorate = ray.remote(num_cpus=cpus, max_restarts=0, max_task_retries=0, max_concurrency=AT_ONCE)
    return decorate(RankhouseReplica)
