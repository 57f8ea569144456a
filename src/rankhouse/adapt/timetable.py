"""How long the rest of an adaptation takes, and what of it fits into the minutes that there are."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from torch import nn

from rankhouse.adapt.mining import MINING_SHARE
from rankhouse.adapt.options import STEPS, AdaptOptions, JudgedQuestions
from rankhouse.adapt.pupil import HeldOut
from rankhouse.cli import console
from rankhouse.core.nouns import Pair, Passage, Ranker
from rankhouse.core.progress import clock
from rankhouse.index.index import Index
from rankhouse.io.outputs import write_json
from rankhouse.models.contract import Model
from rankhouse.models.families import FAMILIES
from rankhouse.nn.compute import choose
from rankhouse.training.any_batches import batches_for
from rankhouse.training.examples import Examples
from rankhouse.training.groups import shape_of
from rankhouse.training.learning_rate import Moment
from rankhouse.training.settings import Settings
from rankhouse.training.steps import Stepper

LEAST_STEPS: Final = 50
_VALIDATIONS: Final = 12
"""Of a training: the untaught pupil, ten on the way, the last."""
_SLACK: Final = 1.05
"""Steps take so much longer than measured: reading ahead, the log, checkpoints."""
_SHARES: Final = {"validation": 0.2, "weighing": 0.1}
"""Of what time is left."""
_FEWEST: Final = {"validation": 10, "weighing": 20}
"""Questions, even where they take longer."""
_TIMED, _PAIRS = 12, 64
_MEASURING: Final = 0.03
"""Of the minutes, for measuring steps; two at least are taken."""


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """What is settled once, when all questions are there; in ``steps.json``.

    Attributes:
        steps: Of training.
        step: Seconds of one, mining included.
        validation: Held-out questions that each validation asks.
        weighing: Held-out questions that the pupil's weight is chosen on.
        afterwards: Seconds of all that is no step.
    """

    steps: int
    step: float
    validation: int
    weighing: int
    afterwards: float


@dataclass(frozen=True)
class Work:
    """What is left to be done.

    Attributes:
        model: The pupil.
        examples: What it learns from.
        settings: How.
        apart: The held-out questions.
        teacher: Who is measured beside it on a test.
        test: The test, if there is one.
    """

    model: Model[Any]
    examples: Examples
    settings: Settings
    apart: HeldOut
    teacher: Ranker
    test: JudgedQuestions | None


def timetable(work: Work, index: Index, path: Path, options: AdaptOptions, began: float) -> Timetable:
    """Return how many steps are taken, as given or as many as fit; decided once, and said."""
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Timetable)
    settled = _settle(work, index, options, began)
    seconds = settled.steps * settled.step + settled.afterwards
    console.say(
        f"{len(work.examples.queries):,} questions to learn from; {settled.steps:,} steps of "
        f"{settled.step:.2f} s, about {clock(seconds)} from now"
    )
    write_json(path, msgspec.to_builtins(settled))
    return settled


def _settle(work: Work, index: Index, options: AdaptOptions, began: float) -> Timetable:
    limited = options.minutes and not options.steps
    step = _SLACK * seconds_a_step(work, 60 * _MEASURING * options.minutes if limited else 0)
    step *= 1 + MINING_SHARE * options.mine
    read, everyone = seconds_a_pair(ranker_of(work), work.apart, index), len(work.apart.queries)
    test = 0.0
    if work.test is not None:
        each = read + seconds_a_pair(work.teacher, work.apart, index)
        test = len(work.test.queries) * options.depth * each
    left = 60 * options.minutes - (time.monotonic() - began)
    rows = work.apart.validation(index).rows, sum(len(r.doc_ids) for r in work.apart.first.values())
    times = (1 + options.mine) * _VALIDATIONS, 1
    one = {name: n * k * read / everyone for name, n, k in zip(_SHARES, rows, times, strict=True)}
    asked = dict.fromkeys(one, everyone)
    if limited:
        fitting = {name: int(_SHARES[name] * left / one[name]) if one[name] else everyone for name in one}
        asked = {name: min(everyone, max(_FEWEST[name], fitting[name])) for name in one}
    afterwards = test + sum(asked[name] * one[name] for name in one)
    steps = options.steps or STEPS
    if limited:
        steps = max(LEAST_STEPS, int((left - afterwards) / step))
        if left - afterwards < LEAST_STEPS * step:
            console.warn(
                f"asking, encoding and measuring take most of the {options.minutes:g} minutes; {LEAST_STEPS} "
                "steps are taken all the same, which teach little: give more minutes in another folder"
            )
    return Timetable(steps=steps, step=round(step, 4), afterwards=round(afterwards, 1), **asked)


def ranker_of(work: Work) -> Ranker:
    """Return the pupil as it is now, put to work in the precision that it is taught in."""
    compute = choose(work.settings.precision, work.settings.device)
    return FAMILIES[work.model.family].ranker(work.model, compute)


def seconds_a_step(work: Work, most: float) -> float:
    """Measure a step, the first ones left out; the model's weights are put back.

    Args:
        most: Seconds that may be spent; 0: no limit.
    """
    network = cast(nn.Module, work.model)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    stepper = Stepper(work.model, work.settings)
    batches = batches_for(work.examples, shape_of(work.model.objective, work.settings), work.settings)
    times: list[float] = []
    for number, tasks in enumerate(islice(batches.plan(0), _TIMED)):
        started = time.perf_counter()
        stepper.step(stepper.encode(tasks), Moment(number, 10 * _TIMED, 0))
        times.append(time.perf_counter() - started)
        if most and len(times) > 1 and sum(times) > most:
            break
    network.load_state_dict(before)
    network.zero_grad(set_to_none=True)
    timed = times[-(-len(times) // 3) :] or times
    return sum(timed) / max(1, len(timed))


def seconds_a_pair(ranker: Ranker, apart: HeldOut, index: Index) -> float:
    """Measure how long a ranker takes to read a pair."""
    pairs = [
        Pair(query, Passage(doc_id, 0, index.documents[doc_id].full_text))
        for query in apart.queries
        for doc_id in islice(apart.first[query.id].doc_ids, 2 * _PAIRS // len(apart.queries) + 1)
    ][: 2 * _PAIRS]
    ranker.score(pairs[::2])  # the first call starts things
    timed = pairs[1::2] or pairs
    started = time.perf_counter()
    ranker.score(timed)
    return (time.perf_counter() - started) / len(timed)
