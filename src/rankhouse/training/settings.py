"""All choices of a training in one frozen structure, written and read as JSON, and each family's own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Literal, Self

import msgspec

from rankhouse.core import notation
from rankhouse.core.arguments import check_least
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.evaluation.measure_notation import parse as parse_measures
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import write_json
from rankhouse.models.families import FAMILIES
from rankhouse.training.distillation import DENOISERS, soft_loss
from rankhouse.training.examples import NEGATIVES
from rankhouse.training.optimizer import OPTIMISERS, SCHEDULES


class StepSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of every training by steps, whether it trains a ranker or pre-trains a T5.

    Attributes:
        steps: Optimiser steps.
        batch: Examples a step.
        accumulate: Parts a batch is computed in, so that large ones fit into memory.
        optimizer: Notation: adam, adamw(weight_decay=0.01), sgd(momentum=0.9), adafactor.
        rate: Learning rate.
        schedule: Notation: constant, linear(warmup=0.1), step(every=5, factor=0.75), plateau(patience=10).
        clip: Largest norm of all gradients together; 0: not clipped.
        device: "auto", "cpu", "cuda".
        seed: Of all that is drawn.
        log_every: Steps a line of the log sums up.
    """

    _ORDER: ClassVar[str] = ""
    _LATER: ClassVar[frozenset[str]] = frozenset({"tower"})
    """Settings that came when trainings had names already."""

    steps: int = 0
    batch: int = 32
    accumulate: int = 1
    optimizer: str = "adam"
    rate: float = 1e-3
    schedule: str = "constant"
    clip: float = 0.0
    device: str = "auto"
    seed: int = 0
    log_every: int = 10

    def __post_init__(self) -> None:
        check_least(self, 1, "batch", "accumulate", "log_every")
        check_least(self, 0, "steps", "clip", "seed")
        if not 0 < self.rate < float("inf"):
            raise WrongUse(f"rate={self.rate}: a learning rate is above 0, for example 1e-3")
        notation.make(self.optimizer, OPTIMISERS, "optimiser")
        notation.make(self.schedule, SCHEDULES, "schedule")

    def _check_parts(self) -> None:
        if self.accumulate > self.batch:
            raise WrongUse(
                f"accumulate={self.accumulate}: a batch of {self.batch} has at most {self.batch} parts"
            )

    def but(self, **changes: object) -> Self:
        """Return the same settings with some changed.

        Raises:
            WrongUse: A setting that does not exist, or a value that it does not accept.
        """
        known = self.to_dict()
        for name in changes:
            notation.choose(name, known, "setting of a training")
        try:
            return msgspec.convert(known | changes, type(self))
        except msgspec.ValidationError as error:
            text = ", ".join(f"{name}={value!r}" for name, value in changes.items())
            raise WrongUse(f"{text}: {error}") from error

    def to_dict(self) -> dict[str, object]:
        """Return setting -> value, in the order of the file, which names trainings."""
        names = dict.fromkeys((*self._ORDER.split(), *self.__struct_fields__))
        return {name: getattr(self, name) for name in names}

    def to_json(self) -> bytes:
        """Write as JSON, one setting a line."""
        return msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=2)

    def identity(self) -> str:
        """Return what they contribute to a training's name: JSON, without later settings at their defaults.

        So trainings that began before there was such a setting go on, and are found when they are finished.
        """
        defaults = {one.name: one.default for one in msgspec.structs.fields(self) if one.name in self._LATER}
        kept = {name: value for name, value in self.to_dict().items() if value != defaults.get(name, ...)}
        return msgspec.json.format(msgspec.json.encode(kept), indent=2).decode()

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Read what :meth:`to_json` wrote; settings left out have their defaults.

        Raises:
            WrongUse: Not JSON, an unknown setting, or a value that is not accepted.
        """
        try:
            return msgspec.json.decode(text, type=cls)
        except UNREADABLE as error:
            if isinstance(error.__cause__, WrongUse):
                raise error.__cause__ from None
            names = ", ".join(field.name for field in msgspec.structs.fields(cls))
            raise WrongUse(f"the settings cannot be read: {error}; settings are: {names}") from error

    def write(self, path: Path) -> None:
        """Write into a file, whole or not at all.

        Raises:
            OutputFailed: It cannot be written.
        """
        write_json(path, self.to_dict())


class Settings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a training. Start from :func:`defaults`; change with :meth:`but`.

    Attributes:
        epochs: Times that every relevant pair is seen.
        steps: Most optimiser steps; 0: as many as the epochs have.
        batch: Groups a step: pairs for points, contrasts, or positives (relevant pairs).
        by_query: Points only: a batch is all pairs of one query, in chunks of this many; 0: pairs are mixed.
        accumulate: Parts a batch is computed in, so that large ones fit into memory. Positives are each
            other's contrast only within a part.
        negatives: Source of not relevant passages, in notation: given, run(start=0, stop=100), any,
            random.
        count: Negatives drawn for a relevant pair. 0: points take every labelled pair once an epoch,
            positives have no hard negatives.
        transitive: Positives only: relevant pairs say that both are the same thing (a product), so whatever
            they join is one thing, and never another's negative.
        rates: Beginnings of parameter names with rates of their own; 0 freezes.
        layer_decay: Factor of a rate from each layer to the one below it, 0 to 1: low layers keep
            more of what the checkpoint knows. 1: all layers learn at one rate.
        temperature: Divisor of similarities in a bi-encoder's loss; 0: the model's own.
        precision: "fp32", or "bf16" for the computing (weights stay in fp32).
        dropout: Share of numbers dropped, everywhere that the model drops any, from 0 to below 1; None: the
            model's own shares.
        tower: Which encoder of a bi-encoder learns: "both", or "query" for a copy that encodes queries; the
            vectors of documents stay what they are.
        seed: Of batches, dropout and whatever else is drawn.
        measure: The measure that validation maximises, in ir_measures' notation.
        validate_every: Steps between validations; there is one before the first step and after every epoch as
            well. 0: only those. "auto": ten spread over the training, fewer (never below four) where they
            would take over three times as long as learning; with ``patience`` every 2,000 steps at least,
            without it three more before the first where the model is above the first stage from the start.
            "steps": ten or fewer, and one after the last step, but none after epochs.
        patience: Validations without a gain after which training ends; 0: never.
        checkpoint_seconds: After a validation or an epoch there is a checkpoint if this much time has passed
            since the last one (or twenty times what writing it took, if that is more); 0: always.
        checkpoint_every: Steps between checkpoints besides those; 0: only those.
        overlap: Treatment of training queries that are validation queries too.
        loss: Notation of a loss on a teacher's scores: margin-mse, listwise-kl(factor=15), pointwise. "": the
            family's own, on labels.
        crossed: With a teacher: every query of a batch stands beside every passage. ``batch`` queries bring
            ``count`` candidates each, and those join whose own documents these are.
        denoise: Leaves negatives out that a teacher scores too high: margin(0.1), share(0.95). "": none.
        judged: Beside such a loss, the share that the family's own on judged pairs has, 0 to 1.
    """

    _ORDER: ClassVar[str] = (
        "epochs steps batch by_query accumulate negatives count transitive optimizer rate rates schedule "
        "temperature clip precision device seed measure validate_every patience checkpoint_seconds "
        "checkpoint_every log_every overlap loss crossed denoise judged layer_decay dropout tower"
    )

    epochs: int = 1
    by_query: int = 0
    negatives: str = "any"
    count: int = 1
    transitive: bool = False
    rates: dict[str, float] = {}
    temperature: float = 0.0
    precision: Literal["fp32", "bf16"] = "fp32"
    measure: str = "AP"
    validate_every: int | Literal["auto", "steps"] = "auto"
    patience: int = 0
    checkpoint_seconds: float = 30.0
    checkpoint_every: int = 0
    overlap: Literal["warn", "error", "allow"] = "warn"
    loss: str = ""
    crossed: bool = False
    denoise: str = ""
    judged: float = 0.0
    layer_decay: float = 1.0
    dropout: float | None = None
    tower: Literal["both", "query"] = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "epochs")
        check_least(self, 0, "by_query", "count", "temperature", "patience", "checkpoint_every")
        check_least(self, 0, "checkpoint_seconds")
        if isinstance(self.validate_every, int) and self.validate_every < 0:
            raise WrongUse(f'validate_every={self.validate_every}: must be 0 or more, "auto" or "steps"')
        if bad := {name: rate for name, rate in self.rates.items() if not 0 <= rate < float("inf")}:
            raise WrongUse(f"rates={bad}: a learning rate is above 0, or 0 to freeze")
        if not 0 < self.layer_decay <= 1:
            raise WrongUse(f"layer_decay={self.layer_decay}: must be above 0 and at most 1, for example 0.8")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise WrongUse(f"dropout={self.dropout}: must be 0 or more and below 1")
        if not self.by_query:
            self._check_parts()
        notation.make(self.negatives, NEGATIVES, "source of negatives")
        with suppress(MissingExtra):  # which validation asks for, if there is any
            if len(parse_measures(self.measure)) != 1:
                raise WrongUse(f'measure="{self.measure}": validation maximises one measure, like  AP')
        self._check_loss()

    def _check_loss(self) -> None:
        if self.loss:
            soft_loss(self.loss)
        if self.denoise:
            notation.make(self.denoise, DENOISERS, "bound of negatives")
        if not 0 <= self.judged < 1:
            raise WrongUse(
                f"judged={self.judged}: the share of the loss on judged pairs is from 0 to below 1"
            )
        if (self.judged or self.crossed) and not self.loss:
            raise WrongUse(
                f"judged={self.judged}, crossed={self.crossed}: they have a meaning with a loss on scores; "
                'give loss="margin-mse", say'
            )


def defaults(family: str) -> Settings:
    """Return the settings of a family's paper.

    Raises:
        WrongUse: No such family, or none that is trained here; lists those there are.
    """
    trained = {name: one.settings for name, one in FAMILIES.items() if one.settings is not None}
    return Settings(**notation.choose(family, trained, "family with training settings"))
