"""Train: a new ranker from the judgements, its curve as it grows, and then one more system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rankhouse.core.errors import WrongUse
from rankhouse.serve.contracts.requests import caller_of
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.training import TrainingJob, TrainingRequest
from rankhouse.serve.page.curves import Chart, Points, across, drawn, hover_data, thinned, upwards
from rankhouse.serve.page.render import Line, page
from rankhouse.training.log import Entry

_ADVICE = "This service is read-only. To judge and to train, start it with --judgements FILE."
_SHOWN = 20
_COLOURS = 8


class ShownTraining(NamedTuple):
    """A training for people; ``columns`` are systems to look at beside each other once it is done."""

    job: TrainingJob
    sentence: str
    curve: Chart | None
    measure: str
    columns: tuple[str, ...]


def show(service: ServedCollection, request: Request, _asked: Struct) -> Response:
    """Return the form that begins a training, and the trainings there are."""
    jobs = [service.training.job(job.request.name) for job in service.training.jobs()[:_SHOWN]]
    is_open = service.training.folder is not None
    pairs = [grade for said in service.known_qrels().values() for grade in said.values()]
    relevant = sum(grade > 0 for grade in pairs)
    starts, taken = service.training.starts, [job.request.name for job in jobs]
    content = {
        "title": "Train a ranker",
        "summary": _summary(len(pairs), relevant),
        "needs_judgements": is_open and not relevant,
        "notes": () if is_open else (_ADVICE,),
        "may_train": is_open and caller_of(request).may_write and bool(relevant),
        "starts": [(name, _named(service, name)) for name in starts],
        "start": starts[0],
        "systems": [(name, name) for name in service.catalogue.systems()],
        "name": next(f"trained-{n}" for n in range(1, len(jobs) + 2) if f"trained-{n}" not in taken),
        "index": service.catalogue.view().name,
        "trainings": [_shown(service, job) for job in jobs],
        "overlay": overlay_of(jobs),
        "is_running": any(job.state == "running" for job in jobs),
    }  # fmt: skip
    return page(request, "train.html.j2", content)


def _summary(judged: int, relevant: int) -> str:
    documents = "document" if judged == 1 else "documents"
    return (
        f"Learn from {judged:,} judged {documents}, {relevant:,} of them relevant. The finished ranker "
        "becomes a system that you can search with and compare."
    )


class TrainForm(Struct):
    """A training to begin, or the name of one to end."""

    cancel: Line = ""
    name: Line = ""
    start: Line = ""
    index: Line = ""
    first_stage: Line = "bm25"
    epochs: Annotated[int, Meta(ge=1, le=1000)] | None = None


def write(service: ServedCollection, request: Request, form: TrainForm) -> Response:
    """Begin a training, or end one."""
    who = caller_of(request).name
    if form.cancel:
        service.training.cancel(form.cancel)
        service.audit.note("cancel training", who, name=form.cancel)
        return RedirectResponse("/train", 303)
    if service.training.folder is None:
        raise WrongUse(_ADVICE)
    start = form.start or service.training.starts[0]
    wanted = TrainingRequest(form.name, start, form.index, form.first_stage, epochs=form.epochs)
    service.training.begin(wanted)
    service.audit.note("train", who, name=wanted.name, start=wanted.start)
    return RedirectResponse("/train", 303)


def _named(service: ServedCollection, start: str) -> str:
    is_ranker = start in service.catalogue.rankers
    return f"continue {start}" if is_ranker else f"{start}, new"


def _shown(service: ServedCollection, job: TrainingJob) -> ShownTraining:
    name = job.request.name
    questions = "question" if len(job.learned) == 1 else "questions"
    told = [f"{job.request.start}, trained on {len(job.learned):,} {questions}"]
    if job.held_out:
        told.append(f"{job.held_out:,} held out to choose the best step")
    told.append(f"reranks what {job.request.first_stage} finds")
    is_ready = job.state == "done" and name in service.catalogue.rankers
    columns = (job.request.first_stage, name, f"{name}+bm25") if is_ready else ()
    measure = next((str(entry["measure"]) for entry in job.log if "value" in entry), "")
    return ShownTraining(job, f"{', '.join(told)}.", curve_of(job.log), measure, columns=columns)


# --- the curves of trainings ------------------------------------------------------------------------------


def curve_of(log: Sequence[Entry]) -> Chart | None:
    """Return the curve of a log; None where it has nothing to draw."""
    losses = [(float(entry["step"]), float(entry["loss"])) for entry in log if "loss" in entry]
    checks = [entry for entry in log if "value" in entry]
    if not losses and not checks:
        return None
    values = [(float(entry["step"]), float(entry["value"])) for entry in checks]
    steps = [step for step, _ in (*losses, *values)]
    x = across(min(0, *steps), max(steps))
    left = upwards([loss for _, loss in losses] or [1.0])
    right = upwards([n for entry in checks for n in (entry["value"], entry["first_stage"])] or [1.0])
    measure = str(checks[0]["measure"]) if checks else ""
    losses, lines = list(thinned(losses)), []
    if losses:
        lines.append(drawn("loss", "loss", losses, (x, left)))
    if values:
        lines.append(drawn(measure, "value", values, (x, right)))
    return Chart(
        tuple(lines),
        level=right(checks[-1]["first_stage"]) if checks else None,
        below=x.ticks(",g"),
        left=left.ticks(".2g") if losses else (),
        right=right.ticks(".3f") if checks else (),
        sentence=_sentence(losses, checks),
        data=hover_data(x, "Step {}", {"loss": (losses, ".4f"), measure: (values, ".4f")}),
    )


def overlay_of(jobs: Sequence[TrainingJob]) -> Chart | None:
    """Return the validations of several trainings in one chart; None where fewer than two have any."""
    found = {
        job.request.name: [(float(e["step"]), float(e["value"])) for e in job.log if "value" in e]
        for job in jobs
    }
    curves = {name: points for name, points in found.items() if points}
    measures = {str(entry["measure"]) for job in jobs for entry in job.log if "value" in entry}
    if len(curves) < 2 or len(measures) > 1:
        return None
    curves = dict(list(curves.items())[:_COLOURS])
    x = across(0, max(step for points in curves.values() for step, _ in points))
    y = upwards([value for points in curves.values() for _, value in points])
    best = {name: max(value for _, value in points) for name, points in curves.items()}
    told = ", ".join(f"{name} {value:.4f}" for name, value in best.items())
    return Chart(
        tuple(
            drawn(name, f"line{n}", thinned(points), (x, y))
            for n, (name, points) in enumerate(curves.items())
        ),
        level=None,
        below=x.ticks(",g"),
        left=y.ticks(".3f"),
        right=(),
        sentence=f"{measures.pop()} on held-out questions; the best of each: {told}",
        data=hover_data(x, "Step {}", {name: (thinned(points), ".4f") for name, points in curves.items()}),
    )


def _sentence(losses: Points, checks: Sequence[Entry]) -> str:
    told = []
    if losses:
        told.append(f"Step {losses[-1][0]:,.0f}, loss {losses[-1][1]:.3f}")
    if checks:
        best = max(checks, key=lambda entry: (entry["value"], -entry["step"]))
        told.append(
            f"best {best['measure']} on held-out questions {best['value']:.4f} at step {best['step']:,}, "
            f"first stage {best['first_stage']:.4f}"
        )
    return "; ".join(told)
