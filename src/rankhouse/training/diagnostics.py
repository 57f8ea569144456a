"""Training goes wrong quietly; this file notices and says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rankhouse.core.errors import BadData, WrongUse, name_few, warn
from rankhouse.core.nouns import FloatArray, Query
from rankhouse.core.run import Run
from rankhouse.core.sameness import Texts
from rankhouse.training.examples import NOT_IN_RUN, RELEVANT
from rankhouse.training.settings import Settings
from rankhouse.training.teacher_batches import AnyBatches

LEAST_SPREAD = 1e-5
"""Scores of one query that differ by less than this share of their size are one constant."""


class Remarks:
    """Keeps what was noticed; each kind of remark is made once, as a warning."""

    def __init__(self, remarks: dict[str, str] | None = None) -> None:
        self.texts = dict(remarks or {})

    def say(self, kind: str, text: str) -> None:
        """Warn, unless this kind of thing was said already."""
        if kind not in self.texts:
            self.texts[kind] = text
            warn(text, 3)

    def note(self, kind: str, text: str) -> None:
        """Write down what was asked for, without a warning."""
        self.texts.setdefault(kind, text)


def check_batches(batches: AnyBatches, remarks: Remarks) -> None:
    """Say how much of the training data teaches nothing. Raises BadData: all of it."""
    if not batches.per_epoch:
        raise BadData(
            "no two relevant pairs can stand in one batch, since every passage is relevant to every query, "
            "by way of others at least: there is no contrast to learn; look at the labels, or draw negatives "
            "with count=1"
        )
    queries = len(batches.examples.queries)
    if batches.without_relevant > 0.1 * queries:
        # In a catalogue most entries may have no match; nearly all rather tells of foreign judgements.
        foreign = batches.without_relevant > 0.95 * queries
        hint = "; are judgements, queries and collection of one kind?" if foreign else ""
        remarks.say(
            "no relevant",
            f"{batches.without_relevant:,} of {queries:,} training queries have no relevant passage, so "
            f"nothing is learned from them{hint}",
        )
    relevant = batches.examples.label == RELEVANT
    draws = batches.kind != "positives" and batches.settings.count > 0
    from_run = draws and batches.rule.stop > batches.rule.start
    unfound = int((batches.examples.rank[relevant] == NOT_IN_RUN).sum())
    if from_run and (batches.examples.rank != NOT_IN_RUN).any() and unfound > 0.5 * relevant.sum():
        remarks.say(
            "not in the run",
            f"{unfound:,} of {int(relevant.sum()):,} relevant pairs are not in the run that negatives come "
            "from, so what is learned may be to prefer what the first stage does not find, words in common "
            'the least; leave such pairs out, give a deeper run, or negatives="random"',
        )
    examples, learned = batches.examples, batches.settings.loss or batches.settings.denoise
    if examples.score is not None and examples.teacher is None and not learned:
        remarks.note(
            "scores", "labels are learned, not the scores beside them; --loss margin-mse learns those"
        )
    if batches.negatives:
        remarks.note(
            "false negatives",
            f"{batches.false_negatives:,} of {batches.negatives:,} negatives are left out, since the teacher "
            "puts them near or above the relevant passage of their query",
        )
    if batches.without_negatives:
        remarks.say(
            "no negatives",
            f"{batches.without_negatives:,} relevant pairs are left out since they have no contrast: "
            'their queries have no negative; give a deeper run, or negatives="random"',
        )


def check_overlap(training: Sequence[Query], validation: Iterable[Query], on: str, remarks: Remarks) -> None:
    """Find questions that are both learned from and validated on, whatever their ids, case or punctuation.

    Raises WrongUse: there are some, and ``on`` is "error".
    """
    if on == "allow":
        return
    learned = Texts((query.id, query.text) for query in training)
    held_out = list(validation)
    if both := [query.id for query in held_out if query.text in learned]:
        named = name_few(both, quoted=True)
        text = (
            f"{len(both):,} of {len(held_out):,} validation queries are training queries too ({named}), "
            "so validation says better than it is; "
            'take them out of one side, or say overlap="allow"'
        )
        if on == "error":
            raise WrongUse(text)
        remarks.say("overlap", text)


def check_reach(family: str, settings: Settings, steps: int, remarks: Remarks) -> None:
    """Say when a model that begins from drawn weights will hardly leave them.

    Adam moves a weight by about its rate a step at most. Measured on WikiQA (docs/train.md): with a reach of
    0.1 kernel rankers stay where they were drawn, with 1 they have learned.
    """
    reach = settings.rate * steps
    if settings.optimizer.partition("(")[0].strip() not in {"adam", "adamw"} or reach >= 0.15:
        return
    remarks.say(
        "few steps",
        f"{steps:,} steps at rate {settings.rate:g} move a weight by at most about {reach:.2g}, which is "
        f"little for a {family} that begins from drawn weights (its paper takes some 100,000 steps): give "
        "more epochs, and with few judgements ten times the rates, like rate=1e-2",
    )


def collapsed(run: Run, depth: int) -> bool:
    """Return whether a ranker says nearly the same of every document it read."""
    spreads = [spread(run[query_id].scores[:depth]) for query_id in run if len(run[query_id].scores) > 1]
    return bool(spreads) and float(np.mean(np.array(spreads) < LEAST_SPREAD)) >= 0.9


def spread(scores: FloatArray) -> float:
    """Return how far apart scores (k,) are, relative to their size; 0 when all are one number."""
    if len(scores) < 2:
        return 0.0
    width = float(scores.max()) - float(scores.min())
    return width / max(1e-30, float(np.abs(scores).max()))


def say_collapsed(step: int, remarks: Remarks) -> None:
    """Say that scores have become one constant."""
    remarks.say(
        "collapsed",
        f"at step {step:,} the model gives all documents of a query nearly the same score: it has collapsed "
        "and ranks no longer; try a lower rate, a warm-up, clip=1.0, or other start vectors",
    )


def check_outcome(best: float, start: float, first_stage: float, measure: str, remarks: Remarks) -> None:
    """Say if training brought less than there was without it."""
    if best < first_stage:
        remarks.say(
            "below the first stage",
            f"the best validation, {measure} {best:.4f}, is below the first stage's {first_stage:.4f}: "
            "re-ranking with this model makes results worse; train longer, with more pairs or other "
            "settings, interpolate with the first stage, or learn a teacher's scores first (--teacher)",
        )
    if best <= start:
        remarks.say(
            "no gain",
            f"no validation was better than that before the first step, {measure} {start:.4f}; "
            "what is kept is the model as it was given",
        )


def check_encoder(best: float, encoder: float, ranker: str, measure: str, remarks: Remarks) -> None:
    """Say if training made less of an encoder than it was by itself."""
    if best <= encoder:
        remarks.say(
            "below the encoder",
            f"the best validation, {measure} {best:.4f}, is not above {encoder:.4f}, which the same "
            f"checkpoint reaches untaught, as --ranker '{ranker}': use that, or learn its scores first "
            "(rankhouse adapt, or --teacher) and the judgements after them, beginning with that training's "
            "folder (--init)",
        )


def check_rise(validations: Sequence[tuple[int, float]], settings: Settings, remarks: Remarks) -> None:
    """Say if validation was still rising when training ended.

    It was when the last validation is the best, and the last third of the steps brought more than a tenth of
    the whole gain: learning that levels off like 1 - exp(-t) has a fifteenth of its way before it then.
    """
    last, best = validations[-1]
    early = [(value, step) for step, value in validations if 3 * step <= 2 * last]
    late = len(validations) - len(early)
    if late < 2 or best <= max(value for _, value in validations[:-1]):
        return
    before, at = max(early)
    if best - before > 0.1 * (best - validations[0][1]):
        longer = f"--set steps={2 * last}" if settings.steps else f"--epochs {2 * settings.epochs}"
        remarks.say(
            "still rising",
            f"{settings.measure} on validation was still improving when training ended: {before:.4f} after "
            f"{at:,} steps, {best:.4f} after all {last:,}; train longer, with {longer} into another folder",
        )
