"""What a training keeps: the best model so far, on disk only as often as what a kill loses is worth it.

The best weights wait in memory. They and a checkpoint are written together, so that both always speak of one
moment: after ``checkpoint_seconds`` of work, at the steps of ``checkpoint_every``, and the best at the end. A
training of some seconds writes its ranker once and no checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from rankhouse.models import bundle
from rankhouse.models.contract import Model
from rankhouse.training import checkpoint, folder
from rankhouse.training.state import TrainingState
from rankhouse.training.steps import Stepper

_WORTH = 20
"""Writing may take a twentieth of the time at most."""


@dataclass
class Snapshots:
    """Keeps the best model of a training and where the training stands."""

    model: Model[Any]
    stepper: Stepper
    out: Path
    use: Mapping[str, str]
    seconds: float
    _best: dict[str, Tensor] | None = None
    _saved: float = field(default_factory=time.monotonic)
    _cost: float = 0.0

    @property
    def _network(self) -> nn.Module:
        return cast(nn.Module, self.model)

    @property
    def due(self) -> bool:
        """Whether a kill would now lose more work than writing costs."""
        return time.monotonic() - self._saved >= (self.seconds and max(self.seconds, _WORTH * self._cost))

    def remember(self) -> None:
        """Take the model as it is now for the best."""
        self._best = {name: t.detach().to("cpu", copy=True) for name, t in self._network.state_dict().items()}

    def save(self, state: TrainingState) -> None:
        """Write the best model and a checkpoint.

        Raises:
            OutputFailed: One cannot be written; those before are still there.
        """
        began = time.monotonic()
        self.write_best()
        folder.write_checkpoint(self.out / folder.CHECKPOINT, state, self._network, self.stepper)
        self._saved = time.monotonic()
        self._cost = self._saved - began

    def write_best(self) -> None:
        """Write the best model, unless it stands there already.

        Raises:
            OutputFailed: It cannot be written; the one before is still there.
        """
        if self._best is None:
            return
        now = {name: tensor.detach().clone() for name, tensor in self._network.state_dict().items()}
        self._network.load_state_dict(self._best)
        try:
            with checkpoint.saving(self.out / folder.RANKER):
                bundle.save(self.model, self.out / folder.RANKER, self.use)
        finally:
            self._network.load_state_dict(now)
        self._best = None
