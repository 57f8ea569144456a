"""``--cluster`` on the command line: its options, and a command's work done on Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from rankhouse.cli.given import idle, was_given
from rankhouse.cli.options import FROM_ZERO
from rankhouse.cli.shards import answer_of
from rankhouse.cli.verb import CommandResult
from rankhouse.cluster.session import LOCAL, ClusterOptions, read_address
from rankhouse.core.errors import WrongUse
from rankhouse.jobs.jobs import Job, MergeOptions

F = TypeVar("F", bound=Callable[..., Any])

_WORKERS: Final = f"{__name__}.workers"
_CPUS: Final = f"{__name__}.cpus"


def chosen(cluster: str | None) -> ClusterOptions | None:
    """Return where the job of the command at work is to be done; None for here, without Ray.

    Args:
        cluster: The value of ``--cluster``.

    Raises:
        WrongUse: No cluster of that name, or options that go with another one.
    """
    if cluster is None:
        idle("only a --cluster has workers of its own", "cluster_workers", "worker_cpus")
        return None
    if was_given("shard"):
        raise WrongUse("give either --shard, which does one shard here, or --cluster, which does all of them")
    said = click.get_current_context().meta
    return ClusterOptions(read_address(cluster), said[_WORKERS], said[_CPUS])


def _remember(key: str) -> Callable[[click.Context, click.Parameter, int], int]:
    """Return a callback that keeps an option's value for :func:`chosen`."""

    def keep(context: click.Context, parameter: click.Parameter, value: int) -> int:
        del parameter
        context.meta[key] = value
        return value

    return keep


_OPTIONS = (
    click.option(
        "--cluster", metavar="ray|ADDRESS",
        help="Work on Ray: ray (started here), or ray://HOST:PORT or HOST:PORT of a cluster.",
    ),
    click.option(
        "--cluster-workers", type=FROM_ZERO, default=0, expose_value=False, callback=_remember(_WORKERS),
        help="Workers on the cluster; 0 for as many as fit.",
    ),
    click.option(
        "--worker-cpus", type=FROM_ZERO, default=0, expose_value=False, callback=_remember(_CPUS),
        help="Processors of each worker; 0 for a share.",
    ),
)  # fmt: skip


def clustered(command: F) -> F:
    """Add --cluster, --cluster-workers and --worker-cpus; :func:`chosen` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_clustered(
    job: Job,
    out: Path,
    cluster: ClusterOptions,
    *,
    device: str = "cpu",
    options: MergeOptions | None = None,
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
