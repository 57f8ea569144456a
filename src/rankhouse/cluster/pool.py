"""The pool: shards handed to whichever worker is free; workers that die, and their shards."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from rankhouse.cluster.actors import Fault, actor_class, received, start_actor
from rankhouse.cluster.session import Capacity, first_line
from rankhouse.cluster.worker import JobSetup, JobWorker, Made, shard_folder, write_shard
from rankhouse.core import progress
from rankhouse.core.errors import RankhouseError, warn
from rankhouse.jobs.shards import Shard

TRIES: Final = 3
"""Deaths after which a shard is halved, or the one unit that it holds is given up."""
PER_WORKER: Final = 6
"""Shards a worker, so that all workers end at about the same time; the result does not depend on it."""
_TURN: Final = 1.0  # seconds between two looks at progress, and at what the cluster has room for
_LONELY: Final = 30.0  # seconds without any worker after which the user is told
_STILLBORN: Final = 10  # workers in a row that may die before they are ready


class PoisonUnit(NamedTuple):
    """A unit whose worker died each time, and what Ray said of the last death."""

    unit: int
    reason: str


class ShardQueue:
    """Hands out shards, each until it is done; halves those that kill their workers, down to one unit.

    A shard that outlived no try is cut in two, and a half that kills again is cut at its first death, so that
    a poisoned unit among thousands is soon alone; by itself it is given :data:`TRIES` tries, because a
    worker may die of something else.
    """

    def __init__(self, left: Sequence[Shard], most: int) -> None:
        self._waiting: deque[Shard] = deque()
        self._deaths: dict[Shard, int] = {}
        self.at_work: set[Shard] = set()
        self.poisoned: list[PoisonUnit] = []
        for gap in left:
            for start in range(gap.start, gap.stop, most) if gap else [gap.start]:
                self._waiting.append(Shard(start, min(start + most, gap.stop), gap.total))

    def __len__(self) -> int:
        """Return how many shards wait or are at work."""
        return len(self._waiting) + len(self.at_work)

    @property
    def waiting(self) -> int:
        """How many shards wait for a worker."""
        return len(self._waiting)

    def take(self) -> Shard:
        """Hand out the next shard; IndexError if none waits."""
        shard = self._waiting.popleft()
        self.at_work.add(shard)
        return shard

    def done(self, shard: Shard) -> None:
        """Note that a shard is done."""
        self.at_work.discard(shard)

    def give_back(self, shard: Shard) -> None:
        """Take a shard back whose worker could not do it, through no fault of the shard."""
        self.at_work.discard(shard)
        self._waiting.appendleft(shard)

    def died(self, shard: Shard, reason: str) -> None:
        """Take a shard back whose worker died."""
        self.at_work.discard(shard)
        deaths = self._deaths[shard] = self._deaths.get(shard, 0) + 1
        if deaths < TRIES:
            self._waiting.append(shard)
        elif len(shard) <= 1:
            self.poisoned.append(PoisonUnit(shard.start, reason))
        else:
            middle = (shard.start + shard.stop) // 2
            for half in (Shard(shard.start, middle, shard.total), Shard(middle, shard.stop, shard.total)):
                alone = len(half) == 1
                self._deaths[half] = 0 if alone else TRIES - 1
                self._waiting.append(half)


@dataclass(eq=False)
class _PoolWorker:
    """An actor: opening the job, waiting for a shard, or at work on one."""

    actor: Any
    task: Any
    is_ready: bool = False
    shard: Shard | None = None
    fraction: float = 0.0
    asked: Any = None


class Pool:
    """Has the shards of a queue done by actors; ``show`` takes how many units are done."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - Ray's own types change
        capacity: Capacity,
        setup: JobSetup,
        show: Callable[[float], None],
    ) -> None:
        self._ray, self._capacity, self._show = ray, capacity, show
        self._opener, self._shards = partial(JobWorker, setup), setup.shards
        self._actors = actor_class(ray)
        self._workers: list[_PoolWorker] = []
        self._finished = 0.0
        self._full: list[Fault] = []
        self._found: dict[str, str] = {}
        self._stillborn = 0
        self._last_seen = time.monotonic()

    def work(self, queue: ShardQueue) -> None:
        """Work until no shard is left, but for those that are given up.

        Raises RankhouseError where the work itself failed, or no worker can do it.
        """
        try:
            while len(queue):
                self._start(queue)
                self._hand_out(queue)
                self._wait(queue)
                self._look()
        finally:
            for worker in [*self._workers]:
                self._dismiss(worker)

    def _start(self, queue: ShardQueue) -> None:
        """Start as many actors as there is room and work for."""
        before = self._capacity.cpus
        wanted = self._capacity.workers() - len(self._full)
        if self._capacity.cpus != before:  # the machines that were large enough are gone
            for worker in [worker for worker in self._workers if not worker.is_ready]:
                self._dismiss(worker)
        if wanted < 1 and not self._workers:
            raise self._full[0].error()
        for _ in range(min(wanted, len(queue)) - len(self._workers)):
            cpus = self._capacity.cpus
            self._workers.append(
                _PoolWorker(*start_actor(self._actors, self._opener, self._capacity.resources, cpus))
            )

    def _hand_out(self, queue: ShardQueue) -> None:
        for worker in self._workers:
            if worker.is_ready and worker.shard is None and queue.waiting:
                worker.shard, worker.fraction = queue.take(), 0.0
                worker.task = worker.actor.run.remote(worker.shard)

    def _wait(self, queue: ShardQueue) -> None:
        """Wait for an answer; its content is then on this machine already."""
        at_work = {worker.task: worker for worker in self._workers if worker.task is not None}
        if not at_work:
            time.sleep(_TURN / 10)
            return
        ended, _ = self._ray.wait([*at_work], num_returns=1, timeout=_TURN)
        more = self._ray.wait([*at_work], num_returns=len(at_work), timeout=0)[0] if ended else []
        for task in {*ended, *more}:
            self._settle(at_work[task], queue)

    def _settle(self, worker: _PoolWorker, queue: ShardQueue) -> None:
        """Take what an actor gives, or note that it died."""
        task, worker.task = worker.task, None
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(task)
        except errors.RayTaskError as error:  # a fault of the actor's own shell
            if not isinstance(error, errors.OutOfDiskError):
                raise RankhouseError(f"a worker failed: {first_line(error)}") from error
            reason = "Ray's memory and the disk below it are full; free some space, what is done is kept"
            answer = Fault("OutputFailed", reason, disk_full=True)
        except errors.LocalRayletDiedError as error:
            raise RankhouseError(
                "Ray on this machine died; what is done is kept: give the same command again"
            ) from error
        except errors.RayError as error:
            self._lost(worker, queue, first_line(error))
            return
        self._last_seen = time.monotonic()
        if isinstance(answer, Fault) and answer.disk_full:
            if worker.shard is not None:
                queue.give_back(worker.shard)
            self._full.append(answer)
            self._dismiss(worker)
            warn(f"a worker is done without, the others go on: {answer.message}", 1)
        elif worker.shard is None:
            self._opened(worker, received(answer))
        else:
            self._made(worker, worker.shard, received(answer))
            queue.done(worker.shard)
            worker.shard = None

    def _opened(self, worker: _PoolWorker, found: dict[str, str]) -> None:
        self._found = self._found or found
        for name, value in found.items():
            if (other := self._found.get(name, value)) != value:
                raise RankhouseError(
                    f'machines there differ: {name} is "{other}" on one and "{value}" on another, so '
                    "the result would depend on who does what; say which one (--precision, --device), or use "
                    "machines that are alike"
                )
        self._stillborn, worker.is_ready = 0, True

    def _made(self, worker: _PoolWorker, shard: Shard, made: Made) -> None:
        for text in made.warned:
            warn(text, 1)
        if made.files is not None:
            write_shard(shard_folder(self._shards, shard), made.files)
        self._finished += len(shard)
        worker.fraction = 0.0

    def _lost(self, worker: _PoolWorker, queue: ShardQueue, reason: str) -> None:
        """Put the shard of an actor that is gone back; another actor will be started."""
        self._dismiss(worker)
        if worker.shard is not None:
            queue.died(worker.shard, reason)
            return
        if not worker.is_ready:
            self._stillborn += 1
        if self._stillborn >= _STILLBORN:
            raise RankhouseError(
                f"{self._stillborn} workers in a row died before they were ready: {reason}; fewer of them "
                "(--cluster-workers) leave more memory to each"
            )

    def _dismiss(self, worker: _PoolWorker) -> None:
        self._workers.remove(worker)
        self._ray.kill(worker.actor)

    def _look(self) -> None:
        """Ask the actors at work how far they are, and say so; say when there are none."""
        for worker in self._workers:
            if worker.asked is not None and self._ray.wait([worker.asked], timeout=0)[0]:
                try:
                    worker.fraction = self._ray.get(worker.asked)
                except self._ray.exceptions.RayError:
                    worker.fraction = 0.0  # it died; its task will say so
                worker.asked = None
            if worker.asked is None and worker.shard is not None:
                worker.asked = worker.actor.fraction.remote()
        at_work = sum(one.fraction * len(one.shard) for one in self._workers if one.shard is not None)
        self._show(self._finished + at_work)
        if any(worker.is_ready for worker in self._workers):
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > _LONELY:
            self._last_seen = time.monotonic()
            gpu = " and a GPU" if self._capacity.gpus else ""
            progress.say(
                f"no worker is ready yet; each needs {self._capacity.cpus} free processors{gpu} on one "
                "machine of the cluster"
            )
