"""Ray actors: processes that open something once, then answer requests; and how faults travel."""

from __future__ import annotations

import errno
import pickle
import traceback
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from rankhouse import __version__
from rankhouse.core import errors
from rankhouse.core.errors import OutputFailed, RankhouseError

_DISK_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class ActorWork(Protocol):
    """The object that an actor holds."""

    @property
    def found(self) -> dict[str, str]:
        """Facts that answers depend on, known only now: a fingerprint, a precision."""
        ...

    def run(self, request: Any) -> Any:  # noqa: ANN401 - each kind has its own messages
        """Answer a request."""
        ...


Opener = Callable[[], ActorWork]
"""Opener of what an actor holds; pickled on its way there."""


class Fault(NamedTuple):
    """An error on its way from another process: not every one can be made again from its pickle."""

    kind: str  # name of its class, or of the base class that this package knows
    message: str
    trace: str = ""
    disk_full: bool = False  # whether the disk there is full

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """Return an error as it travels."""
        known = next((kind for kind in type(error).__mro__ if _is_ours(kind)), type(error))
        cause = error.__cause__ if isinstance(error, OutputFailed) else error
        full = isinstance(cause, OSError) and (cause.errno in _DISK_FULL or "requested" in str(cause))
        return cls(known.__name__, str(error), "".join(traceback.format_exception(error)), full)

    def error(self) -> Exception:
        """Return the error as it was raised there."""
        known = getattr(errors, self.kind, None)
        if isinstance(known, type) and issubclass(known, RankhouseError):
            error = known.__new__(known)
            Exception.__init__(error, self.message)
            error.__dict__.setdefault("reason", self.message)
            return error
        if self.kind in {"MemoryError", "OutOfMemoryError"}:
            return MemoryError(self.message)
        if self.kind in {"OSError", "FileNotFoundError", "PermissionError"}:
            return RankhouseError(self.message)
        return RuntimeError(f"{self.kind} in a worker: {self.message}\n{self.trace}")


def _is_ours(kind: type) -> bool:
    return issubclass(kind, RankhouseError) and getattr(errors, kind.__name__, None) is kind


def received(answer: Any) -> Any:  # noqa: ANN401 - what an actor returned
    """Return an actor's answer; raise the fault that it is, or RankhouseError for another rankhouse there."""
    if isinstance(answer, str):
        raise RankhouseError(f"the cluster's machine {answer}; install the same version on all of them")
    if isinstance(answer, Fault):
        raise answer.error()
    return answer


def actor_class(ray: Any, at_once: int = 1) -> Any:  # noqa: ANN401 - Ray's own types change
    """Return the class of actors, which work on so many requests at a time; more wait in their queues.

    Defined inside a function, it is sent to the cluster as it is, not as a name to be imported there: so it
    starts where another rankhouse or none is installed, and says so.
    """

    class RankhouseWorker:
        def __init__(self) -> None:
            self.held: Any = None
            self.fault: Any = None

        def open(self, version: str, threads: int, opener: bytes) -> Any:  # noqa: ANN401
            self.fault = self.opened(version, threads, opener)
            return self.fault or self.held.found

        def opened(self, version: str, threads: int, opener: bytes) -> Any:  # noqa: ANN401
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
            from rankhouse.cluster.actors import Fault

            try:
                self.held = pickle.loads(opener)()  # noqa: S301 - from the driver
            except Exception as error:  # noqa: BLE001 - the driver raises it
                return Fault.of(error)
            return None

        def run(self, request: Any) -> Any:  # noqa: ANN401
            if self.fault is not None:
                return self.fault
            from rankhouse.cluster.actors import Fault

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


def start_actor(
    actors: Any,  # noqa: ANN401
    opener: Opener,
    resources: dict[str, int],
    threads: int = 0,
) -> tuple[Any, Any]:
    """Start an actor on whichever machine has most room; return it and Ray's promise of what it found."""
    actor = actors.options(**resources, scheduling_strategy="SPREAD").remote()
    return actor, actor.open.remote(__version__, threads, pickle.dumps(opener))
