"""Train: a new ranker from what was judged, its curve as it grows, and then one column more."""

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
from rankhouse.serve.page.render import Line, page
from rankhouse.training.log import Entry

_ADVICE = (
    "This service only reads: start it with --judgements FILE to judge, and to train from what was judged."
)
_SHOWN = 20


class ShownTraining(NamedTuple):
    """A training for people; ``columns`` are systems to look at beside each other once it is done."""

    job: TrainingJob
    sentence: str
    curve: Curve | None
    columns: tuple[str, ...]


def show(service: ServedCollection, request: Request, _asked: Struct) -> Response:
    """Return the form that begins a training, and the trainings there are."""
    jobs = [service.training.job(job.request.name) for job in service.training.jobs()[:_SHOWN]]
    is_open = service.training.folder is not None
    pairs = [grade for said in service.known_qrels().values() for grade in said.values()]
    relevant = sum(grade > 0 for grade in pairs)
    starts, taken = service.training.starts, [job.request.name for job in jobs]
    content = {
        "title": "Train",
        "summary": f"A ranker of your own from {len(pairs):,} judged documents, {relevant:,} of them "
                   "relevant. When it is done, it is one more system to search with and to compare.",
        "notes": () if is_open else (_ADVICE,),
        "may_train": is_open and caller_of(request).may_write and bool(relevant),
        "starts": [(name, _named(service, name)) for name in starts],
        "start": starts[0],
        "systems": [(name, name) for name in service.catalogue.systems()],
        "name": next(f"trained-{n}" for n in range(1, len(jobs) + 2) if f"trained-{n}" not in taken),
        "index": service.catalogue.view().name,
        "trainings": [_shown(service, job) for job in jobs],
        "is_running": any(job.state == "running" for job in jobs),
    }  # fmt: skip
    return page(request, "train.html.j2", content)


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
    return f"go on with {start}" if is_ranker else f"{start}, from your collection's words"


def _shown(service: ServedCollection, job: TrainingJob) -> ShownTraining:
    name = job.request.name
    told = [f"{job.request.start} from {len(job.learned):,} questions"]
    if job.held_out:
        told.append(f"{job.held_out:,} held out to choose the best step by")
    told.append(f"ordering what {job.request.first_stage} finds")
    is_ready = job.state == "done" and name in service.catalogue.rankers
    columns = (job.request.first_stage, name, f"{name}+bm25") if is_ready else ()
    return ShownTraining(job, f"{', '.join(told)}.", curve_of(job.log), columns)


# --- the curve of a training -------------------------------------------------------------------------------

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 60, 14, 26
_MOST_POINTS = 300


class Tick(NamedTuple):
    """A place on an axis and what is written there."""

    at: float
    text: str


class Curve(NamedTuple):
    """What a template draws, in units of its picture.

    Attributes:
        loss, value: Points of the loss and of the validations, "x,y x,y ...".
        first: How high the first stage's line is; None without validations.
        steps, losses, values: Ticks of the axes below, left and right.
        measure: What validations measure; "" without any.
    """

    loss: str
    value: str
    dots: tuple[tuple[float, float], ...]
    first: float | None
    steps: tuple[Tick, ...]
    losses: tuple[Tick, ...]
    values: tuple[Tick, ...]
    sentence: str
    measure: str


class _Scale(NamedTuple):
    """Maps numbers between two to a part of the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, number: float) -> float:
        share = (number - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, form: str) -> tuple[Tick, ...]:
        """Return the two ends, or the one number there is."""
        return tuple(Tick(self(n), format(n, form)) for n in dict.fromkeys((self.low, self.high)))


def curve_of(log: Sequence[Entry]) -> Curve | None:
    """Return the curve of a log; None where it has nothing to draw."""
    losses = [(entry["step"], entry["loss"]) for entry in log if "loss" in entry]
    checks = [entry for entry in log if "value" in entry]
    if not losses and not checks:
        return None
    steps = [step for step, _ in losses] + [entry["step"] for entry in checks]
    x = _Scale(min(0, *steps), max(steps), LEFT, WIDTH - RIGHT)
    floor, top = HEIGHT - BOTTOM, TOP
    left = _Scale(0.0, max((loss for _, loss in losses), default=1.0) or 1.0, floor, top)
    numbers = [n for entry in checks for n in (entry["value"], entry["first_stage"])]
    right = _Scale(0.0, max(numbers, default=1.0) or 1.0, floor, top)
    values = [(entry["step"], entry["value"]) for entry in checks]
    return Curve(
        _points(losses, x, left),
        _points(values, x, right),
        tuple((x(step), right(value)) for step, value in values),
        right(checks[-1]["first_stage"]) if checks else None,
        steps=x.ticks(",d"),
        losses=left.ticks(".2g") if losses else (),
        values=right.ticks(".3f") if checks else (),
        sentence=_sentence(losses, checks),
        measure=str(checks[0]["measure"]) if checks else "",
    )


def _points(pairs: Sequence[tuple[int, float]], x: _Scale, y: _Scale) -> str:
    """Return points of a line; of very many, every so many and the last."""
    every = max(1, len(pairs) // _MOST_POINTS)
    shown = [*pairs[:-1:every], *pairs[-1:]]
    return " ".join(f"{x(step)},{y(number)}" for step, number in shown)


def _sentence(losses: Sequence[tuple[int, float]], checks: Sequence[Entry]) -> str:
    told = []
    if losses:
        told.append(f"Step {losses[-1][0]:,}, loss {losses[-1][1]:.3f}")
    if checks:
        best = max(checks, key=lambda entry: (entry["value"], -entry["step"]))
        told.append(
            f"best {best['measure']} on held-out questions {best['value']:.4f} at step {best['step']:,}, "
            f"first stage {best['first_stage']:.4f}"
        )
    return "; ".join(told)
