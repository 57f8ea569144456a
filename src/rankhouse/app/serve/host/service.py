"""The service: its parts in one object, which every handler finds as ``request.app.state.service``."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rankhouse.app.serve.host.settings import ServeOptions


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
        phase: Where the service is in its life; ready once its models are warm.
    """

    options: ServeOptions
    catalogue: Any = None
    judgements: Any = None
    phase: Phase = field(default=Phase.STARTING)

    def warm(self) -> None:
        """Open and warm whatever the first request would otherwise wait for; then the service is ready."""
        if self.phase is Phase.STARTING:
            self.phase = Phase.READY

    def drain(self) -> None:
        """Take no more work: the service says at once that it is not ready."""
        self.phase = Phase.DRAINING

    def close(self) -> None:
        """Let go of models, files and processes."""


def open_service(options: ServeOptions) -> Service:
    """Open what a service serves; models are warmed later, by :meth:`Service.warm`.

    Args:
        options: What is served, to whom, and where it writes.

    Raises:
        RankhouseError: An index, a ranker or a file cannot be opened.
    """
    return Service(options)
