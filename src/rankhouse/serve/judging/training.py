"""Train from the judgements of a service: a ``rankhouse train`` of its own process, watched, ended, resumed.

    FOLDER/NAME/
        job.json         what was asked, and how it ended
        queries.jsonl    the questions it learns from; valid.jsonl those it is chosen by, if any
        qrels.txt        their judgements; valid.txt
        first.run        what the first stage finds for them; valid.run
        training/        the folder that ``rankhouse train`` makes; a killed one is gone on with
        said.txt         what the command said

One training runs at a time. A finished one becomes a ranker of the service, now and after every start.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from rankhouse.core import notation
from rankhouse.core.errors import BadData, RankhouseError, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels, relevant, restrict
from rankhouse.core.run import Run
from rankhouse.core.sampling import order
from rankhouse.index.sharded.sharded_index import ShardedIndex
from rankhouse.io.checksums import write_checked
from rankhouse.io.corpora import write_queries
from rankhouse.io.decoding import read_own
from rankhouse.io.outputs import writing_failures
from rankhouse.io.trec import write_qrels, write_run
from rankhouse.serve.contracts.requests import ANYBODY
from rankhouse.serve.errors import Refusal, UnknownName, Unready
from rankhouse.serve.judging.process import last_words, started
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.ranking import rank
from rankhouse.systems.rankers import minilm
from rankhouse.training.log import Entry, read_log

if TYPE_CHECKING:
    from rankhouse.serve.judging.collection import ServedCollection


FEW: Final = 10
"""Fewer judged questions than this show little: answers warn, and none are held out of a training."""
_HELD_OUT: Final = 5  # every fifth
_FOUND: Final = 100
FRESH: Final = ("knrm", "conv_knrm", "tk")
"""Families that can be trained from scratch from the collection's words."""
_FRESH_EPOCHS, _FRESH_RATE, _FRESH_BATCH = 10, 1e-2, 16
_INPUTS: Final = ("queries.jsonl", "qrels.txt", "first.run", "valid.jsonl", "valid.txt", "valid.run")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MERCY: Final = 10.0

State = Literal["running", "done", "failed", "cancelled"]
Epochs = Annotated[int, Meta(ge=1, le=1000)]
Rate = Annotated[float, Meta(gt=0, le=1)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Lessons(NamedTuple):
    """Judged questions, to learn from and to choose the best model by; few have none held out for that."""

    learned: tuple[Query, ...]
    held_out: tuple[Query, ...]
    qrels: Qrels

    @classmethod
    def of(cls, service: ServedCollection, index: str, seed: int) -> Lessons:
        """Choose among what is judged; the same judgements and seed give the same choice."""
        documents = service.catalogue.view(index).index.documents
        known = {query.id: query for query in service.known_queries()}
        everything = restrict(service.known_qrels(), known)
        qrels = {q: {d: g for d, g in judged.items() if d in documents} for q, judged in everything.items()}
        useful = sorted((q for q in qrels if relevant(qrels, q)), key=lambda q: order(seed, q))
        if not useful:
            raise WrongUse(
                "no question has a document that was judged relevant, so there is nothing to learn; "
                "judge more"
            )
        out = set(useful[::_HELD_OUT]) if len(useful) >= FEW else set[str]()
        both = tuple(known[query_id] for query_id in qrels if query_id in set(useful))
        return cls(
            tuple(query for query in both if query.id not in out),
            tuple(query for query in both if query.id in out),
            {query.id: qrels[query.id] for query in both},
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all its questions."""
        return tuple(query.id for query in (*self.learned, *self.held_out))

    def write(self, catalogue: Catalogue, index: str, first_stage: str, place: Path) -> list[str]:
        """Write what is learned from; returns the options of the command that name it."""
        view = catalogue.view(index)
        spec = catalogue.system(first_stage, view.name)
        options = []
        parts = (
            ("queries", "qrels", "first", "--", self.learned),
            ("valid", "valid", "valid", "--valid-", self.held_out),
        )
        for queries, qrels, run, option, asked in parts:
            if not asked:
                continue
            files = (place / f"{queries}.jsonl", place / f"{qrels}.txt", place / f"{run}.run")
            rankings = {query.id: rank(catalogue, view, spec, query).ranking for query in asked}
            write_queries(asked, files[0])
            write_qrels(restrict(self.qrels, [query.id for query in asked]), files[1])
            write_run(Run.from_rankings(rankings).top(_FOUND), files[2])
            for name, file in zip(("queries", "qrels", "run"), files, strict=True):
                options += [f"{option}{name}", str(file)]
        return options


def few_questions(count: int, kind: str, what: str) -> tuple[str, ...]:
    """Return a warning where there are few questions; none where there are enough."""
    return (f"only {count} {kind}: {what}; judge {FEW} or more",) if count < FEW else ()


class Busy(Refusal):
    """Another training runs."""

    status, code = 409, "busy"


class TrainingRequest(msgspec.Struct, frozen=True):
    """Settings of a training: a body's, with the defaults filled in; "" and None leave it to the family."""

    name: str
    start: str = "knrm"
    index: str = ""
    first_stage: str = "bm25"
    epochs: Epochs | None = None
    rate: Rate | None = None
    seed: Seed = 0


class TrainingJob(msgspec.Struct, frozen=True):
    """A training and where it stands, begun at a time in UTC.

    Attributes:
        queries: Ids of the questions it learned from, and was chosen by: numbers on these flatter it.
        held_out: How many of them it was chosen by.
        log: Losses by step, and validations with what the first stage is worth.
        progress: How far it is, while it runs, and how long it will take.
    """

    request: TrainingRequest
    state: State
    begun: str
    queries: tuple[str, ...] = ()
    held_out: int = 0
    fault: str = ""
    log: tuple[Entry, ...] = ()
    progress: str = ""

    @property
    def learned(self) -> tuple[str, ...]:
        """Ids of the questions it learned from."""
        return self.queries[: len(self.queries) - self.held_out]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for users of the ranker."""
        none_held_out = "none were held out to choose the best step"
        return few_questions(len(self.queries), "questions with a relevant document", none_held_out)


class TrainingJobs:
    """The trainings of a service."""

    def __init__(
        self,
        folder: Path | None,
        service: ServedCollection,
        offer: Callable[[str, str], object] = lambda name, spec: None,  # noqa: ARG005
        specs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder, self._service, self._offer, self._specs = folder, service, offer, specs
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._running = ""
        self._is_cancelled = False
        self._unwritten = dict[str, TrainingJob]()  # how trainings ended whose files could not say so
        self._watcher: threading.Thread | None = None

    # --- what there is ----------------------------------------------------------------------------

    @property
    def starts(self) -> tuple[str, ...]:
        """Possible starts of a training: the service's rankers, those trained here, and fresh families."""
        return tuple(dict.fromkeys([*self._specs, *self._finished(), *FRESH]))

    def jobs(self) -> list[TrainingJob]:
        """Return all trainings, the latest first; without their logs."""
        found = [self._read(path.parent.name) for path in self._files()]
        return sorted(found, key=lambda job: job.begun, reverse=True)

    def job(self, name: str) -> TrainingJob:
        """Return a training with its log."""
        names = [path.parent.name for path in self._files()]
        if self.folder is None or name not in names:
            raise UnknownName("training", name, names, "name")
        log = self.folder / name / "training" / "log.jsonl"
        entries = read_log(log) if log.exists() else []
        job = self._read(name)
        said = last_words(self.folder / name / "said.txt") if job.state == "running" else ""
        progress = next((line for line in said.splitlines()[::-1] if line.startswith("training: ")), "")
        return msgspec.structs.replace(
            job, log=tuple(entries), progress=progress.replace("training", "Steps", 1)
        )

    def offer_finished(self) -> None:
        """Offer the rankers that were trained before; one that cannot be opened is skipped."""
        for name in reversed(self._finished()):
            with suppress(RankhouseError):
                self._offer(name, str(self._place(name) / "training"))

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*/job.json")) if self.folder is not None else []

    def _finished(self) -> list[str]:
        return [job.request.name for job in reversed(self.jobs()) if job.state == "done"]

    def _read(self, name: str) -> TrainingJob:
        if name in self._unwritten:
            return self._unwritten[name]
        path = self._place(name) / "job.json"
        try:
            job = read_own(path, TrainingJob, "remove its folder, or train under another name")
        except BadData as error:
            return TrainingJob(TrainingRequest(name), "failed", "", fault=str(error))
        if job.state == "running" and name != self._running:
            fault = "the service ended before it did; the same request goes on with it"
            return msgspec.structs.replace(job, state="failed", fault=fault)
        return job

    def _place(self, name: str) -> Path:
        if self.folder is None:
            raise WrongUse(
                "this service only reads; start it with --judgements FILE to train from judgements"
            )
        return self.folder / name

    # --- beginning and ending ---------------------------------------------------------------------

    def begin(self, request: TrainingRequest, who: str = ANYBODY.name) -> TrainingJob:
        """Begin a training, or resume one that was ended; the audit says who asked for it.

        WrongUse: a name that cannot be used, or too little is judged. UnknownName: there is no such start,
        index or system. Busy: another training runs.
        """
        self._check(request)
        if self._watcher is not None and self._process is not None and self._process.poll() is not None:
            self._watcher.join(_MERCY)  # it has ended, and is just being put down
        with self._lock:
            if self._running:
                raise Busy(f'the training "{self._running}" runs; wait for it, or end it first')
            self._running, self._is_cancelled = request.name, False
        try:
            job = self._started(request)
        except BaseException:
            self._running = ""
            raise
        self._service.audit.note("train", who, name=request.name, start=request.start)
        return job

    def _started(self, request: TrainingRequest) -> TrainingJob:
        """Write what is learned from, which can take long, and start the process."""
        place = self._place(request.name)
        lessons = Lessons.of(self._service, request.index, request.seed)
        with writing_failures(place):
            place.mkdir(parents=True, exist_ok=True)
        before = self._inputs(request.name)
        options = lessons.write(self._service.catalogue, request.index, request.first_stage, place)
        if (request, *before[1:]) != (before[0], *self._inputs(request.name)[1:]):
            shutil.rmtree(place / "training", ignore_errors=True)  # another training's, ended early
        began, held_out = datetime.now(UTC).isoformat(timespec="seconds"), len(lessons.held_out)
        job = TrainingJob(request, "running", began, lessons.ids, held_out=held_out)
        with self._lock:
            if self._is_cancelled:
                raise Unready(f'the training "{request.name}" was ended before it began; ask again')
            write_checked(place / "job.json", job)
            with writing_failures(place):
                self._process = started([*self._command(request, place), *options], place / "said.txt")
            self._unwritten.pop(request.name, None)
            self._watcher = threading.Thread(target=self._watch, args=(job, self._process), daemon=True)
            self._watcher.start()
        return job

    def _inputs(self, name: str) -> tuple[object, ...]:
        """Return what a training was asked for and learned from, as far as it is there."""
        place = self._place(name)
        files = (place / file for file in _INPUTS)
        return (self._read(name).request, *(file.read_bytes() if file.exists() else b"" for file in files))

    def cancel(self, name: str, who: str = ANYBODY.name) -> TrainingJob:
        """End a training that runs; what it has made so far stays. WrongUse: it does not run."""
        job = self.job(name)
        if self._running != name:
            raise WrongUse(f'the training "{name}" does not run: it is {job.state}')
        self.close()
        self._service.audit.note("cancel", who, name=name)
        return self.job(name)

    def close(self) -> None:
        """End what runs, so that no process is left behind."""
        with self._lock:
            self._is_cancelled = True
            self._end()
            watcher = self._watcher
        if watcher is not None:
            watcher.join(_MERCY)

    def _end(self) -> None:
        """Ask the process to end, and end it where it does not; the caller holds the lock."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_MERCY)
        except subprocess.TimeoutExpired:
            process.kill()

    def _check(self, request: TrainingRequest) -> None:
        if not _NAME.fullmatch(request.name):
            raise WrongUse(
                f"name={request.name[:80]!r}: give 1 to 64 letters, digits, points, - and _, a letter or "
                "digit first"
            )
        if request.name in self._specs:
            raise WrongUse(f"name={request.name!r}: is a ranker of the service already; give another one")
        if request.name in self._finished():
            raise WrongUse(f"name={request.name!r}: was trained already; give another name")
        if request.name in self._service.catalogue.systems(request.index):
            raise WrongUse(f"name={request.name!r}: is a system of the service already; give another one")
        if request.start not in self.starts:
            raise UnknownName("ranker or family to begin with", request.start, self.starts, "start")

    def _command(self, request: TrainingRequest, place: Path) -> list[str]:
        """Return the arguments of the program, but for what it learns from."""
        out, seed = str(place / "training"), str(request.seed)
        options = ["--out", out, "--seed", seed, "--set", "log_every=1", "--json"]
        epochs, rate = request.epochs, request.rate
        if request.start in FRESH:  # few judgements: many small steps, large ones for what begins at nothing
            epochs, rate = epochs or _FRESH_EPOCHS, rate or _FRESH_RATE
            options += ["--set", f"batch={_FRESH_BATCH}", "--set", f"validate_every={_FRESH_BATCH}"]
        if epochs is not None:
            options += ["--epochs", str(epochs)]
        if rate is not None:
            options += ["--set", f"rate={rate!r}"]
        index = self._service.catalogue.view(request.index).index
        if isinstance(index, ShardedIndex):
            raise WrongUse("training reads one index on this machine, not shards; serve their merged index")
        return ["train", *self._start(request), "--index", str(index.path), *options]

    def _start(self, request: TrainingRequest) -> list[str]:
        spec = self._specs.get(request.start, "")
        if not spec and request.start in self._finished():
            spec = str(self._place(request.start) / "training")
        if not spec:
            folder = minilm()  # its table of token vectors, a far better start than none
            vectors = {"vectors": str(folder)} if folder is not None else {}
            return ["--ranker", notation.write(request.start, min_count=2, **vectors)]
        return ["--init", spec] if Path(spec).is_dir() else ["--ranker", spec]

    def _watch(self, job: TrainingJob, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a training; a finished one is offered."""
        code, name = process.wait(), job.request.name
        place, fault = self._place(name), ""
        state: State = "done" if code == 0 else "cancelled" if self._is_cancelled else "failed"
        if state == "done":
            try:
                self._offer(name, str(place / "training"))
            except Exception as error:  # noqa: BLE001 - the page shows it
                state, fault = "failed", f"it was trained, but cannot be served: {error}"
        elif state == "failed":
            fault = last_words(place / "said.txt") or f"rankhouse train ended with code {code}"
        ended = msgspec.structs.replace(job, state=state, fault=fault)
        try:
            write_checked(place / "job.json", ended)
        except RankhouseError:
            self._unwritten[name] = ended
        with self._lock:
            self._running, self._process = "", None
