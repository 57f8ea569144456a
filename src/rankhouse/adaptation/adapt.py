"""An index and a teacher become a ranker: questions, candidates, scores, student, weight, report.

Everything is written into one folder as it is made, so that a killed adaptation resumes.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from rankhouse.adaptation.mining import MiningResult, mine
from rankhouse.adaptation.options import ELSEWHERE, Adaptation, JudgedQuestions, design_of
from rankhouse.adaptation.questions import Questions, first_passages, questions, try_systems
from rankhouse.adaptation.student import (
    STEPS_FILE,
    HeldOut,
    StudentTraining,
    Timetable,
    begin_student,
    examples_of,
    go_on,
    held_out,
    ranker_of,
    settings_of,
    teach,
    timetable,
    try_student,
)
from rankhouse.core.arguments import changed
from rankhouse.core.errors import BadData, MissingExtra, WrongUse, name_few
from rankhouse.core.nouns import Ranker, TextEncoder, fingerprint_of
from rankhouse.core.progress import Progress, counted, say
from rankhouse.core.qrels import Qrels, restrict
from rankhouse.core.run import Run
from rankhouse.core.scores import Doubles
from rankhouse.evaluation.compare import compare
from rankhouse.evaluation.measures import evaluate
from rankhouse.index.index import Index
from rankhouse.io.checksums import content_hash
from rankhouse.io.decoding import read_own
from rankhouse.io.outputs import check_own_folder, only_writer, replacing_folder, write_json
from rankhouse.io.trec import write_run
from rankhouse.labels.soft_scores import JoinedTeachers, RunTeacher
from rankhouse.models.bundle import MANIFEST, fingerprint, read_manifest, save
from rankhouse.models.families import FAMILIES
from rankhouse.ranking.fuse import linear
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.systems.rankers import ComputeOptions, open_ranker, with_default
from rankhouse.systems.short_forms import short_form
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import RerankedSystem, System
from rankhouse.systems.teachers import SystemTeacher, on_index
from rankhouse.training.fit import prepare

MEASURE: Final = "nDCG@10"
_WEIGHTS: Final = tuple(step / 10 for step in range(11))
_PSEUDO: Final = 80
"""Judged questions that all held-out pseudo-queries together count as: ``benchmarks/weights.py``."""


class AdaptResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an adaptation; also in ``adapted.json``."""

    ranker: str  # the folder, which ``--ranker`` takes
    system: str  # the student joined with the first stage, as ``search --system`` takes it
    steps: int
    questions: int
    student_weight: float  # of z-scores; the first stage's is the rest to 1
    first_stage: str
    held_out: dict[str, float]  # system -> nDCG@10 on held-out questions, the mean of both ideas of relevance
    test: dict[str, float]  # system -> nDCG@10 on the test; empty without one
    encode: str = ""  # the command that encodes the index with a student that is an encoder; "" for others
    mined: list[MiningResult] = []  # the student's own choices between the parts of its training


class Weight(NamedTuple):
    """The student's weight, and what the systems are worth on the held-out questions."""

    student: float
    values: dict[str, float]


def weigh(
    student: Ranker,
    apart: HeldOut,
    index: Index,
    depth: int,
    progress: Progress,
    judged: JudgedQuestions | None = None,
) -> Weight:
    """Choose the student's weight on held-out pseudo-queries, and on judged questions with their run.

    A question's own document flatters the first stage, since the words are the document's; the teacher's best
    flatter the student; so the mean of both counts, beside judged questions as much as 80 of them. Of equally
    good weights it is the nearest to equal shares. A warning is given where the student alone ranks worse
    than the first stage.
    """
    plan = Plan(depth=depth)
    reranked = rerank(student, apart.first, apart.queries, index.documents, plan=plan, progress=progress)
    values = {weight: _values(apart, joined(reranked, apart.first, weight)) for weight in _WEIGHTS}
    means = {weight: round(float(each.mean()), 9) for weight, each in values.items()}
    worth, theirs = means, dict[float, Doubles]()
    if judged is not None and judged.run is not None:
        asked = [query for query in judged.queries if query.id in judged.run]
        own = rerank(student, judged.run, asked, index.documents, plan=plan, progress=progress)
        theirs = {weight: _measured(joined(own, judged.run, weight), judged.qrels) for weight in _WEIGHTS}
        worth = {weight: mean + float(theirs[weight].sum()) / _PSEUDO for weight, mean in means.items()}
    chosen = min(_WEIGHTS, key=lambda weight: (-round(worth[weight], 9), abs(weight - 0.5), weight))
    if theirs:
        first, alone, both = (float(theirs[weight].mean()) for weight in (0.0, 1.0, chosen))
        say(
            f"the student's weight is {chosen:g}; on {counted(len(theirs[chosen]), 'judged question')} that "
            f"chose it too: {MEASURE} {first:.3f} first stage, {alone:.3f} student, {both:.3f} joined"
        )
    if means[1.0] < means[0.0]:
        lost = values[0.0] - values[1.0]
        error = float(lost.std(ddof=1)) / len(lost) ** 0.5 if len(lost) > 1 else 0.0
        gain = f"joined they have {means[chosen]:.3f}"
        say(
            f"warning: alone the student ranks the {len(lost):,} held-out questions worse than the first "
            f"stage: {MEASURE} {means[1.0]:.3f} and {means[0.0]:.3f} (standard error of the difference "
            f"{error:.3f}); {gain if means[chosen] > means[0.0] else 'joining them does not help'}. More "
            "steps or minutes teach it more: give the same command with --steps or --minutes raised"
        )
    return Weight(chosen, {"first stage": means[0.0], "student": means[1.0], "joined": means[chosen]})


def _values(apart: HeldOut, run: Run) -> Doubles:
    """Return a run's value for every held-out question, the mean of both ideas of relevance."""
    scores = [_measured(run, qrels) for qrels in (apart.own, apart.taught)]
    return np.asarray(np.mean(scores, axis=0), np.float64)


def _measured(run: Run, qrels: Qrels) -> Doubles:
    return evaluate(run, qrels, (MEASURE,)).of(MEASURE)


def _judged_questions(job: Adaptation) -> JudgedQuestions | None:
    """Return the questions whose judgements choose the weight, with what the first stage finds for them."""
    given = job.weighing
    if given is None:
        return None
    queries = [query for query in given.queries if given.qrels.get(query.id)]
    if not queries:
        known = name_few([one for one, grades in given.qrels.items() if grades], quoted=True) or "none"
        raise BadData(f"none of the questions that choose the weight is judged; judged are: {known}")
    if job.test and {query.text for query in queries} & {query.text for query in job.test.queries}:
        raise WrongUse("questions of the test would choose the weight, and flatter it; leave them out of one")
    run = short_form((job.options.first_stage,), k=job.options.depth).run(queries, job.index)
    found = [query for query in queries if query.id in run and len(run[query.id])]
    if not found:
        raise BadData(
            f"{job.options.first_stage} finds nothing for any judged question that chooses the weight"
        )
    return JudgedQuestions(found, restrict(given.qrels, [query.id for query in found]), run)


def joined(reranked: Run, first: Run, weight: float) -> Run:
    """Interpolate a reranking with its first stage, by z-scores."""
    return linear("z-score")([reranked, first], (weight, 1 - weight))


def system_of(job: Adaptation, weight: float) -> System:
    """Return what the adaptation made as a system: the student behind the first stage, joined with it."""
    first = short_form((job.options.first_stage,), k=job.options.depth)
    ranked = RerankedSystem(first, Stage(str(job.folder)))
    if weight in (0, 1):
        return ranked if weight else first
    return weight * ranked + round(1 - weight, 2) * first


def encode_command(job: Adaptation) -> str:
    """Return the command that gives the index the vectors of a student that is an encoder, beside others."""
    given = {"index": job.index.path, "ranker": job.folder, "name": job.folder.name}
    return shlex.join(["rankhouse", "encode", *(w for k, v in given.items() for w in (f"--{k}", str(v)))])


def write_report(job: Adaptation, student: Ranker, weight: float) -> dict[str, float]:
    """Compare first stage, student, both joined and teacher on the test; return their values."""
    index, options, test = job.index, job.options, job.test
    if test is None:
        return {}
    teacher = on_index(job.teacher, test.queries, index, job.show("ranking by the teacher"))
    first = test.run
    if first is None:
        first = short_form((options.first_stage,), k=options.depth).run(test.queries, index)
    first = first.restrict([query.id for query in test.queries]).top(options.depth)
    if isinstance(teacher, JoinedTeachers):
        teacher = teacher.against(first_passages(first, index.documents))

    def reranked(name: str, ranker: Ranker) -> Run:
        progress, plan = job.show(f"measuring the {name}"), Plan(depth=options.depth)
        return rerank(ranker, first, test.queries, index.documents, plan=plan, progress=progress)

    by_student = reranked("student", student)
    if isinstance(job.teacher, SystemTeacher) and isinstance(teacher, RunTeacher):
        by_teacher = teacher.run.top(options.depth)  # what it finds itself, beyond the first stage
    else:
        by_teacher = reranked("teacher", teacher)
    runs = {
        "first stage": first,
        "student": by_student,
        "student + first stage": joined(by_student, first, weight),
        "teacher": by_teacher,
    }
    for name, run in runs.items():
        write_run(run, job.folder / f"test.{name.replace(' + ', '+').replace(' ', '-')}.run", "adapt")
    comparison = compare(
        runs, test.qrels, f"{MEASURE} AP RR@10", "first stage", test="randomization", correction="holm"
    )
    title = f"Adapted without judgements: {system_of(job, weight).given}"
    texts = {query.id: query.text for query in test.queries}
    try:
        comparison.save(job.folder / "report.html", title=title, texts=texts)
    except MissingExtra:
        comparison.save(job.folder / "report.md")
    return {name: comparison.cell(name, MEASURE).mean for name in runs}


_KNEW: Final = 0.75
"""Share of the best validation that an untaught encoder reaches where what it knows is worth keeping."""
PLAN, TRAINING, RANKER, RESULT = "plan.json", "training", "ranker", "adapted.json"


def adapt_with(job: Adaptation) -> AdaptResult:
    """Adapt a ranker to a collection; given again, a killed one resumes, and a finished one takes more steps.

    Raises WrongUse where the folder holds another adaptation, BadData where the documents ask no question
    that comes back.
    """
    began, options = time.monotonic(), job.options
    family = _family_of(options.ranker)
    if family in FAMILIES:  # a setting that is refused is refused before anything is written
        settings_of(family, job.teacher, options)
    with only_writer(job.folder):
        check_own_folder(job.folder, (PLAN,))
        if not (job.folder / PLAN).exists():
            try_systems(job)
            try_student(options.ranker)
        judged = _judged_questions(job)
        job.folder.mkdir(parents=True, exist_ok=True)
        plan = _check_plan(job)
        found = questions(job)
        apart, model = held_out(job, found), begin_student(job)
        settings = settings_of(model.family, found.teacher, options, model)
        prepare(model, settings)
        work = StudentTraining(model, examples_of(found, job.index), settings, apart)
        settled = go_on(job, work, timetable(job, work, began))
        write_json(job.folder / PLAN, plan)  # with the steps or minutes that were raised
        steps, mined = _teach(job, work, found, settled)
        student = open_ranker(str(job.folder), ComputeOptions(work.settings.precision))
        some, show = apart.few(settled.weighing), job.show("weighing the student")
        weights = weigh(student, some, job.index, options.depth, progress=show, judged=judged)
        result = AdaptResult(
            ranker=str(job.folder),
            system=system_of(job, weights.student).given,
            steps=steps,
            questions=len(work.examples.queries),
            student_weight=weights.student,
            first_stage=options.first_stage,
            held_out=weights.values,
            test=write_report(job, student, weights.student),
            mined=mined,
            encode=encode_command(job) if isinstance(student, TextEncoder) else "",
        )
        write_json(job.folder / RESULT, msgspec.to_builtins(result))
        return result


def _family_of(ranker: str) -> str:
    """Return the family of a design, a notation or a bundle, as :func:`begin_student` reads it."""
    if not design_of(ranker) and (Path(ranker) / MANIFEST).is_file():
        return read_manifest(ranker).family
    return with_default(ranker).partition("(")[0].strip()


def _check_plan(job: Adaptation) -> dict[str, Any]:
    """Refuse a folder of another adaptation; write down, and return, what this one is."""
    text = [f"{query.id}\t{query.text}" for query in (*job.people, *job.tested)]
    plan: dict[str, Any] = {"index": job.index.fingerprint, "teacher": fingerprint_of(job.teacher)}
    plan |= {"queries": text, "options": msgspec.to_builtins(job.options)}
    path = job.folder / PLAN
    if not path.exists():
        write_json(path, plan)
        return plan
    before = read_own(path, dict[str, Any], ELSEWHERE)
    now = msgspec.json.decode(msgspec.json.encode(plan))
    differences = [name for name in now if name != "options" and before.get(name) != now[name]]
    options = before.get("options")  # one by one, with their value then
    before = options if isinstance(options, dict) else {}
    if _is_raised(job):
        before |= {name: now["options"][name] for name in ("steps", "minutes")}
    differences += changed(before, now["options"])
    if differences:
        raise WrongUse(
            f"{job.folder}: holds another adaptation; not as it was: {', '.join(differences)}; give the same "
            "to go on with it, or adapt into another folder"
        )
    return plan


def _is_raised(job: Adaptation) -> bool:
    """Return whether a finished adaptation is given as many steps or minutes as it had, or more."""
    if not (job.folder / RESULT).exists():
        return False
    settled, options = read_own(job.folder / STEPS_FILE, Timetable, ELSEWHERE), job.options
    if options.steps:
        return options.steps >= settled.total
    return 0 < settled.minutes <= options.minutes


def _teach(
    job: Adaptation, work: StudentTraining, found: Questions, settled: Timetable
) -> tuple[int, list[MiningResult]]:
    """Teach the student in one part, or in several with mining between them; keep the last part's best.

    Parts that were added are trainings of their own, each begun with the best of the one before.

    Returns the steps taken, and what was mined.
    """
    # What an encoder has to tell apart, once it searches all documents, is more than what has the same words.
    among = found.candidates if settled.untaught else None
    validation = work.apart.few(settled.validation).validation(job.index, among, own=settled.own)
    network, known = cast(nn.Module, work.model), 0.0
    untaught = {name: own.clone() for name, own in network.state_dict().items()} if settled.untaught else {}
    parts = min(job.options.mine + 1, settled.steps)
    if parts <= job.options.mine:
        say(f"the {settled.steps:,} steps that fit leave room for {parts - 1:,} choices by the student")
    examples, mined, folder, taken = work.examples, list[MiningResult](), job.folder / TRAINING, 0
    whole = settled.steps
    shares = [whole * (part + 1) // parts - whole * part // parts for part in range(parts)]
    for part, steps in enumerate([*shares, *settled.added]):
        if part:
            folder = job.folder / f"{TRAINING}-{part + 1}"
        if 0 < part < parts:
            seconds = settled.steps * settled.step
            run, counts = mine(job, ranker_of(work), found, part=part, seconds=seconds)
            mined.append(counts)
            examples = examples_of(found._replace(candidates=run), job.index)
        settings = work.settings.but(steps=max(1, steps))
        bar = job.show("teaching")
        outcome = teach(work.model, examples, settings, folder=folder, validation=validation, progress=bar)
        taken, known = taken + outcome.steps, known if part else outcome.untaught
    ranker = job.folder / RANKER
    if untaught and known >= _KNEW * outcome.best:
        _blend(network, untaught, settled.untaught)
        if not ranker.exists() or read_manifest(ranker).fingerprint != fingerprint(work.model):
            save(work.model, ranker, read_manifest(folder / RANKER).use)
        return taken, mined
    if not ranker.exists() or content_hash(ranker) != content_hash(folder / RANKER):
        with replacing_folder(ranker, lambda _: ()) as temporary:
            shutil.copytree(folder / RANKER, temporary)
    return taken, mined


def _blend(network: nn.Module, untaught: Mapping[str, Tensor], share: float) -> None:
    """Move the weights back to those before the training, by this share of the way.

    After Wortsman et al., "Robust fine-tuning of zero-shot models" (2022): what was known is not lost to what
    documents ask, which are not the questions of people.
    """
    network.load_state_dict(  # not in place: two names may stand for one tensor
        {
            name: torch.lerp(tensor, untaught[name], share) if tensor.is_floating_point() else tensor
            for name, tensor in network.state_dict().items()
        }
    )
