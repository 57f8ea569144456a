"""The cluster that a service was started with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rankhouse.serve.engine.contract import Worker
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.search.view import IndexView

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.serve.engine.worker import ModelWorker


class ServiceCluster(Protocol):
    """What holds indexes and rankers for a service, elsewhere."""

    def view(self, name: str, path: Path) -> IndexView:
        """Return an index that is held."""
        ...

    def spreading(self, spec: str, options: ServeOptions) -> Callable[[NeuralRanker, ModelWorker], Worker]:
        """Return what has a ranker held, and spreads its work."""
        ...


@contextmanager
def service_cluster(options: ServeOptions) -> Iterator[ServiceCluster | None]:
    """Connect to the cluster that a service is to work with, if any, as long as the block runs.

    Raises:
        WrongUse: There is no such address.
        MissingExtra: Ray is not installed.
        RankhouseError: Nobody answers at the address.
    """
    if not options.cluster:
        yield None
        return
    from rankhouse.cluster import service

    with service.service_cluster(options) as cluster:
        yield cluster
