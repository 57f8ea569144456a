"""Training: examples teach a model, validation chooses the best of it, and a killed training goes on.

Started again with the same model, examples, settings and validation it resumes from the last checkpoint; in
one process on one thread it ends with the same bits as if it had never been stopped. A finished one is given
back as it is.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from torch import nn

from rankhouse.core.errors import BadModel, RankhouseWarning, WrongUse
from rankhouse.core.progress import Progress, counted, ignore
from rankhouse.core.run import Run
from rankhouse.io.checksums import write_checked
from rankhouse.io.outputs import check_own_folder, only_writer
from rankhouse.io.scratch import tidy
from rankhouse.io.trec import write_run
from rankhouse.models.contract import HeadedModel, Model, TemperedModel, TowerModel
from rankhouse.models.families import FAMILIES, open_model
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.machine import Compute
from rankhouse.training import checkpoint, diagnostics, folder
from rankhouse.training.batches import BatchTask
from rankhouse.training.examples import Examples
from rankhouse.training.folder import Snapshots, TrainingOutcome, TrainingState
from rankhouse.training.log import TrainingLog
from rankhouse.training.optimizer import Moment
from rankhouse.training.settings import Settings
from rankhouse.training.steps import Prefetch, Stepper, StepResult
from rankhouse.training.teacher_batches import AnyBatches, batches_for
from rankhouse.training.validation import Validation, Validator, early, interval


@dataclass
class _TrainingLoop:
    """One training at work."""

    model: Model[Any]
    batches: AnyBatches
    settings: Settings
    out: Path
    validator: Validator | None  # what chooses the best; None keeps the last
    stepper: Stepper
    state: TrainingState  # where training stands; moves on as it runs
    snapshots: Snapshots
    tell: Progress

    def __post_init__(self) -> None:
        self.remarks = diagnostics.Remarks(self.state.remarks)
        self._began = time.monotonic() - self.state.seconds  # as if it had never been stopped
        self._last_tasks: list[BatchTask] | None = None
        self._writes, self._log = self.stepper.rank == 0, TrainingLog(self.out / folder.LOG)
        self._ahead = Prefetch(self.batches, self.stepper)
        every, most = self.settings.epochs * self.batches.per_epoch, self.settings.steps
        self.steps = min(every, most) if most else every
        # What the encoder is without the head that was drawn over it; "" if it is nothing.
        self._encoder = self.model.encoder_ranker if isinstance(self.model, HeadedModel) else ""

    def run(self) -> TrainingOutcome:
        """Go on from where it stands to the end."""
        state = self.state
        self.tell(state.step, self.steps)
        self._begin()
        for epoch in range(state.epoch, self.settings.epochs):
            if state.stopped or self._enough:
                break
            self._epoch(epoch)
        return self._finish()

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def _enough(self) -> bool:
        return 0 < self.settings.steps <= self.state.step

    def _begin(self) -> None:
        """Check what can be checked before time is spent, and see what the model is worth as it is."""
        diagnostics.check_batches(self.batches, self.remarks)
        if self.validator:
            held_out = [q for q in self.validator.validation.queries if q.id in self.validator.validation.run]
            learned, on = self.batches.examples.queries, self.settings.overlap
            diagnostics.check_overlap(learned, held_out, on, self.remarks)
            if self.validator.remark:
                self.remarks.say("validation queries", self.validator.remark)
        if self._writes:
            self.out.mkdir(parents=True, exist_ok=True)
            self.settings.write(self.out / folder.SETTINGS)
            fresh = not (self.state.step or self.state.validations)
            validated = [step for step, _ in self.state.validations]
            for page in folder.PAGES if fresh else ():  # of the training that stood here before
                (self.out / page).unlink(missing_ok=True)
            self._log.forget_after(-1 if fresh else self.state.step, validated)
        if self.validator:
            if not self.state.validations:
                self.state.encoder = self._encoder_value()
                self._validate()
            # Also when a training resumes: the checkpoint of step 0 is older than this remark.
            at_start = self.state.validations[0][1]
            if at_start < self.validator.first_stage and FAMILIES[self.model.family].design:
                diagnostics.check_reach(self.model.family, self.settings, self.steps, self.remarks)

    def _write_line(self, epoch: int, **numbers: object) -> None:
        if self._writes:
            self._log.write(step=self.state.step, epoch=epoch, **numbers, seconds=round(self._seconds, 3))

    def _epoch(self, epoch: int) -> None:
        state = self.state
        with closing(self._ahead.batches(epoch, state.batch)) as encoded:
            for number, tasks, parts in encoded:
                result = self.stepper.step(parts, Moment(state.step, self.steps, epoch, state.values))
                if result.trouble:
                    self._break_off(f"at step {state.step + 1:,} {result.trouble}")
                    return
                state.step, state.batch, self._last_tasks = state.step + 1, number + 1, tasks
                self._note(epoch, result)
                if state.step in self._early or (self._interval and state.step % self._interval == 0):
                    self._validate()
                elif self.settings.checkpoint_every and state.step % self.settings.checkpoint_every == 0:
                    self._checkpoint(at_once=True)
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
        if len(state.losses) >= self.settings.log_every or state.step == self.steps:
            moment = Moment(state.step - 1, self.steps, epoch, state.values)
            rate = self.settings.rate * self.stepper.rates(moment)
            self._write_line(epoch, loss=sum(state.losses) / len(state.losses), rate=rate, norm=result.norm)
            state.losses = []
        self.tell(state.step, self.steps)

    @cached_property
    def _interval(self) -> int:
        """Steps between validations besides those after epochs; 0 for none."""
        return interval(self.settings, self.steps, self.validator.validation) if self.validator else 0

    @cached_property
    def _early(self) -> frozenset[int]:
        """Steps of validations within the first interval, where there was something to lose at the start."""
        settings, validations = self.settings, self.state.validations
        if not self.validator or settings.patience or settings.validate_every != "auto":
            return frozenset()
        return early(self._interval) if validations[0][1] > self.validator.first_stage else frozenset()

    def _settle(self) -> None:
        """End an epoch: validate unless that was just done; without validation, keep what there is."""
        state = self.state
        wanted = self.settings.validate_every != "steps" or state.step >= self.steps
        if not self.validator:
            self._look()
            self._keep()
        elif wanted and state.validations[-1][0] != state.step:
            self._validate()
            return
        self._checkpoint()

    def _ranker(self, model: Model[Any]) -> NeuralRanker:
        put_to_work = FAMILIES[model.family].ranker
        return put_to_work(model, Compute(self.settings.precision, self.stepper.device))

    def _encoder_value(self) -> float | None:
        """Measure what the encoder is worth by its own similarity; a drawn head says nothing of that."""
        if not (self._encoder and self.validator):
            return None
        value, measure = 0.0, self.settings.measure
        if self._writes:
            ranker = self._ranker(open_model(self._encoder))
            with warnings.catch_warnings():  # what re-ranking warns of is said of the model itself
                warnings.simplefilter("ignore", RankhouseWarning)
                value, run = Validator(self.validator.validation, measure)(ranker)
            write_run(run, self.out / folder.ENCODER, "encoder")
            self._write_line(0, measure=measure, encoder=value)
        return float(self.stepper.agree(value))

    def _validate(self) -> None:
        """Re-rank and measure; keep the best, stop when nothing better came for long."""
        assert self.validator is not None
        state, validator = self.state, self.validator
        self._ahead.wait()  # documents are read by one thread at a time
        value, collapsed, trouble, run = 0.0, False, "", Run.of([])
        if self._writes:
            try:
                value, run = validator(self._ranker(self.model))
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
        measure, first_stage = self.settings.measure, validator.first_stage
        sets = {"sets": validator.by_set(run)} if self._writes and validator.validation.sets else {}
        self._write_line(state.epoch, measure=measure, value=value, first_stage=first_stage, **sets)
        if better:
            self._keep()
        elif 0 < self.settings.patience <= state.waited:
            state.stopped = f"no gain in {state.waited} validations"
        self._checkpoint()

    def _look(self) -> None:
        """Without validation, see on the last batch whether the model still tells passages apart."""
        if self._last_tasks is not None and self._writes:
            last = self._last_tasks[0]
            pairs = last.read(last.groups).pairs[:256]
            spread = diagnostics.spread(self._ranker(self.model).score(pairs)) if len(pairs) > 1 else 1.0
            if spread < diagnostics.LEAST_SPREAD:
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
        """Stop with the last good model, if there is one."""
        hint = "try a lower rate, clip=1.0, a warm-up, or precision fp32"
        if self.state.best_step < 1:
            raise BadModel(f"{trouble}, before anything was learned; {hint}")
        self.state.stopped = trouble
        self.remarks.say(
            "trouble",
            f"training stopped: {trouble}; kept is the model of step {self.state.best_step:,}; {hint}",
        )

    @property
    def _reason(self) -> str:
        """Why training ended, in words."""
        state, wanted, epochs = self.state, self.settings.steps, self.settings.epochs
        if state.stopped or self._enough:
            return state.stopped or f"steps={wanted} are done"
        over = f"all of epochs={epochs} are over"
        if wanted:
            more = -(-wanted // self.batches.per_epoch)
            over += f", after {counted(state.step, 'step')}; steps={wanted} would take --epochs {more}"
        return over

    def _finish(self) -> TrainingOutcome:
        """Load the best model back and report."""
        state = self.state
        if self._writes:
            self.snapshots.write_best()
        self.stepper.agree(None)  # process 0 has written the best
        folder.load_best(self.model, self.out)
        measure, first_stage, start, best = "", 0.0, 0.0, 0.0
        if self.validator:
            measure, first_stage = self.settings.measure, self.validator.first_stage
            start, best = state.validations[0][1], state.best
            diagnostics.check_outcome(best, start, first_stage, measure, remarks=self.remarks)
            if state.encoder is not None:
                diagnostics.check_encoder(best, state.encoder, self._encoder, measure, remarks=self.remarks)
            if not state.stopped:
                diagnostics.check_rise(state.validations, self.settings, self.remarks)
        outcome = TrainingOutcome(
            family=self.model.family,
            steps=state.step,
            epochs=state.epoch,
            measure=measure,
            first_stage=first_stage,
            untaught=start,
            encoder=state.encoder,
            best=best,
            best_step=state.best_step,
            validations=state.validations,
            stopped=state.stopped,
            ended=self._reason,
            remarks=list(self.remarks.texts.values()),
            seconds=self._seconds,
            training=state.training,
        )
        self.stepper.agree(None)  # all have read it
        if self._writes:
            write_checked(self.out / folder.OUTCOME, outcome, [self.out / name for name in folder.KEPT])
            (self.out / folder.CHECKPOINT).unlink(missing_ok=True)
        return outcome


def prepare(model: Model[Any], settings: Settings) -> None:
    """Give a model what settings change of it; twice is as good as once.

    Raises:
        WrongUse: It has no temperature, or no encoder of queries.
    """
    if settings.temperature:
        if not isinstance(model, TemperedModel):
            raise WrongUse(
                f"temperature={settings.temperature}: the loss of a {model.family} has none; leave it out"
            )
        model.temperature = settings.temperature
    if isinstance(model, TowerModel):
        model.learn(settings.tower)
    elif settings.tower == "query":
        raise WrongUse(
            f'tower="query": a {model.family} has no encoder of queries alone; leave it out, or train a '
            "biencoder"
        )


def fit(
    model: Model[Any],
    examples: Examples,
    settings: Settings,
    out: Path | str,
    validation: Validation | None = None,
    *,
    use: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> TrainingOutcome:
    """Train a model on examples; it ends as the best of its validations (without validation: the last).

    Args:
        out: The training's folder; if it holds this training already, it resumes.
        use: How documents are meant to be passed to the ranker, for its bundle ("split", "pool").

    Raises:
        BadData: Nothing to learn from (labels of one class), or no validation query is judged.
        BadModel: Loss or gradients are not numbers before anything was learned.
        WrongUse: The folder holds another training.
        OutputFailed: A file cannot be written; the best so far is still there.
    """
    out = Path(out)
    prepare(model, settings)
    batches = batches_for(examples, model.objective, settings)
    validator = Validator(validation, settings.measure) if validation else None
    name = folder.training_name(model, examples, settings, validation)
    stepper = Stepper(model, settings)
    with ExitStack() as stack:
        if not stepper.rank:
            stack.enter_context(only_writer(out))
            check_own_folder(out, folder.MARKS)
            tidy(out)
        if (done := folder.finished(out, name, settings)) is not None:
            folder.load_best(model, out)
            return done
        point, tensors = folder.resume_point(out, name, settings)
        stack.enter_context(checkpoint.seeded(settings.seed + stepper.rank))
        if tensors:
            checkpoint.restore(point, tensors, cast(nn.Module, model), stepper.optimiser)
        return _TrainingLoop(
            model,
            batches,
            settings,
            out,
            validator=validator,
            stepper=stepper,
            state=point.standing,
            snapshots=Snapshots(model, stepper, out, use or {}, seconds=settings.checkpoint_seconds),
            tell=progress or ignore,
        ).run()
