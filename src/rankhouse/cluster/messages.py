"""What travels between the driver and its actors: how to open something, what it found, faults."""

from __future__ import annotations

import errno
import traceback
from typing import Any, Final, NamedTuple, Protocol

from rankhouse.core import errors
from rankhouse.core.errors import OutputFailed, RankhouseError

_DISK_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Held(Protocol):
    """What an actor holds."""

    @property
    def found(self) -> dict[str, str]:
        """What answers depend on and is known only now: a fingerprint, a precision."""
        ...

    def run(self, request: Any) -> Any:  # noqa: ANN401 - each kind has its own messages
        """Answer a request."""
        ...


class Setup(Protocol):
    """How an actor opens what it holds; pickled on its way there."""

    def open(self) -> Held:
        """Open it."""
        ...


class Fault(NamedTuple):
    """An error on its way from another process: not every one can be made again from its pickle.

    Attributes:
        kind: Name of its class, or of the base class that this package knows.
        message: Its text.
        trace: Where it came from.
        disk_full: Whether the disk there is full.
    """

    kind: str
    message: str
    trace: str = ""
    disk_full: bool = False

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
    """Return an actor's answer.

    Raises:
        RankhouseError: It is a fault, or the machine has another rankhouse.
    """
    if isinstance(answer, str):
        raise RankhouseError(f"the cluster's machine {answer}; install the same version on all of them")
    if isinstance(answer, Fault):
        raise answer.error()
    return answer
