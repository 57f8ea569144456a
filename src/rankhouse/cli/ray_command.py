"""``--cluster`` on the command line: a command's work is done on Ray, and its result is told."""

from __future__ import annotations

from pathlib import Path

from rankhouse.cli import console
from rankhouse.cli.given import idle
from rankhouse.cluster.ray_options import LOCAL, ClusterOptions
from rankhouse.core.errors import WrongUse
from rankhouse.jobs.command import show_result
from rankhouse.jobs.jobs import Job, MergeOptions


def run_clustered(
    job: Job,
    out: Path,
    cluster: ClusterOptions,
    *,
    as_json: bool,
    device: str = "cpu",
    options: MergeOptions | None = None,
    tell: bool = True,
) -> None:
    """Do a job on a cluster, and say what came of it.

    Args:
        device: What ``--device`` says.

    Raises:
        WrongUse: A GPU is named by its number, which each machine of a cluster has its own of.
    """
    from rankhouse.cluster.ray_execute import run_on_cluster

    if cluster.address != LOCAL:
        idle("a cache is a file of one machine, and parts that are done are kept anyway", "cache")
    if device.startswith("cuda:"):
        raise WrongUse(f"--device {device}: on a cluster every worker is given a GPU; write  --device cuda")
    result = run_on_cluster(job, out, cluster, options or MergeOptions(), device)
    if tell:
        show_result(result, as_json=as_json)
        return
    for warning in result.warnings:
        console.warn(warning)
