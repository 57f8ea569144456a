"""``--cluster`` on the command line: its options, and a command's work done on Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rankhouse.cli.given import idle, was_given
from rankhouse.cli.options import options_of
from rankhouse.cli.shards import answer_of
from rankhouse.cli.verb import CommandResult
from rankhouse.cluster.session import LOCAL, ClusterOptions, read_address
from rankhouse.core.errors import WrongUse
from rankhouse.core.options import Option
from rankhouse.jobs.jobs import Job, MergeOptions


@dataclass(frozen=True)
class ClusterChoice:
    """Whether a job is done on a cluster, and on which."""

    cluster: Annotated[
        str | None,
        Option(
            "Work on Ray: ray (started here), or ray://HOST:PORT or HOST:PORT of a cluster.",
            metavar="ray|ADDRESS",
        ),
    ] = None
    cluster_workers: Annotated[int, Option("Workers on the cluster; 0 for as many as fit.", least=0)] = 0
    worker_cpus: Annotated[int, Option("Processors of each worker; 0 for a share.", least=0)] = 0

    @property
    def options(self) -> ClusterOptions | None:
        """Where the job of the command at work is to be done; None for here, without Ray.

        Raises:
            WrongUse: No cluster of that name, or options that go with another one.
        """
        if self.cluster is None:
            idle("only a --cluster has workers of its own", "cluster_workers", "worker_cpus")
            return None
        if was_given("shard"):
            raise WrongUse(
                "give either --shard, which does one shard here, or --cluster, which does all of them"
            )
        return ClusterOptions(read_address(self.cluster), self.cluster_workers, self.worker_cpus)


clustered = options_of(ClusterChoice)
"""Adds --cluster, --cluster-workers and --worker-cpus to a command."""


def run_clustered(
    job: Job, out: Path, cluster: ClusterOptions, *, device: str = "cpu", options: MergeOptions | None = None
) -> CommandResult:
    """Do a job on a cluster.

    Args:
        device: The value of ``--device``.

    Raises:
        WrongUse: A GPU is named by its number, which each machine of a cluster has its own of.
    """
    from rankhouse.cluster.jobs import run_on_cluster

    if cluster.address != LOCAL:
        idle("a cache is a file of one machine, and shards that are done are kept anyway", "cache")
    if device.startswith("cuda:"):
        raise WrongUse(f"--device {device}: on a cluster every worker is given a GPU; write  --device cuda")
    return answer_of(run_on_cluster(job, out, cluster, options=options or MergeOptions(), device=device))
