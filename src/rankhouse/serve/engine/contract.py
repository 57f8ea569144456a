"""What computes for a ranker, as the rest of the service sees it, and what that reports to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from rankhouse.serve.engine.deadline import ENDLESS, Deadline
from rankhouse.serve.engine.jobs import Numbers, Outcome, Times, Work

T = TypeVar("T")


class Observer(Protocol):
    """What wants to know how a worker fares; called in its thread, so it must be quick."""

    def batch(self, model: str, rows: int, tokens: int, lost: int, seconds: float) -> None:
        """Count a batch: rows, tokens computed, tokens that did not fit, seconds."""

    def job(self, model: str, times: Times) -> None:
        """Count a job that was finished."""


class Worker(Protocol):
    """What computes for a ranker: a thread here, or replicas elsewhere."""

    observer: Observer | None

    def submit(
        self, work: Work, items: Sequence[Any], sizes: Numbers, deadline: Deadline = ENDLESS
    ) -> Future[Outcome]:
        """Have n items computed. Args and errors: as in ``ModelWorker.submit``."""
        ...

    def call(self, run: Callable[[], T], deadline: Deadline = ENDLESS) -> Future[T]:
        """Have a function called that touches the model. Args: as in ``ModelWorker.call``."""
        ...

    @property
    def waiting_tokens(self) -> int:
        """Tokens, as estimated, that were admitted and not begun."""
        ...

    @property
    def waiting_jobs(self) -> int:
        """Jobs and calls that are not finished."""
        ...

    @property
    def rate(self) -> float:
        """Tokens computed a second, lately; 0 before the first batch."""
        ...

    @property
    def readers(self) -> int:
        """Threads that tokenise for it."""
        ...

    @property
    def batch_tokens(self) -> int:
        """Tokens of the next batch."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it still works."""
        ...

    def close(self, patience: float = 5.0) -> None:
        """Refuse new work and tell those who wait that nothing comes."""
        ...
