"""An index and a teacher become a ranker: questions, candidates, scores, student, weight, report.

Everything is written into one folder as it is made, so that a killed adaptation resumes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rankhouse.adaptation.mining import Mined, mine
from rankhouse.adaptation.options import AdaptOptions, JudgedQuestions, Show, design_of
from rankhouse.adaptation.questions import Questions, questions
from rankhouse.adaptation.report import AdaptResult, weigh, write_report
from rankhouse.adaptation.student import (
    Remaining,
    Timetable,
    begin_student,
    examples_of,
    held_out,
    ranker_of,
    settings_of,
    teach,
    timetable,
)
from rankhouse.core.arguments import changed
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query, Ranker, fingerprint_of
from rankhouse.index.index import Index
from rankhouse.io.locks import only_writer
from rankhouse.io.outputs import check_own_folder, replacing_folder, write_json
from rankhouse.models.bundle import MANIFEST, read_manifest
from rankhouse.models.families import FAMILIES
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.training.validation import Validation

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
        teacher: Whose scores are learned; a bi-encoder teaches quickest.
        out: The folder; given again, a killed adaptation resumes.

    Raises:
        WrongUse: The folder holds another adaptation.
        BadData: The documents ask no question that comes back.
    """
    began = time.monotonic()
    family = _family_of(options.ranker)
    if family in FAMILIES:  # a setting that is refused is refused before anything is written
        settings_of(family, teacher, options)
    with only_writer(out):
        check_own_folder(out, (PLAN,))
        out.mkdir(parents=True, exist_ok=True)
        _check_plan(out, index, teacher, options, [*people, *(test.queries if test else ())])
        avoid = list(test.queries) if test else []
        found = questions(index, teacher, people, avoid, out / QUESTIONS, (options, show))
        apart = held_out(found, index, out / QUESTIONS / TAUGHT, options.minutes, show)
        model = begin_student(index, teacher, out, options)
        examples = examples_of(found, index)
        settings = settings_of(model.family, found.teacher, options)
        work = Remaining(model, examples, settings, apart, teacher, test)
        settled = timetable(work, index, out / STEPS_FILE, options, began)
        validation = apart.few(settled.validation).validation(index)
        taught = _teach(work, found, settled, (validation, index), out, (options, show))
        return _finish(work, settled, taught, index, out, (options, show))


def _family_of(ranker: str) -> str:
    """Return the family of a design, a notation or a bundle, as :func:`begin_student` reads it."""
    if not design_of(ranker) and (Path(ranker) / MANIFEST).is_file():
        return read_manifest(ranker).family
    return ranker.partition("(")[0].strip()


def _teach(
    work: Remaining,
    found: Questions,
    settled: Timetable,
    by: tuple[Validation, Index],
    out: Path,
    how: tuple[AdaptOptions, Show],
) -> tuple[int, list[Mined]]:
    """Teach the student in one part, or in several with mining between them; keep the last part's best.

    Returns:
        The steps taken, and what was mined.
    """
    options, show = how
    (validation, index), parts = by, options.mine + 1
    examples, mined, folder, taken = work.examples, list[Mined](), out / TRAINING, 0
    for part in range(parts):
        if part:
            path = out / QUESTIONS / f"mined-{part}.run"
            time_and_seed = settled.steps * settled.step, options.seed + part, show
            run, counts = mine(ranker_of(work), found, index, path, time_and_seed)
            mined.append(counts)
            examples = examples_of(found._replace(candidates=run), index)
            folder = out / f"{TRAINING}-{part + 1}"
        steps = settled.steps * (part + 1) // parts - settled.steps * part // parts
        settings = work.settings.but(steps=max(1, steps))
        taken += teach(work.model, examples, settings, folder, validation, show).steps
    if not (out / RANKER).exists():
        with replacing_folder(out / RANKER, lambda _: ()) as temporary:
            shutil.copytree(folder / RANKER, temporary)
    return taken, mined


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
        differences = _differences(before, now)
        if differences:
            raise WrongUse(
                f"{out}: holds another adaptation; not as it was: {', '.join(differences)}; give the same to "
                "go on with it, or adapt into another folder"
            )
        return
    write_json(path, plan)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what is not the same, options one by one with their value then."""
    names = [name for name in now if name != "options" and before.get(name) != now[name]]
    return names + changed(before.get("options", {}), now["options"])


def _finish(
    work: Remaining,
    settled: Timetable,
    taught: tuple[int, list[Mined]],
    index: Index,
    out: Path,
    how: tuple[AdaptOptions, Show],
) -> AdaptResult:
    """Weigh the student against the first stage, and report."""
    options, show = how
    student = open_ranker(str(out), ComputeOptions(work.settings.precision))
    apart = work.apart.few(settled.weighing)
    weights = weigh(student, apart, index, options.depth, show("weighing the student"))
    result = AdaptResult(
        ranker=str(out),
        steps=taught[0],
        questions=len(work.examples.queries),
        student_weight=weights.student,
        first_stage=options.first_stage,
        held_out=weights.values,
        test=write_report(out, index, (student, work.teacher, weights.student), (options, work.test, show)),
        mined=taught[1],
    )
    write_json(out / RESULT, msgspec.to_builtins(result))
    return result
