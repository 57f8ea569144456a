"""Train: a new ranker from the judgements, its curve as it grows, and then one more system."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rankhouse.core.errors import WrongUse
from rankhouse.serve.contracts.requests import caller_of
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.training import Epochs, TrainingJob, TrainingRequest
from rankhouse.serve.page.curves import (
    Chart,
    Points,
    across,
    drawn,
    hover_data,
    lines_chart,
    thinned,
    upwards,
)
from rankhouse.serve.page.render import Line, page
from rankhouse.training.log import Entry

_ADVICE = "This service is read-only. To judge and to train, start it with --judgements FILE."
_SHOWN = 20
_COLOURS = 8


def show(service: ServedCollection, request: Request, _asked: Struct) -> Response:
    """Return the form that begins a training, and the trainings there are."""
    jobs = [service.training.job(job.request.name) for job in service.training.jobs()[:_SHOWN]]
    is_open = service.training.folder is not None
    pairs = [grade for said in service.known_qrels().values() for grade in said.values()]
    relevant, rankers = sum(grade > 0 for grade in pairs), service.catalogue.rankers
    starts, taken = service.training.starts, [job.request.name for job in jobs]
    content = {
        "title": "Train a ranker",
        "judged": len(pairs),
        "relevant": relevant,
        "rankers": rankers,
        "needs_judgements": is_open and not relevant,
        "notes": () if is_open else (_ADVICE,),
        "may_train": is_open and caller_of(request).may_write and bool(relevant),
        "starts": [(one, f"continue {one}" if one in rankers else f"a new {one}") for one in starts],
        "start": starts[0],
        "systems": list(service.catalogue.systems()),
        "name": next(f"trained-{n}" for n in range(1, len(jobs) + 2) if f"trained-{n}" not in taken),
        "index": service.catalogue.view().name,
        "trainings": [(job, curve_of(job.log)) for job in jobs],
        "overlay": overlay_of(jobs),
        "is_running": any(job.state == "running" for job in jobs),
    }
    return page(request, "train.html.j2", content)


class TrainForm(Struct):
    """A training to begin, or the name of one to end."""

    cancel: Line = ""
    name: Line = ""
    start: Line = ""
    index: Line = ""
    first_stage: Line = "bm25"
    epochs: Epochs | None = None


def write(service: ServedCollection, request: Request, form: TrainForm) -> Response:
    """Begin a training, or end one."""
    who = caller_of(request).name
    if form.cancel:
        service.training.cancel(form.cancel, who)
        return RedirectResponse("/train", 303)
    if service.training.folder is None:
        raise WrongUse(_ADVICE)
    start = form.start or service.training.starts[0]
    wanted = TrainingRequest(form.name, start, form.index, form.first_stage, epochs=form.epochs)
    service.training.begin(wanted, who)
    return RedirectResponse("/train", 303)


# --- the curves of trainings ------------------------------------------------------------------------------


def curve_of(log: Sequence[Entry]) -> Chart | None:
    """Return the curve of a log: losses to the left, validations to the right; None where it has neither."""
    losses = thinned([(float(entry["step"]), float(entry["loss"])) for entry in log if "loss" in entry])
    checks = [entry for entry in log if "value" in entry]
    if not losses and not checks:
        return None
    values = [(float(entry["step"]), float(entry["value"])) for entry in checks]
    steps = [step for step, _ in (*losses, *values)]
    x = across(min(0, *steps), max(steps))
    left = upwards([loss for _, loss in losses] or [1.0])
    right = upwards([n for entry in checks for n in (entry["value"], entry["first_stage"])] or [1.0])
    measure = str(checks[0]["measure"]) if checks else ""
    lines = [drawn("loss", "loss", losses, (x, left))] if losses else []
    lines += [drawn(measure, "value", values, (x, right))] if values else []
    return Chart(
        tuple(lines),
        level=right(checks[-1]["first_stage"]) if checks else None,
        below=x.ticks(",g"),
        left=left.ticks(".2g") if losses else (),
        right=right.ticks(".3f") if checks else (),
        sentence=_sentence(losses, checks),
        data=hover_data(x, "Step {}", {"loss": losses, measure: values}),
    )


def overlay_of(jobs: Sequence[TrainingJob]) -> Chart | None:
    """Return the validations of several trainings in one chart; None where fewer than two have any."""
    checks = {job.request.name: [entry for entry in job.log if "value" in entry] for job in jobs}
    curves = {
        name: [(float(entry["step"]), float(entry["value"])) for entry in entries]
        for name, entries in checks.items()
        if entries
    }
    measures = {str(entry["measure"]) for entries in checks.values() for entry in entries}
    if len(curves) < 2 or len(measures) > 1:
        return None
    curves = dict(list(curves.items())[:_COLOURS])
    best = (f"{name} {max(value for _, value in points):.4f}" for name, points in curves.items())
    sentence = f"{measures.pop()} on held-out questions; the best of each: {', '.join(best)}"
    return lines_chart(curves, sentence, first=0, place="Step {}", form=".3f", dots=True)


def _sentence(losses: Points, checks: Sequence[Entry]) -> str:
    lines = []
    if losses:
        lines.append(f"Step {losses[-1][0]:,.0f}, loss {losses[-1][1]:.3f}")
    if checks:
        best = max(checks, key=lambda entry: (entry["value"], -entry["step"]))
        lines.append(
            f"best {best['measure']} on held-out questions {best['value']:.4f} at step {best['step']:,}, "
            f"first stage {best['first_stage']:.4f}"
        )
    return "; ".join(lines)
