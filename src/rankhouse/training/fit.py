"""Training: examples teach a model, validation chooses the best of it, and a killed training goes on.

Started again with the same model, examples, settings and validation it goes on from the last checkpoint; in
one process on one thread it ends with the same bits as if it had never been stopped. A finished one is given
back as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rankhouse.core.errors import WrongUse
from rankhouse.core.progress import Progress, ignore
from rankhouse.io.locks import only_writer
from rankhouse.io.outputs import check_own_folder
from rankhouse.io.scratch import tidy
from rankhouse.models.contract import Model, TemperedModel
from rankhouse.training import checkpoint, folder
from rankhouse.training.any_batches import batches_for
from rankhouse.training.checkpoint_schedule import Snapshots
from rankhouse.training.examples import Examples
from rankhouse.training.groups import shape_of
from rankhouse.training.loop import TrainingLoop
from rankhouse.training.settings import Settings
from rankhouse.training.state import Outcome
from rankhouse.training.steps import Stepper
from rankhouse.training.validation import Validation, Validator


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
    batches = batches_for(examples, shape_of(model.objective, settings), settings)
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
        point = folder.resume_point(out, name, settings)
        stack.enter_context(checkpoint.seeded(settings.seed + stepper.rank))
        if point.tensors:
            folder.restore(point, model, stepper)
        snapshots = Snapshots(model, stepper, out, use or {}, settings.checkpoint_seconds)
        tell = progress or ignore
        return TrainingLoop(
            model, batches, settings, out, validator, stepper, point.state, snapshots, tell
        ).run()


def _set_temperature(model: Model[Any], settings: Settings) -> None:
    if not settings.temperature:
        return
    if not isinstance(model, TemperedModel):
        raise WrongUse(
            f"temperature={settings.temperature}: the loss of a {model.family} has none; leave it out"
        )
    model.temperature = settings.temperature
