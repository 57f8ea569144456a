"""The pool: actors that come and go, slices handed to whoever is free, deaths, full disks, progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rankhouse import __version__
from rankhouse.cli import console
from rankhouse.cluster.ray_actor import actor_class
from rankhouse.cluster.ray_queue import SliceQueue
from rankhouse.cluster.ray_receive import Receiver
from rankhouse.cluster.ray_session import Capacity, first_line
from rankhouse.cluster.ray_worker import Outcome, part_folder
from rankhouse.core.errors import RankhouseError
from rankhouse.jobs.parts import Found
from rankhouse.jobs.slices import Slice

_TURN: Final = 1.0  # seconds between two looks at progress, and at what the cluster has room for
_LONELY: Final = 30.0  # seconds without any worker after which the person is told
_STILLBORN: Final = 10  # workers in a row that may die before they are ready


@dataclass
class _PoolWorker:
    """An actor, and what it is doing: opening the job (no slice), working, or sending a part."""

    actor: Any
    task: Any
    ready: bool = False
    slice: Slice | None = None
    receiver: Receiver | None = None
    fraction: float = 0.0
    asked: Any = None


class Pool:
    """Has the slices of a queue done by actors."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - Ray's own types change
        capacity: Capacity,
        setup: bytes,
        parts: Path,
        tell: Callable[[float], None],
    ) -> None:
        self._ray, self._capacity, self._setup, self._parts, self._tell = ray, capacity, setup, parts, tell
        self._actors = actor_class(ray, capacity.resources)
        self._hired: list[_PoolWorker] = []
        self._finished = 0.0
        self._full: list[Outcome] = []
        self._found: Found = {}
        self._stillborn = 0
        self._last_seen = time.monotonic()

    def work(self, queue: SliceQueue) -> None:
        """Work until no slice is left, but for those that are given up.

        Raises:
            RankhouseError: The work itself failed, or no worker can do it.
        """
        try:
            while len(queue):
                self._hire(queue)
                self._hand_out(queue)
                self._wait(queue)
                self._look()
        finally:
            for hired in [*self._hired]:
                self._dismiss(hired)

    def _hire(self, queue: SliceQueue) -> None:
        before = self._capacity.cpus
        wanted = self._capacity.workers() - len(self._full)
        if self._capacity.cpus != before:  # the machines that were large enough are gone
            for hired in [hired for hired in self._hired if not hired.ready]:
                self._dismiss(hired)
        if wanted < 1 and not self._hired:
            raise self._full[0].error()
        for _ in range(min(wanted, len(queue)) - len(self._hired)):
            actor = self._actors.options(**self._capacity.resources, scheduling_strategy="SPREAD").remote()
            self._hired.append(
                _PoolWorker(actor, actor.open.remote(__version__, self._capacity.cpus, self._setup))
            )

    def _hand_out(self, queue: SliceQueue) -> None:
        for hired in self._hired:
            if hired.ready and hired.slice is None and queue.waiting:
                hired.slice, hired.fraction = queue.take(), 0.0
                hired.task = hired.actor.run.remote(hired.slice)

    def _wait(self, queue: SliceQueue) -> None:
        at_work = {hired.task: hired for hired in self._hired if hired.task is not None}
        if not at_work:
            time.sleep(_TURN / 10)
            return
        ended, _ = self._ray.wait([*at_work], num_returns=1, timeout=_TURN)
        more = self._ray.wait([*at_work], num_returns=len(at_work), timeout=0)[0] if ended else []
        for task in {*ended, *more}:
            self._settle(at_work[task], queue)

    def _settle(self, hired: _PoolWorker, queue: SliceQueue) -> None:
        """Take what an actor gives, or note that it died."""
        task, hired.task = hired.task, None
        errors = self._ray.exceptions
        try:
            outcome = self._ray.get(task)
        except errors.RayTaskError as error:  # a fault of the actor's own shell
            raise RankhouseError(f"a worker failed: {first_line(error)}") from error
        except errors.LocalRayletDiedError as error:
            raise RankhouseError(
                "Ray on this machine died; what is done is kept: give the same command again"
            ) from error
        except errors.RayError as error:
            self._lost(hired, queue, first_line(error))
            return
        self._last_seen = time.monotonic()
        if hired.receiver is not None:
            self._take_piece(hired, outcome, queue)
        elif hired.slice is None:
            self._opened(hired, outcome)
        else:
            self._ran(hired, hired.slice, outcome, queue)

    def _opened(self, hired: _PoolWorker, outcome: Outcome | str) -> None:
        if isinstance(outcome, str):
            raise RankhouseError(f"the cluster's machine {outcome}; install the same version on all of them")
        if outcome.state == "failed":
            raise outcome.error()
        if outcome.state == "full":
            self._retire(hired, outcome)
            return
        self._found = self._found or outcome.found
        for name, value in outcome.found.items():
            if (other := self._found.get(name, value)) != value:
                raise RankhouseError(
                    f'machines there differ: {name} is "{other}" on one and "{value}" on another, so '
                    "the result would depend on who does what; say which one (--precision, --device), or use "
                    "machines that are alike"
                )
        self._stillborn, hired.ready = 0, True

    def _ran(self, hired: _PoolWorker, one: Slice, outcome: Outcome, queue: SliceQueue) -> None:
        for text in outcome.warned:
            console.warn(text)
        if outcome.state == "failed":
            raise outcome.error()
        if outcome.state == "full":
            queue.give_back(one)
            self._retire(hired, outcome)
        elif outcome.shared:
            self._done(hired, one, queue)
        else:
            hired.receiver = Receiver(part_folder(self._parts, one), outcome.files)
            self._ask_for_piece(hired, one, queue)

    def _take_piece(self, hired: _PoolWorker, content: bytes, queue: SliceQueue) -> None:
        assert hired.receiver is not None
        assert hired.slice is not None
        hired.receiver.take(content)
        self._ask_for_piece(hired, hired.slice, queue)

    def _ask_for_piece(self, hired: _PoolWorker, one: Slice, queue: SliceQueue) -> None:
        assert hired.receiver is not None
        if hired.receiver.wanted is not None:
            hired.task = hired.actor.piece.remote(one, *hired.receiver.wanted)
            return
        hired.receiver.finish()
        hired.receiver = None
        hired.actor.forget.remote(one)
        self._done(hired, one, queue)

    def _done(self, hired: _PoolWorker, one: Slice, queue: SliceQueue) -> None:
        queue.done(one)
        self._finished += len(one)
        hired.slice, hired.fraction = None, 0.0

    def _lost(self, hired: _PoolWorker, queue: SliceQueue, reason: str) -> None:
        """An actor is gone: its slice waits again, and another actor will be hired."""
        one = hired.slice
        self._dismiss(hired)
        if one is not None:
            queue.died(one, reason)
            return
        if not hired.ready:
            self._stillborn += 1
        if self._stillborn >= _STILLBORN:
            raise RankhouseError(
                f"{self._stillborn} workers in a row died before they were ready: {reason}; fewer of them "
                "(--cluster-workers) leave more memory to each"
            )

    def _retire(self, hired: _PoolWorker, outcome: Outcome) -> None:
        """Do without an actor whose disk is full; the others go on."""
        self._full.append(outcome)
        self._dismiss(hired)
        console.warn(f"a worker is done without, the others go on: {outcome.message}")

    def _dismiss(self, hired: _PoolWorker) -> None:
        self._hired.remove(hired)
        if hired.receiver is not None:
            hired.receiver.close()
        self._ray.kill(hired.actor)

    def _look(self) -> None:
        """Ask the actors at work how far they are, and say so; say when there are none."""
        for hired in self._hired:
            if hired.asked is not None and self._ray.wait([hired.asked], timeout=0)[0]:
                try:
                    hired.fraction = self._ray.get(hired.asked)
                except self._ray.exceptions.RayError:
                    hired.fraction = 0.0  # it died; its task will say so
                hired.asked = None
            if hired.asked is None and hired.slice is not None and hired.receiver is None:
                hired.asked = hired.actor.fraction.remote()
        at_work = [hired for hired in self._hired if hired.slice is not None]
        self._tell(self._finished + sum(h.fraction * len(h.slice) for h in at_work if h.slice is not None))
        if any(hired.ready for hired in self._hired):
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > _LONELY:
            self._last_seen = time.monotonic()
            gpu = " and a GPU" if self._capacity.gpus else ""
            console.say(
                f"no worker is ready yet; each needs {self._capacity.cpus} free processors{gpu} on one "
                "machine of the cluster"
            )
