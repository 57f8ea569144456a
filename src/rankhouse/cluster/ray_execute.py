"""A job on a cluster: cut into slices, done by the pool, merged; a killed command goes on where it was."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Final

from rankhouse.cli import console
from rankhouse.cluster.ray_beacon import beacon
from rankhouse.cluster.ray_options import ClusterOptions
from rankhouse.cluster.ray_pool import Pool
from rankhouse.cluster.ray_queue import PER_WORKER, TRIES, PoisonUnit, SliceQueue, gaps
from rankhouse.cluster.ray_session import Capacity, ray_session
from rankhouse.cluster.ray_worker import Setup
from rankhouse.core.errors import BadData, RankhouseError, WrongUse, name_few
from rankhouse.io.locks import only_writer
from rankhouse.io.outputs import is_stream, real_path, writing_failures
from rankhouse.jobs.jobs import Job, MergeOptions, MergeResult, Survey, merge, pack, part_of
from rankhouse.jobs.parts import PART, difference, load_part, read_parts
from rankhouse.jobs.slices import Slice

_DOING: Final = {"index": "indexing", "encode": "encoding", "rerank": "reranking", "label": "labelling"}


def run_on_cluster(
    job: Job, out: Path, cluster: ClusterOptions, options: MergeOptions, device: str = "cpu"
) -> MergeResult:
    """Do a job on a cluster and write what the command would have written by itself, to the last byte.

    Parts are kept in ``OUT.parts`` until the whole is written: a command that was killed goes on with what
    is missing when it is given again.

    Args:
        device: What ``--device`` says.

    Raises:
        WrongUse: The output is no file or folder that parts could be kept beside.
        BadData: ``OUT.parts`` holds parts of another job.
        RankhouseError: What the command itself would raise, or a unit kills its worker each time.
    """
    if is_stream(out):
        raise WrongUse(f"--out {out}: parts are kept beside the output; with --cluster, name a file")
    target = real_path(out)
    parts = target.with_name(f"{target.name}.parts")
    survey = job.survey()
    with only_writer(parts):
        with writing_failures(parts):
            parts.mkdir(parents=True, exist_ok=True)
        left = gaps(_kept(parts, job, survey), survey.total) if survey.total else _nothing(parts)
        poisoned = _work(job, survey, parts, left, cluster, device) if left else []
        if poisoned:
            raise _give_up(job, poisoned, survey.total, parts)
        result = merge(read_parts([parts]), out, options)
        shutil.rmtree(parts, ignore_errors=True)
    return result


def _nothing(parts: Path) -> list[Slice]:
    """Return the one empty slice of a job that has no units, as a whole has at least one part."""
    return [] if any(parts.glob(f"*/{PART}")) else [Slice(0, 0, 0)]


def _kept(parts: Path, job: Job, survey: Survey) -> list[Slice]:
    """Return which slices were done before; damaged parts are removed."""
    done: list[Slice] = []
    for folder in sorted(path.parent for path in parts.glob(f"*/{PART}")):
        try:
            part = load_part(folder)
            part.verify()
        except BadData as error:
            console.warn(f"{folder} is made again: {error.reason}")
            shutil.rmtree(folder)
            continue
        if other := difference(part.manifest, part_of(job, survey, part.slice)):
            raise BadData(
                f"holds parts of another job ({other}); remove it to begin anew, or give the command that "
                "they are of",
                parts,
            )
        done.append(part.slice)
    if done:
        console.say(f"{sum(map(len, done)):,} of {survey.total:,} {job.unit} were done before, in {parts}")
    return done


def _work(
    job: Job, survey: Survey, parts: Path, left: list[Slice], cluster: ClusterOptions, device: str
) -> list[PoisonUnit]:
    """Have workers fill the gaps; return which units killed theirs each time."""
    before = survey.total - sum(map(len, left))
    with beacon(parts) as token, ray_session(cluster) as ray:
        capacity = Capacity(ray, cluster, device)
        workers = capacity.workers()
        packed = pack(job)
        if packed.get("workers") == 0:  # processes of one worker: a share, and not as many as there are cores
            packed["workers"] = capacity.cpus
        setup = pickle.dumps(Setup(job.command, packed, survey, parts, token, Path.cwd()))
        queue = SliceQueue(left, max(1, -(-survey.total // (workers * PER_WORKER))))
        label = f"{_DOING[job.command]} on {workers} worker{'s' if workers > 1 else ''}"
        with console.progress(label, survey.total, job.unit) as show:
            Pool(ray, capacity, setup, parts, lambda done: show(before + done)).work(queue)
    return queue.poisoned


def _give_up(job: Job, poisoned: list[PoisonUnit], total: int, parts: Path) -> RankhouseError:
    """Name what no worker survives, and say how to go on."""
    names = name_few((job.unit_name(one.unit) for one in sorted(poisoned)), 20)
    return RankhouseError(
        f"{len(poisoned):,} of {total:,} {job.unit} killed {TRIES} workers each: {names} "
        f"({poisoned[0].reason}); nothing was written, but the others are done and kept in {parts}: give "
        "workers more memory (fewer of them, by --cluster-workers) or mend what is named, and give the same "
        "command again, which does only what is missing"
    )
