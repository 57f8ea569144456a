"""An index and a teacher become a ranker of one's own: questions, candidates, scores, pupil, weight, report.

Everything is written into one folder as it is made, so that a killed adaptation goes on where it was.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rankhouse.app.adapt.options import AdaptOptions, JudgedQuestions, Show
from rankhouse.app.adapt.pupil import (
    HeldOut,
    begin_pupil,
    examples_of,
    held_out,
    settings_of,
    teach,
)
from rankhouse.app.adapt.questions import questions
from rankhouse.app.adapt.report import AdaptResult, weigh, write_report
from rankhouse.app.adapt.timetable import Work, timetable
from rankhouse.app.rankers import ComputeOptions, open_ranker
from rankhouse.core.errors import WrongUse
from rankhouse.core.locks import only_writer
from rankhouse.core.nouns import Query, Ranker, fingerprint_of
from rankhouse.core.outputs import check_own_folder, replacing_folder, write_json
from rankhouse.index.index import Index

PLAN, QUESTIONS, TRAINING, RANKER, RESULT = "plan.json", "questions", "training", "ranker", "adapted.json"
TAUGHT, STEPS_FILE = "taught.qrels", "steps.json"


def adapt_with(
    index: Index,
    teacher: Ranker,
    out: Path,
    options: AdaptOptions,
    show: Show,
    people: Sequence[Query] = (),
    test: JudgedQuestions | None = None,
) -> AdaptResult:
    """Adapt a ranker to a collection, learning from a teacher without judgements.

    Args:
        index: The documents, read whole.
        teacher: Whose scores are learned; a bi-encoder teaches quickest.
        out: The folder; given again, a killed adaptation goes on from there.
        options: How.
        show: Shows how far each part of the work is.
        people: Questions of people, without judgements, to be learned from as well.
        test: Judged questions to measure by.

    Raises:
        WrongUse: The folder holds another adaptation.
        BadData: The documents ask no question that comes back.
    """
    began = time.monotonic()
    with only_writer(out):
        check_own_folder(out, (PLAN,))
        out.mkdir(parents=True, exist_ok=True)
        _check_plan(out, index, teacher, options, [*people, *(test.queries if test else ())])
        avoid = list(test.queries) if test else []
        found = questions(index, teacher, people, avoid, out / QUESTIONS, (options, show))
        apart = held_out(found, index, out / QUESTIONS / TAUGHT, options.minutes, show)
        model = begin_pupil(index, teacher, out, options)
        examples = examples_of(found, index, apart)
        settings = settings_of(model.family, found.teacher, options)
        work = Work(model, examples, settings, apart, teacher, test)
        settled = timetable(work, index, out / STEPS_FILE, options, began)
        settings = settings.but(steps=settled.steps)
        validation = apart.few(settled.validation).validation(index)
        outcome = teach(model, examples, settings, out / TRAINING, validation, show)
        if not (out / RANKER).exists():
            with replacing_folder(out / RANKER, lambda _: ()) as temporary:
                shutil.copytree(out / TRAINING / RANKER, temporary)
        apart = apart.few(settled.weighing)
        return _finish(
            index, teacher, out, (options, len(examples.queries), apart, show), test, outcome.steps
        )


def _check_plan(
    out: Path, index: Index, teacher: Ranker, options: AdaptOptions, asked: Sequence[Query]
) -> None:
    """Refuse a folder of another adaptation; write down what this one is."""
    text = [f"{query.id}\t{query.text}" for query in asked]
    plan = {"index": index.fingerprint, "teacher": fingerprint_of(teacher), "queries": text}
    plan |= {"options": msgspec.to_builtins(options)}
    path = out / PLAN
    if path.exists():
        before = msgspec.json.decode(path.read_bytes())
        now = msgspec.json.decode(msgspec.json.encode(plan))
        changed = [name for name in now if before.get(name) != now[name]]
        if changed:
            raise WrongUse(
                f"{out}: holds another adaptation ({', '.join(changed)} differ); give the same ones to go on "
                "with it, or adapt into another folder"
            )
        return
    write_json(path, plan)


def _finish(
    index: Index,
    teacher: Ranker,
    out: Path,
    work: tuple[AdaptOptions, int, HeldOut, Show],
    test: JudgedQuestions | None,
    steps: int,
) -> AdaptResult:
    """Weigh the pupil against the first stage, and report."""
    options, learned, apart, show = work
    pupil = open_ranker(str(out), ComputeOptions("fp32"))
    weights = weigh(pupil, apart, index, options.depth, show("weighing the pupil"))
    result = AdaptResult(
        ranker=str(out),
        steps=steps,
        questions=learned,
        pupil_weight=weights.pupil,
        first_stage=options.first_stage,
        held_out=weights.values,
        test=write_report(out, index, (pupil, teacher, weights.pupil), (options, test, show)),
    )
    write_json(out / RESULT, msgspec.to_builtins(result))
    return result
