"""A job on a cluster: cut into shards, done by a pool of workers, merged; a killed command resumes.

The pool hands a shard to whichever worker is free, and again where its worker dies.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from rankhouse.cluster.actors import Fault, actor_class, received, start_actor
from rankhouse.cluster.session import Capacity, ClusterOptions, first_line, full_store, ray_session
from rankhouse.cluster.worker import JobSetup, JobWorker, WorkerResult, beacon, shard_folder, write_shard
from rankhouse.core import progress
from rankhouse.core.errors import BadData, RankhouseError, WrongUse, name_few, warn
from rankhouse.io.outputs import SHARD_MANIFEST, is_stream, only_writer, real_path, writing_failures
from rankhouse.jobs.jobs import Job, MergeOptions, Survey, manifest_of, merge, pack
from rankhouse.jobs.shards import Shard, difference, gaps, load_shard, read_shards
from rankhouse.page.tables import CommandResult

TRIES: Final = 3
"""Deaths after which a shard is halved, or the one unit that it holds is given up."""
PER_WORKER: Final = 6
"""Shards a worker, so that all workers end at about the same time; the result does not depend on it."""
_TURN: Final = 1.0  # seconds between two looks at progress, and at what the cluster has room for


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
        """Number of shards that wait for a worker."""
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
                self._deaths[half] = 0 if len(half) == 1 else TRIES - 1
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
                for worker in self._workers:
                    if worker.is_ready and worker.shard is None and queue.waiting:
                        worker.shard, worker.fraction = queue.take(), 0.0
                        worker.task = worker.actor.run.remote(worker.shard)
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
            if not (reason := full_store(error)):
                raise RankhouseError(f"a worker failed: {first_line(error)}") from error
            answer = Fault("OutputFailed", f"{reason}; then give the same command again", disk_full=True)
        except errors.LocalRayletDiedError as error:
            raise RankhouseError(
                "Ray on this machine died; what is done is kept: give the same command again"
            ) from error
        except errors.RayError as error:
            if full_store(error):  # here: no other worker could hand over what it made either
                raise
            self._lost(worker, queue, first_line(error))
            return
        self._last_seen = time.monotonic()
        if isinstance(answer, Fault) and answer.disk_full:
            if worker.shard is not None:
                queue.give_back(worker.shard)
            self._full.append(answer)
            self._dismiss(worker)
            warn(f"the job continues without one worker: {answer.message}", 1)
        elif worker.shard is None:
            self._opened(worker, received(answer))
        else:
            made: WorkerResult = received(answer)
            for text in made.warned:
                warn(text, 1)
            if made.files is not None:
                write_shard(shard_folder(self._shards, worker.shard), made.files)
            self._finished += len(worker.shard)
            queue.done(worker.shard)
            worker.shard, worker.fraction = None, 0.0

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

    def _lost(self, worker: _PoolWorker, queue: ShardQueue, reason: str) -> None:
        """Put the shard of an actor that is gone back; another actor will be started."""
        self._dismiss(worker)
        if worker.shard is not None:
            queue.died(worker.shard, reason)
            return
        if not worker.is_ready:
            self._stillborn += 1
        if self._stillborn >= 10:
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
        elif time.monotonic() - self._last_seen > 30.0:
            self._last_seen = time.monotonic()
            gpu = " and a GPU" if self._capacity.gpus else ""
            progress.say(
                f"no worker is ready yet; each needs {self._capacity.cpus} free processors{gpu} on one "
                "machine of the cluster"
            )


# --- the job -----------------------------------------------------------------------------------------------

_DOING: Final = {"index": "indexing", "encode": "encoding", "rerank": "reranking", "label": "labelling"}


def run_on_cluster(
    job: Job, out: Path, cluster: ClusterOptions, options: MergeOptions, device: str = "cpu"
) -> CommandResult:
    """Do a job on a cluster and write what the command would have written by itself, to the last byte.

    Shards are kept in ``OUT.parts`` until the whole is written: a command that was killed goes on with what
    is missing when it is given again. Raises WrongUse where they cannot be kept beside the output, BadData
    where those of another job are there, and RankhouseError where a unit kills its worker each time.
    """
    if is_stream(out):
        raise WrongUse(f"--out {out}: shards are kept beside the output; with --cluster, name a file")
    target = real_path(out)
    shards = target.with_name(f"{target.name}.parts")
    survey = job.survey()
    with only_writer(shards):
        with writing_failures(shards):
            shards.mkdir(parents=True, exist_ok=True)
        if survey.total:
            left = gaps(_kept(shards, job, survey), survey.total)
        else:  # one empty shard, as a whole has at least one
            left = [] if any(shards.glob(f"*/{SHARD_MANIFEST}")) else [Shard(0, 0, 0)]
        poisoned = _work(job, survey, shards, left, cluster=cluster, device=device) if left else []
        if poisoned:
            names = name_few((job.unit_name(one.unit) for one in sorted(poisoned)), 20)
            raise RankhouseError(
                f"{len(poisoned):,} of {survey.total:,} {job.unit} killed {TRIES} workers each: {names} "
                f"({poisoned[0].reason}); nothing was written, but the others are done and kept in {shards}: "
                "give workers more memory (fewer of them, by --cluster-workers) or mend what is named, and "
                "give the same command again, which does only what is missing"
            )
        result = merge(read_shards([shards]), out, options)
        shutil.rmtree(shards, ignore_errors=True)
    return result


def _kept(shards: Path, job: Job, survey: Survey) -> list[Shard]:
    """Return which shards were done before; damaged shards are removed."""
    done: list[Shard] = []
    for folder in sorted(path.parent for path in shards.glob(f"*/{SHARD_MANIFEST}")):
        try:
            shard = load_shard(folder)
            shard.verify()
        except BadData as error:
            warn(f"{folder} is made again: {error.reason}")
            shutil.rmtree(folder)
            continue
        if other := difference(shard.manifest, manifest_of(job, survey, shard.shard)):
            raise BadData(
                f"holds shards of another job ({other}); remove it to start again, or give the command that "
                "they are of",
                shards,
            )
        done.append(shard.shard)
    if done:
        progress.say(f"{sum(map(len, done)):,} of {survey.total:,} {job.unit} were done before, in {shards}")
    return done


def _work(
    job: Job, survey: Survey, shards: Path, left: list[Shard], cluster: ClusterOptions, device: str
) -> list[PoisonUnit]:
    """Have workers fill the gaps; return which units killed theirs each time."""
    before = survey.total - sum(map(len, left))
    with beacon(shards) as token, ray_session(cluster) as ray:
        capacity = Capacity(ray, cluster, device)
        workers = capacity.workers()
        packed = pack(job)
        if packed.get("workers") == 0:  # processes of one worker: a share, and not as many as there are cores
            packed["workers"] = capacity.cpus
        setup = JobSetup(job.command, packed, survey, shards, token=token, home=Path.cwd())
        queue = ShardQueue(left, max(1, -(-survey.total // (workers * PER_WORKER))))
        label = f"{_DOING[job.command]} on {workers} worker{'s' if workers > 1 else ''}"
        with progress.shown(label, survey.total, job.unit) as show:
            Pool(ray, capacity, setup, lambda done: show(before + done)).work(queue)
    return queue.poisoned
