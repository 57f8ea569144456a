"""--cluster and what goes with it: where a job is done, by how many workers of how many processors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from rankhouse.cli.given import idle, was_given
from rankhouse.cli.options import FROM_ZERO
from rankhouse.core.errors import WrongUse

F = TypeVar("F", bound=Callable[..., Any])

LOCAL = "local"
_CLIENT_PORT = 10001
_ADDRESS = re.compile(r"(?P<scheme>ray://)?(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?")


class ClusterOptions(NamedTuple):
    """Where a job is done.

    Attributes:
        address: "local" starts a Ray of its own; else ``ray://HOST:PORT`` or ``HOST:PORT``.
        workers: How many; 0 for as many as the cluster has room for.
        cpus: Processors of each; 0 leaves it to the job.
    """

    address: str
    workers: int = 0
    cpus: int = 0


def read_address(text: str) -> str:
    """Return the address that ``--cluster`` names, as Ray takes it.

    Raises:
        WrongUse: It names none.

    >>> read_address("ray"), read_address("ray://head"), read_address("10.0.0.1:6379")
    ('local', 'ray://head:10001', '10.0.0.1:6379')
    """
    if text == "ray":
        return LOCAL
    match = _ADDRESS.fullmatch(text)
    if match and (match["scheme"] or match["port"]) and int(match["port"] or 1) in range(1, 1 << 16):
        port = match["port"] or _CLIENT_PORT
        return f"{match['scheme'] or ''}{match['host']}:{port}"
    raise WrongUse(
        f'--cluster "{text}" names no cluster; write  ray  (one is started on this machine), '
        f"ray://HOST:PORT  (the client port of a cluster elsewhere, usually {_CLIENT_PORT}) or  HOST:PORT  "
        "(a cluster that this machine is a node of, usually port 6379)"
    )


def chosen(cluster: str | None) -> ClusterOptions | None:
    """Return where the job of the command at work is to be done; None for here, without Ray.

    Args:
        cluster: What ``--cluster`` says.

    Raises:
        WrongUse: No cluster of that name, or options that go with another one.
    """
    if cluster is None:
        idle("only a --cluster has workers of its own", "cluster_workers", "worker_cpus")
        return None
    if was_given("shard"):
        raise WrongUse("give either --shard, which does one slice here, or --cluster, which does all of them")
    said = click.get_current_context().meta
    return ClusterOptions(read_address(cluster), said[_WORKERS], said[_CPUS])


_WORKERS, _CPUS = f"{__name__}.workers", f"{__name__}.cpus"


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
    """Add --cluster, --cluster-workers and --worker-cpus; what they say together is :func:`chosen`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
