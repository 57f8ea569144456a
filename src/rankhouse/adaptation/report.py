"""Third stage of adapting: the weight of the student beside the first stage, and what all of it is worth."""

from __future__ import annotations

import shlex
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rankhouse.adaptation.mining import Mined
from rankhouse.adaptation.options import Adaptation
from rankhouse.adaptation.questions import first_passages
from rankhouse.adaptation.student import HeldOut
from rankhouse.core.errors import MissingExtra
from rankhouse.core.nouns import Ranker
from rankhouse.core.progress import Progress, say
from rankhouse.core.run import Run
from rankhouse.core.scores import Doubles
from rankhouse.evaluation.compare import compare
from rankhouse.evaluation.measures import evaluate
from rankhouse.index.index import Index
from rankhouse.io.trec import write_run
from rankhouse.labels.soft_scores import JoinedTeachers, RunTeacher
from rankhouse.ranking.fuse import linear
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.systems.short_forms import short_form
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import Reranked, System
from rankhouse.systems.teachers import SystemTeacher, on_index

MEASURE: Final = "nDCG@10"
_WEIGHTS: Final = tuple(step / 10 for step in range(11))


class AdaptResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; also in ``adapted.json``."""

    ranker: str  # the folder, which ``--ranker`` takes
    system: str  # the student joined with the first stage, as ``search --system`` takes it
    steps: int
    questions: int
    student_weight: float  # of z-scores; the first stage's is the rest to 1
    first_stage: str
    held_out: dict[str, float]  # system -> nDCG@10 on held-out questions, the mean of both ideas of relevance
    test: dict[str, float]  # system -> nDCG@10 on the test; empty without one
    encode: str = ""  # the command that encodes the index with a student that is an encoder; "" for others
    mined: list[Mined] = []  # what the student itself chose between the parts of its training, one each


class Weight(NamedTuple):
    """The student's weight, and what the systems are worth on the held-out questions."""

    student: float
    values: dict[str, float]


def weigh(student: Ranker, apart: HeldOut, index: Index, depth: int, progress: Progress) -> Weight:
    """Choose the student's weight on held-out pseudo-queries.

    A question's own document flatters the first stage, since the words are the document's; the teacher's best
    flatter the student; so the mean of both counts. Of equally good weights it is the nearest to equal
    shares. A warning is given where the student alone ranks worse than the first stage.
    """
    plan = Plan(depth=depth)
    reranked = rerank(student, apart.first, apart.queries, index.documents, plan=plan, progress=progress)
    values = {weight: _values(apart, joined(reranked, apart.first, weight)) for weight in _WEIGHTS}
    means = {weight: round(float(each.mean()), 9) for weight, each in values.items()}
    chosen = min(_WEIGHTS, key=lambda weight: (-means[weight], abs(weight - 0.5), weight))
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
    scores = [evaluate(run, qrels, (MEASURE,)).of(MEASURE) for qrels in (apart.own, apart.taught)]
    return np.asarray(np.mean(scores, axis=0), np.float64)


def joined(reranked: Run, first: Run, weight: float) -> Run:
    """Interpolate a reranking with its first stage, by z-scores."""
    return linear("z-score")([reranked, first], (weight, 1 - weight))


def system_of(job: Adaptation, weight: float) -> System:
    """Return what the adaptation made as a system: the student behind the first stage, joined with it."""
    first = short_form((job.options.first_stage,), k=job.options.depth)
    ranked = Reranked(first, Stage(str(job.folder)))
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
    title = f"Adapted without judgements: {system_of(job, weight)}"
    texts = {query.id: query.text for query in test.queries}
    try:
        comparison.save(job.folder / "report.html", title=title, texts=texts)
    except MissingExtra:
        comparison.save(job.folder / "report.md")
    return {name: comparison.cell(name, MEASURE).mean for name in runs}
