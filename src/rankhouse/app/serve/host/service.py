"""The service: its parts in one object, which every handler finds as ``request.app.state.service``."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rankhouse.app.serve.host.journal import Audit, Lines
from rankhouse.app.serve.host.keys import Keys
from rankhouse.app.serve.host.metrics import Metrics
from rankhouse.app.serve.host.settings import ServeOptions
from rankhouse.app.serve.search.catalogue import Catalogue


class Phase(StrEnum):
    """Where a service is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass
class Service:
    """What handlers work with.

    Attributes:
        options: What the service was told when it started.
        catalogue: Indexes and rankers by name.
        judgements: What judges said; None where the service only reads.
        keys: Who may come in; None lets everybody in.
        metrics: What is counted.
        audit: Gets a line for whatever was judged, trained or refused.
        access_log: Gets a line a request.
        phase: Where the service is in its life; ready once its models are warm.
        in_progress: Requests that are being answered, probes aside.
    """

    options: ServeOptions
    catalogue: Catalogue = field(default_factory=lambda: Catalogue({}))
    judgements: Any = None
    keys: Keys | None = None
    metrics: Metrics = field(default_factory=Metrics)
    audit: Audit = field(default_factory=lambda: Audit(None))
    access_log: Lines = field(default_factory=lambda: Lines(None))
    phase: Phase = Phase.STARTING
    in_progress: int = 0

    def warm(self) -> None:
        """Open and warm whatever the first request would otherwise wait for; then the service is ready."""
        if self.phase is Phase.STARTING:
            self.phase = Phase.READY

    def drain(self) -> None:
        """Take no more work: the service says at once that it is not ready."""
        self.phase = Phase.DRAINING

    def close(self) -> None:
        """Let go of models, files and processes."""
        self.access_log.close()


def open_service(options: ServeOptions) -> Service:
    """Open what a service serves; models are warmed later, by :meth:`Service.warm`.

    Args:
        options: What is served, to whom, and where it writes.

    Raises:
        RankhouseError: An index, a ranker or a file cannot be opened.
    """
    return Service(
        options,
        Catalogue(options.indexes),
        keys=None if options.key_file is None else Keys.read(options.key_file),
        audit=Audit(options.audit),
        access_log=Lines(options.access_log),
    )
