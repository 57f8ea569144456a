"""``--shard`` and ``--cluster`` on the command line: one shard of a command's work here, or all on Ray."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rankhouse.cli import console
from rankhouse.cli.options import WordType, idle, was_given
from rankhouse.cluster.session import LOCAL, ClusterOptions, read_address
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.jobs.jobs import Job, MergeOptions, make_shard, manifest_of, read_reports
from rankhouse.jobs.shards import ShardNumber
from rankhouse.page.tables import CommandResult

ShardChoice = Annotated[
    ShardNumber | None,
    Option(
        "Do only shard I of N; --out is that shard, for  rankhouse merge.",
        metavar="I/N",
        eager=True,  # an output is a folder then, which --out has to know
        reader=WordType("i/n", lambda text, _: ShardNumber.parse(text)),
    ),
]


def run_shard(job: Job, number: ShardNumber, folder: Path, *, overwrite: bool | None = None) -> CommandResult:
    """Make one shard, and say so."""
    started = time.perf_counter()
    survey = job.survey()
    wanted = manifest_of(job, survey, number.of_total(survey.total), str(number))
    with console.progress(f"{job.command} {number}", None) as show:
        result = make_shard(folder, wanted, job.open, show, overwrite=overwrite)
    if result.reason:
        console.note(f"{folder}: {result.reason}; it was replaced")
    report = read_reports([result.made])[0]
    facts: dict[str, Any] = {"part": str(folder), "shard": str(number)} | wanted.shard._asdict()
    message = f"{wanted}, written to {folder} in {time.perf_counter() - started:.1f} s"
    if result.kept:
        message = f"{folder}: {wanted} is there already, whole and sound; nothing to do"
    facts |= {"unit": job.unit, "kept": result.kept, "report": report}
    return CommandResult(facts, message, warnings=report["warnings"])


@dataclass(frozen=True)
class ClusterChoice:
    """Whether a job is done on a cluster, and on which."""

    cluster: Annotated[
        str | None,
        Option(
            "Work on Ray: ray (started here), or ray://HOST:PORT or HOST:PORT of a cluster.",
            metavar="ray|ADDRESS",
            neutral=True,
        ),
    ] = None
    cluster_workers: Annotated[
        int, Option("Workers there; 0 for as many as fit.", least=0, neutral=True, beside="cluster")
    ] = 0
    worker_cpus: Annotated[
        int, Option("Processors of each; 0 for a share.", least=0, neutral=True, beside="cluster")
    ] = 0

    @property
    def options(self) -> ClusterOptions:
        """The cluster that is named; WrongUse where it is none, or beside --shard."""
        if was_given("shard"):
            raise WrongUse(
                "give either --shard, which does one shard here, or --cluster, which does all of them"
            )
        return ClusterOptions(read_address(self.cluster or ""), self.cluster_workers, self.worker_cpus)


def run_clustered(
    job: Job, out: Path, cluster: ClusterOptions, *, device: str = "cpu", options: MergeOptions | None = None
) -> CommandResult:
    """Do a job on a cluster; WrongUse for a GPU by its number, of which each machine has its own."""
    from rankhouse.cluster.jobs import run_on_cluster

    if cluster.address != LOCAL:
        idle("a cache is a file of one machine, and shards that are done are kept anyway", "cache")
    if device.startswith("cuda:"):
        raise WrongUse(f"--device {device}: on a cluster every worker is given a GPU; write  --device cuda")
    return run_on_cluster(job, out, cluster, options=options or MergeOptions(), device=device)
