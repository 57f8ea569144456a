"""A job on a cluster: cut into shards, done by the pool, merged; a killed command resumes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from rankhouse.cluster.pool import PER_WORKER, TRIES, PoisonUnit, Pool, ShardQueue
from rankhouse.cluster.session import Capacity, ClusterOptions, ray_session
from rankhouse.cluster.worker import JobSetup, beacon
from rankhouse.core import progress
from rankhouse.core.errors import BadData, RankhouseError, WrongUse, name_few, warn
from rankhouse.io.locks import only_writer
from rankhouse.io.outputs import SHARD_MANIFEST, is_stream, real_path, writing_failures
from rankhouse.jobs.jobs import Job, MergeOptions, Survey, manifest_of, merge, pack
from rankhouse.jobs.shards import Shard, difference, gaps, load_shard, read_shards
from rankhouse.page.tables import CommandResult

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
        left = gaps(_kept(shards, job, survey), survey.total) if survey.total else _nothing(shards)
        poisoned = _work(job, survey, shards, left, cluster=cluster, device=device) if left else []
        if poisoned:
            raise _give_up(job, poisoned, survey.total, shards)
        result = merge(read_shards([shards]), out, options)
        shutil.rmtree(shards, ignore_errors=True)
    return result


def _nothing(shards: Path) -> list[Shard]:
    """Return the one empty shard of a job that has no units, as a whole has at least one shard."""
    return [] if any(shards.glob(f"*/{SHARD_MANIFEST}")) else [Shard(0, 0, 0)]


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


def _give_up(job: Job, poisoned: list[PoisonUnit], total: int, shards: Path) -> RankhouseError:
    """Name what no worker survives, and say how to go on."""
    names = name_few((job.unit_name(one.unit) for one in sorted(poisoned)), 20)
    return RankhouseError(
        f"{len(poisoned):,} of {total:,} {job.unit} killed {TRIES} workers each: {names} "
        f"({poisoned[0].reason}); nothing was written, but the others are done and kept in {shards}: give "
        "workers more memory (fewer of them, by --cluster-workers) or mend what is named, and give the same "
        "command again, which does only what is missing"
    )
