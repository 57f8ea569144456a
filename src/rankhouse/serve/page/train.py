"""Train: a new ranker from what was judged, its curve as it grows, and then one column more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rankhouse.core.errors import WrongUse
from rankhouse.serve.host.keys import caller_of
from rankhouse.serve.judging.known import known_qrels
from rankhouse.serve.judging.training import TrainingJob, TrainingRequest
from rankhouse.serve.page import asked
from rankhouse.serve.page.curves import Curve, curve_of
from rankhouse.serve.page.render import page

if TYPE_CHECKING:
    from rankhouse.serve.host.service import Service

_ADVICE = (
    "This service only reads: start it with --judgements FILE to judge, and to train from what was judged."
)
_SHOWN = 20


class ShownTraining(NamedTuple):
    """A training for people.

    Attributes:
        name: Of the new ranker.
        state: Where it stands.
        sentence: What it learned from, and how far it is.
        notes: What whoever uses it should know.
        curve: Its curve; None before there is one.
        fault: Why it failed; "" where it did not.
        columns: Systems to look at beside each other once it is done.
    """

    name: str
    state: str
    sentence: str
    notes: tuple[str, ...]
    curve: Curve | None
    fault: str
    columns: tuple[str, ...]


def show(service: Service, request: Request) -> Response:
    """Return the form that begins a training, and the trainings there are."""
    jobs = [service.training.job(job.request.name) for job in service.training.jobs()[:_SHOWN]]
    is_open = service.training.folder is not None
    pairs = [grade for said in known_qrels(service).values() for grade in said.values()]
    relevant = sum(grade > 0 for grade in pairs)
    starts = service.training.starts
    content = {
        "title": "Train",
        "summary": f"A ranker of your own from {len(pairs):,} judged documents, {relevant:,} of them "
                   "relevant. When it is done, it is one more system to search with and to compare.",
        "notes": () if is_open else (_ADVICE,),
        "may_train": is_open and caller_of(request).may_write and bool(relevant),
        "starts": [(name, _named(service, name)) for name in starts],
        "start": starts[0],
        "systems": [(name, name) for name in service.catalogue.systems()],
        "name": _free_name([job.request.name for job in jobs]),
        "index": service.catalogue.view().name,
        "trainings": [_shown(service, job) for job in jobs],
        "is_running": any(job.state == "running" for job in jobs),
    }  # fmt: skip
    return page(request, "train.html.j2", content)


def write(service: Service, request: Request, form: asked.Fields) -> Response:
    """Begin a training, or end one.

    Args:
        form: ``cancel``, or name, start, first stage, epochs and index.

    Raises:
        RankhouseError: A field that is not accepted, too little is judged, or another training runs.
    """
    who = caller_of(request).name
    if cancelled := asked.words(form, "cancel", 80):
        service.training.cancel(cancelled)
        service.audit.record("cancel training", who, name=cancelled)
        return RedirectResponse("/train", 303)
    if service.training.folder is None:
        raise WrongUse(_ADVICE)
    epochs = asked.number(form, "epochs", 0, 1, 1000)
    wanted = TrainingRequest(
        asked.words(form, "name", 80),
        asked.words(form, "start", 80) or service.training.starts[0],
        asked.words(form, "index"),
        asked.words(form, "first_stage") or "bm25",
        epochs or None,
    )
    service.training.begin(wanted)
    service.audit.record("train", who, name=wanted.name, start=wanted.start)
    return RedirectResponse("/train", 303)


def _named(service: Service, start: str) -> str:
    is_ranker = start in service.catalogue.rankers
    return f"go on with {start}" if is_ranker else f"{start}, from your collection's words"


def _free_name(taken: Sequence[str]) -> str:
    return next(name for n in range(1, len(taken) + 2) if (name := f"trained-{n}") not in taken)


def _shown(service: Service, job: TrainingJob) -> ShownTraining:
    name, curve = job.request.name, curve_of(job.log)
    told = [f"{job.request.start} from {len(job.learned):,} questions"]
    if job.held_out:
        told.append(f"{job.held_out:,} held out to choose the best step by")
    told.append(f"ordering what {job.request.first_stage} finds")
    is_ready = job.state == "done" and name in service.catalogue.rankers
    columns = (job.request.first_stage, name, f"{name}+bm25") if is_ready else ()
    return ShownTraining(name, job.state, f"{', '.join(told)}.", job.warnings, curve, job.fault, columns)
