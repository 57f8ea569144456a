"""The one training loop: lessons, steps, validation, the best kept, and a place to go on from after a kill.

A training owns a folder: ``ranker`` (the best model so far, a bundle), ``log.jsonl``, ``settings.json``,
``untaught.run`` (what the model made of validation before the first step) and, when it is done,
``outcome.json``; while it goes on also ``checkpoint.safetensors``.
Started again with the same model, examples, settings and validation it goes on from the last checkpoint; in
one process on one thread it ends with the same bits as if it had never been stopped. A finished one is given
back as it is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from torch import nn

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.locks import only_writer
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Run
from rankhouse.core.trec import write_run
from rankhouse.models.contract import Model
from rankhouse.models.families import FAMILIES
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.compute import Compute
from rankhouse.training import checkpoint
from rankhouse.training import diagnostics as watch
from rankhouse.training import state as folder
from rankhouse.training.batches import Groups, Lessons, shape_of
from rankhouse.training.checkpoint_schedule import Keeper, load_best, training_name
from rankhouse.training.examples import Examples
from rankhouse.training.learning_rate import Moment
from rankhouse.training.log import Journal
from rankhouse.training.settings import Settings
from rankhouse.training.state import Outcome, Standing
from rankhouse.training.steps import Part, Stepper, Taken
from rankhouse.training.validation import Judge, Validation, interval

Encoded = tuple[int, Groups, list[Part | None]]
"""A batch's number in its epoch, the batch, and its parts."""

_AHEAD = 2
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
    lessons = Lessons(examples, shape_of(model.lesson, settings))
    judge = Judge(validation, settings.measure) if validation else None
    name = training_name(model, examples, settings, validation)
    stepper = Stepper(model, settings)
    with ExitStack() as stack:
        if not stepper.rank:
            stack.enter_context(only_writer(out))
        if (done := folder.finished(out, name)) is not None:
            load_best(model, out)
            return done
        found = folder.find(out, name)
        stack.enter_context(checkpoint.seeded(settings.seed + stepper.rank))
        training = _Training(
            model,
            lessons,
            settings,
            out,
            judge,
            stepper,
            found.standing,
            Keeper(model, stepper, out, dict(use or {}), settings.checkpoint_seconds),
            progress or ignore,
        )
        if found.tensors:
            folder.go_on(found, training.network, stepper)
        return training.run()


def _set_temperature(model: Model[Any], settings: Settings) -> None:
    if not settings.temperature:
        return
    if not hasattr(model, "temperature"):
        raise WrongUse(
            f"temperature={settings.temperature}: the loss of a {model.family} has none; leave it out"
        )
    model.temperature = settings.temperature


@dataclass
class _Training:
    """One training at work."""

    model: Model[Any]
    lessons: Lessons
    settings: Settings
    out: Path
    judge: Judge | None
    stepper: Stepper
    standing: Standing
    keeper: Keeper
    tell: Progress
    watch: watch.Watch = field(default_factory=watch.Watch)
    began: float = field(default_factory=time.monotonic)
    seconds_before: float = 0.0
    ahead: deque[tuple[int, Groups, Future[list[Part | None]]]] = field(default_factory=deque)
    looked_at: Groups | None = None

    @property
    def network(self) -> nn.Module:
        """The model as what it also is."""
        return cast(nn.Module, self.model)

    def run(self) -> Outcome:
        """Go on from where it stands to the end."""
        standing, settings = self.standing, self.settings
        self.watch.remarks.update(standing.remarks)
        self.seconds_before = standing.seconds
        self._begin()
        for epoch in range(standing.epoch, settings.epochs):
            if standing.stopped or self._enough:
                break
            self._epoch(epoch)
        return self._finish()

    @property
    def steps(self) -> int:
        """Steps that all epochs have."""
        every = self.settings.epochs * self.lessons.batches
        return min(every, self.settings.steps) if self.settings.steps else every

    @property
    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    @property
    def _enough(self) -> bool:
        return 0 < self.settings.steps <= self.standing.step

    @property
    def _writes(self) -> bool:
        return self.stepper.rank == 0

    def _begin(self) -> None:
        """Check what can be checked before time is spent, and see what the model is worth as it is."""
        watch.check_lessons(self.lessons, self.watch)
        if self.judge:
            held_out = [q for q in self.judge.validation.queries if q.id in self.judge.validation.run]
            watch.check_overlap(self.lessons.examples.queries, held_out, self.settings.overlap, self.watch)
        if self._writes:
            self.out.mkdir(parents=True, exist_ok=True)
            self.settings.write(self.out / folder.SETTINGS)
            fresh = not (self.standing.step or self.standing.validations)
            validated = [step for step, _ in self.standing.validations]
            if fresh:
                folder.remove_pages(self.out)
            self._journal.forget_after(-1 if fresh else self.standing.step, validated)
        if self.judge:
            if not self.standing.validations:
                self._validate()
            # Also when a training goes on: the checkpoint of step 0 is older than this remark.
            at_start = self.standing.validations[0][1]
            if at_start < self.judge.first_stage and FAMILIES[self.model.family].design:
                watch.check_reach(self.model.family, self.settings, self.steps, self.watch)

    @property
    def _journal(self) -> Journal:
        return Journal(self.out / folder.LOG)

    def _epoch(self, epoch: int) -> None:
        standing = self.standing
        with closing(self._encoded(epoch)) as encoded:
            for number, groups, parts in encoded:
                taken = self.stepper.step(parts, Moment(standing.step, self.steps, epoch, standing.values))
                if taken.trouble:
                    self._break_off(f"at step {standing.step + 1:,} {taken.trouble}")
                    return
                standing.step, standing.batch, self.looked_at = standing.step + 1, number + 1, groups
                self._note(epoch, taken)
                self._after_step()
                if standing.stopped:
                    return
                if self._enough:
                    break
            else:
                standing.epoch, standing.batch = epoch + 1, 0
        self._settle()

    def _encoded(self, epoch: int) -> Generator[Encoded, None, None]:
        """Return the epoch's batches from where it stands, some encoded ahead of the computing."""
        with ThreadPoolExecutor(1, thread_name_prefix="lessons") as pool:
            try:
                for number, groups in enumerate(self.lessons.epoch(epoch)):
                    if number < self.standing.batch:
                        continue
                    work = pool.submit(self.stepper.encode, self.lessons, groups)
                    self.ahead.append((number, groups, work))
                    if len(self.ahead) > _AHEAD:
                        yield self._next()
                while self.ahead:
                    yield self._next()
            finally:
                for _, _, work in self.ahead:
                    work.cancel()
                self.ahead.clear()

    def _next(self) -> Encoded:
        number, groups, work = self.ahead.popleft()
        return number, groups, work.result()

    def _note(self, epoch: int, taken: Taken) -> None:
        """Log and tell a step."""
        standing = self.standing
        standing.losses.append(taken.loss)
        due = len(standing.losses) >= self.settings.log_every or standing.step == self.steps
        if due and self._writes:
            self._log_losses(epoch, taken)
        self.tell(standing.step, self.steps)

    def _log_losses(self, epoch: int, taken: Taken) -> None:
        standing = self.standing
        moment = Moment(standing.step - 1, self.steps, epoch, standing.values)
        self._journal.write(
            step=standing.step,
            epoch=epoch,
            loss=sum(standing.losses) / len(standing.losses),
            rate=self.settings.rate * self.stepper.rates(moment),
            norm=taken.norm,
            seconds=round(self._seconds, 3),
        )
        standing.losses = []

    @cached_property
    def _interval(self) -> int:
        """Steps between validations besides those after epochs; 0 for none."""
        return interval(self.settings, self.steps, self.judge.validation) if self.judge else 0

    def _after_step(self) -> None:
        step, every = self.standing.step, self.settings.checkpoint_every
        if self._interval and step % self._interval == 0:
            self._validate()
        elif every and step % every == 0:
            self._checkpoint(at_once=True)

    def _settle(self) -> None:
        """End an epoch: validate unless that was just done; without validation, keep what there is."""
        if not self.judge:
            self._look()
            self._keep()
            self._checkpoint()
        elif self.standing.validations[-1][0] != self.standing.step:
            self._validate()
        else:
            self._checkpoint()

    def _ranker(self) -> NeuralRanker:
        put_to_work = FAMILIES[self.model.family].ranker
        return put_to_work(self.model, Compute(self.settings.precision, self.stepper.device))

    def _validate(self) -> None:
        """Re-rank and measure; keep the best, stop when nothing better came for long."""
        assert self.judge is not None
        standing, judge = self.standing, self.judge
        wait([work for _, _, work in self.ahead])  # documents are read by one thread at a time
        value, collapsed, trouble, run = 0.0, False, "", Run.of([])
        if self._writes:
            try:
                value, run = judge(self._ranker())
                collapsed = watch.collapsed(run, judge.validation.plan.depth)
            except BadModel as error:
                trouble = str(error)
        value, collapsed, trouble = self.stepper.agree((value, collapsed, trouble))
        if trouble:
            self._break_off(f"at step {standing.step:,} validation failed: {trouble}")
            return
        if self._writes and not standing.validations:
            write_run(run, self.out / folder.UNTAUGHT, "untaught")
        better = not standing.validations or value > standing.best
        standing.validations.append((standing.step, value))
        if collapsed and standing.step:
            watch.say_collapsed(standing.step, self.watch)
        if self._writes:
            self._journal.write(
                step=standing.step,
                epoch=standing.epoch,
                measure=self.settings.measure,
                value=value,
                first_stage=judge.first_stage,
                seconds=round(self._seconds, 3),
            )
        if better:
            self._keep()
        elif 0 < self.settings.patience <= standing.waited:
            standing.stopped = f"no gain in {standing.waited} validations"
        self._checkpoint()

    def _look(self) -> None:
        """Without validation, see on the last lesson whether the model still tells passages apart."""
        if self.looked_at is not None and self._writes:
            pairs = self.lessons.read(self.looked_at).pairs[:_LOOKED_AT]
            if len(pairs) > 1 and watch.spread(self._ranker().score(pairs)) < watch.LEAST_SPREAD:
                watch.say_collapsed(self.standing.step, self.watch)

    def _keep(self) -> None:
        """Keep the model as it is now as the best."""
        if self._writes:
            self.keeper.remember()
        self.standing.best_step = self.standing.step

    def _checkpoint(self, *, at_once: bool = False) -> None:
        standing = self.standing
        standing.remarks, standing.seconds = dict(self.watch.remarks), self._seconds
        if self._writes and (at_once or self.keeper.due):
            self.keeper.save(standing)

    def _break_off(self, trouble: str) -> None:
        """Stop with the last good model, if there is one.

        Raises:
            BadModel: Nothing was learned yet.
        """
        hint = "try a lower rate, clip=1.0, a warm-up, or precision fp32"
        if self.standing.best_step < 1:
            raise BadModel(f"{trouble}, before anything was learned; {hint}")
        self.standing.stopped = trouble
        self.watch.say(
            "trouble",
            f"training stopped: {trouble}; kept is the model of step {self.standing.best_step:,}; {hint}",
        )

    def _finish(self) -> Outcome:
        """Return back the best model and say what came out."""
        standing = self.standing
        if self._writes:
            self.keeper.write_best()
        self.stepper.agree(None)  # process 0 has written the best
        load_best(self.model, self.out)
        if self.judge:
            start = standing.validations[0][1]
            watch.check_outcome(
                standing.best, start, self.judge.first_stage, self.settings.measure, self.watch
            )
            if not standing.stopped:
                watch.check_rise(standing.validations, self.settings, self.watch)
        outcome = Outcome(
            family=self.model.family,
            steps=standing.step,
            epochs=standing.epoch,
            measure=self.settings.measure if self.judge else "",
            first_stage=self.judge.first_stage if self.judge else 0.0,
            best=standing.best if self.judge else 0.0,
            best_step=standing.best_step,
            validations=standing.validations,
            stopped=standing.stopped,
            remarks=list(self.watch.remarks.values()),
            seconds=self._seconds,
            training=standing.training,
        )
        self.stepper.agree(None)  # all have read it
        if self._writes:
            outcome.write(self.out / folder.OUTCOME)
            (self.out / folder.CHECKPOINT).unlink(missing_ok=True)
        return outcome
