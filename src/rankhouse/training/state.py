"""Where a training stands and what came out of it, as both are written into its folder."""

from __future__ import annotations

import msgspec


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; also in ``outcome.json``.

    Attributes:
        family: The model's.
        steps: Steps taken.
        epochs: Epochs finished.
        measure: What validation measured; "" without validation.
        first_stage: What the validation run is worth as it is; 0 without validation.
        untaught: The validation before the first step; 0 without validation.
        encoder: What the encoder is worth by its checkpoint's own similarity, where the training began by
            drawing a head over it; None elsewhere, and without validation.
        best: The best validation, that of the model that is kept; 0 without validation.
        best_step: Steps the kept model had been taught.
        validations: (step, value) of all.
        stopped: Why training ended before its last epoch; "" if it did not.
        remarks: What was noticed.
        seconds: How long it took, all sittings together.
        training: Name of all that the training started from.
    """

    family: str
    steps: int
    epochs: int
    measure: str
    first_stage: float
    best: float
    best_step: int
    validations: list[tuple[int, float]]
    stopped: str
    remarks: list[str]
    seconds: float
    training: str = ""
    untaught: float = 0.0
    encoder: float | None = None


class TrainingState(msgspec.Struct):
    """Where a training stands, besides its tensors.

    Attributes:
        training: Name of all that the training started from.
        step: Steps taken.
        epoch: Epochs finished.
        batch: Batches of this epoch done.
        validations: (step, value) of all so far.
        encoder: What the encoder is worth without a head; see :class:`Outcome`.
        best_step: Step of what is kept; -1 when nothing is.
        losses: Those not yet in the log.
        stopped: Why training ended early; "" while it goes on.
        remarks: What was noticed, by kind.
        seconds: How long it took until this checkpoint.
    """

    training: str
    step: int = 0
    epoch: int = 0
    batch: int = 0
    validations: list[tuple[int, float]] = []
    encoder: float | None = None
    best_step: int = -1
    losses: list[float] = []
    stopped: str = ""
    remarks: dict[str, str] = {}
    seconds: float = 0.0

    @property
    def values(self) -> list[float]:
        """Values of all validations."""
        return [value for _, value in self.validations]

    @property
    def best(self) -> float:
        """The best validation; nan before the first."""
        return max(self.values, default=float("nan"))

    @property
    def waited(self) -> int:
        """Validations since the best one."""
        return sum(1 for step, _ in self.validations if step > self.best_step)
