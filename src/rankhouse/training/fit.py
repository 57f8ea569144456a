"""The one training loop: batches, steps, validation, the best kept, and a place to go on from after a kill.

Started again with the same model, examples, settings and validation it goes on from the last checkpoint; in
one process on one thread it ends with the same bits as if it had never been stopped. A finished one is given
back as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from torch import nn

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.locks import only_writer
from rankhouse.core.outputs import check_own_folder
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Run
from rankhouse.core.trec import write_run
from rankhouse.models.contract import Model, TemperedModel
from rankhouse.models.families import FAMILIES
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.compute import Compute
from rankhouse.training import checkpoint, diagnostics, folder
from rankhouse.training.batches import Batches, Groups, shape_of
from rankhouse.training.checkpoint_schedule import Snapshots
from rankhouse.training.examples import Examples
from rankhouse.training.learning_rate import Moment
from rankhouse.training.log import TrainingLog
from rankhouse.training.prefetch import Prefetch
from rankhouse.training.settings import Settings
from rankhouse.training.state import Outcome, TrainingState
from rankhouse.training.steps import Stepper, StepResult
from rankhouse.training.validation import Validation, Validator, interval

_LOOKED_AT = 256


def fit(
    model: Model[Any],
    examples: Examples,
    settings: Settings,
    out: Path | str,
    validation: Validation | None = None,
    *,
    use: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train a model on examples; it ends as the best of its validations (without validation: the last).

    Args:
        model: What to teach.
        examples: What to teach it.
        settings: How; start from ``settings.defaults(model.family)``.
        out: The training's folder; if it holds this training already, it goes on from there.
        validation: What to choose the best by.
        use: How documents are meant to be passed to the ranker, for its bundle ("split", "pool").
        progress: Told after every step.

    Raises:
        BadData: Nothing to learn from (labels of one class), or no validation query is judged.
        BadModel: Loss or gradients are not numbers before anything was learned.
        WrongUse: The folder holds another training.
        OutputFailed: A file cannot be written; the best so far is still there.
    """
    out = Path(out)
    _set_temperature(model, settings)
    batches = Batches(examples, shape_of(model.objective, settings))
    validator = Validator(validation, settings.measure) if validation else None
    name = folder.training_name(model, examples, settings, validation)
    stepper = Stepper(model, settings)
    with ExitStack() as stack:
        if not stepper.rank:
            stack.enter_context(only_writer(out))
            check_own_folder(out, folder.MARKS)
        if (done := folder.finished(out, name)) is not None:
            folder.load_best(model, out)
            return done
        point = folder.resume_point(out, name)
        stack.enter_context(checkpoint.seeded(settings.seed + stepper.rank))
        training = _Training(
            model,
            batches,
            settings,
            out,
            validator,
            stepper,
            point.state,
            Snapshots(model, stepper, out, dict(use or {}), settings.checkpoint_seconds),
            progress or ignore,
        )
        if point.tensors:
            folder.restore(point, training.network, stepper)
        return training.run()


def _set_temperature(model: Model[Any], settings: Settings) -> None:
    if not settings.temperature:
        return
    if not isinstance(model, TemperedModel):
        raise WrongUse(
            f"temperature={settings.temperature}: the loss of a {model.family} has none; leave it out"
        )
    model.temperature = settings.temperature


@dataclass
class _Training:
    """One training at work."""

    model: Model[Any]
    batches: Batches
    settings: Settings
    out: Path
    validator: Validator | None
    stepper: Stepper
    state: TrainingState
    snapshots: Snapshots
    tell: Progress
    remarks: diagnostics.Remarks = field(default_factory=diagnostics.Remarks)
    began: float = field(default_factory=time.monotonic)
    seconds_before: float = 0.0
    looked_at: Groups | None = None

    @property
    def network(self) -> nn.Module:
        """The model as what it also is."""
        return cast(nn.Module, self.model)

    def run(self) -> Outcome:
        """Go on from where it stands to the end."""
        state, settings = self.state, self.settings
        self.remarks.texts.update(state.remarks)
        self.seconds_before = state.seconds
        self._begin()
        for epoch in range(state.epoch, settings.epochs):
            if state.stopped or self._enough:
                break
            self._epoch(epoch)
        return self._finish()

    @property
    def steps(self) -> int:
        """Steps that all epochs have."""
        every = self.settings.epochs * self.batches.per_epoch
        return min(every, self.settings.steps) if self.settings.steps else every

    @property
    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    @property
    def _enough(self) -> bool:
        return 0 < self.settings.steps <= self.state.step

    @property
    def _writes(self) -> bool:
        return self.stepper.rank == 0

    def _begin(self) -> None:
        """Check what can be checked before time is spent, and see what the model is worth as it is."""
        diagnostics.check_batches(self.batches, self.remarks)
        if self.validator:
            held_out = [q for q in self.validator.validation.queries if q.id in self.validator.validation.run]
            learned, on = self.batches.examples.queries, self.settings.overlap
            diagnostics.check_overlap(learned, held_out, on, self.remarks)
        if self._writes:
            self.out.mkdir(parents=True, exist_ok=True)
            self.settings.write(self.out / folder.SETTINGS)
            fresh = not (self.state.step or self.state.validations)
            validated = [step for step, _ in self.state.validations]
            if fresh:
                folder.remove_pages(self.out)
            self._log_file.forget_after(-1 if fresh else self.state.step, validated)
        if self.validator:
            if not self.state.validations:
                self._validate()
            # Also when a training goes on: the checkpoint of step 0 is older than this remark.
            at_start = self.state.validations[0][1]
            if at_start < self.validator.first_stage and FAMILIES[self.model.family].design:
                diagnostics.check_reach(self.model.family, self.settings, self.steps, self.remarks)

    @property
    def _log_file(self) -> TrainingLog:
        return TrainingLog(self.out / folder.LOG)

    def _epoch(self, epoch: int) -> None:
        state = self.state
        with closing(self.ahead.batches(epoch, state.batch)) as encoded:
            for number, groups, parts in encoded:
                result = self.stepper.step(parts, Moment(state.step, self.steps, epoch, state.values))
                if result.trouble:
                    self._break_off(f"at step {state.step + 1:,} {result.trouble}")
                    return
                state.step, state.batch, self.looked_at = state.step + 1, number + 1, groups
                self._note(epoch, result)
                self._after_step()
                if state.stopped:
                    return
                if self._enough:
                    break
            else:
                state.epoch, state.batch = epoch + 1, 0
        self._settle()

    def _note(self, epoch: int, result: StepResult) -> None:
        """Log and tell a step."""
        state = self.state
        state.losses.append(result.loss)
        due = len(state.losses) >= self.settings.log_every or state.step == self.steps
        if due and self._writes:
            self._log_losses(epoch, result)
        self.tell(state.step, self.steps)

    def _log_losses(self, epoch: int, result: StepResult) -> None:
        state = self.state
        moment = Moment(state.step - 1, self.steps, epoch, state.values)
        self._log_file.write(
            step=state.step,
            epoch=epoch,
            loss=sum(state.losses) / len(state.losses),
            rate=self.settings.rate * self.stepper.rates(moment),
            norm=result.norm,
            seconds=round(self._seconds, 3),
        )
        state.losses = []

    @cached_property
    def ahead(self) -> Prefetch:
        """Encodes batches while others are computed."""
        return Prefetch(self.batches, self.stepper)

    @cached_property
    def _interval(self) -> int:
        """Steps between validations besides those after epochs; 0 for none."""
        return interval(self.settings, self.steps, self.validator.validation) if self.validator else 0

    def _after_step(self) -> None:
        step, every = self.state.step, self.settings.checkpoint_every
        if self._interval and step % self._interval == 0:
            self._validate()
        elif every and step % every == 0:
            self._checkpoint(at_once=True)

    def _settle(self) -> None:
        """End an epoch: validate unless that was just done; without validation, keep what there is."""
        if not self.validator:
            self._look()
            self._keep()
            self._checkpoint()
        elif self.state.validations[-1][0] != self.state.step:
            self._validate()
        else:
            self._checkpoint()

    def _ranker(self) -> NeuralRanker:
        put_to_work = FAMILIES[self.model.family].ranker
        return put_to_work(self.model, Compute(self.settings.precision, self.stepper.device))

    def _validate(self) -> None:
        """Re-rank and measure; keep the best, stop when nothing better came for long."""
        assert self.validator is not None
        state, validator = self.state, self.validator
        self.ahead.wait()  # documents are read by one thread at a time
        value, collapsed, trouble, run = 0.0, False, "", Run.of([])
        if self._writes:
            try:
                value, run = validator(self._ranker())
                collapsed = diagnostics.collapsed(run, validator.validation.plan.depth)
            except BadModel as error:
                trouble = str(error)
        value, collapsed, trouble = self.stepper.agree((value, collapsed, trouble))
        if trouble:
            self._break_off(f"at step {state.step:,} validation failed: {trouble}")
            return
        if self._writes and not state.validations:
            write_run(run, self.out / folder.UNTAUGHT, "untaught")
        better = not state.validations or value > state.best
        state.validations.append((state.step, value))
        if collapsed and state.step:
            diagnostics.say_collapsed(state.step, self.remarks)
        if self._writes:
            self._log_file.write(
                step=state.step,
                epoch=state.epoch,
                measure=self.settings.measure,
                value=value,
                first_stage=validator.first_stage,
                seconds=round(self._seconds, 3),
            )
        if better:
            self._keep()
        elif 0 < self.settings.patience <= state.waited:
            state.stopped = f"no gain in {state.waited} validations"
        self._checkpoint()

    def _look(self) -> None:
        """Without validation, see on the last lesson whether the model still tells passages apart."""
        if self.looked_at is not None and self._writes:
            pairs = self.batches.read(self.looked_at).pairs[:_LOOKED_AT]
            if len(pairs) > 1 and diagnostics.spread(self._ranker().score(pairs)) < diagnostics.LEAST_SPREAD:
                diagnostics.say_collapsed(self.state.step, self.remarks)

    def _keep(self) -> None:
        """Keep the model as it is now as the best."""
        if self._writes:
            self.snapshots.remember()
        self.state.best_step = self.state.step

    def _checkpoint(self, *, at_once: bool = False) -> None:
        state = self.state
        state.remarks, state.seconds = dict(self.remarks.texts), self._seconds
        if self._writes and (at_once or self.snapshots.due):
            self.snapshots.save(state)

    def _break_off(self, trouble: str) -> None:
        """Stop with the last good model, if there is one.

        Raises:
            BadModel: Nothing was learned yet.
        """
        hint = "try a lower rate, clip=1.0, a warm-up, or precision fp32"
        if self.state.best_step < 1:
            raise BadModel(f"{trouble}, before anything was learned; {hint}")
        self.state.stopped = trouble
        self.remarks.say(
            "trouble",
            f"training stopped: {trouble}; kept is the model of step {self.state.best_step:,}; {hint}",
        )

    def _finish(self) -> Outcome:
        """Return back the best model and say what came out."""
        state = self.state
        if self._writes:
            self.snapshots.write_best()
        self.stepper.agree(None)  # process 0 has written the best
        folder.load_best(self.model, self.out)
        if self.validator:
            start = state.validations[0][1]
            diagnostics.check_outcome(
                state.best, start, self.validator.first_stage, self.settings.measure, self.remarks
            )
            if not state.stopped:
                diagnostics.check_rise(state.validations, self.settings, self.remarks)
        outcome = Outcome(
            family=self.model.family,
            steps=state.step,
            epochs=state.epoch,
            measure=self.settings.measure if self.validator else "",
            first_stage=self.validator.first_stage if self.validator else 0.0,
            best=state.best if self.validator else 0.0,
            best_step=state.best_step,
            validations=state.validations,
            stopped=state.stopped,
            remarks=list(self.remarks.texts.values()),
            seconds=self._seconds,
            training=state.training,
        )
        self.stepper.agree(None)  # all have read it
        if self._writes:
            outcome.write(self.out / folder.OUTCOME)
            (self.out / folder.CHECKPOINT).unlink(missing_ok=True)
        return outcome
