"""The service: its parts in one object, which every handler finds as ``request.app.state.service``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.core.errors import MissingExtra
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.serve.host.cluster import ServiceCluster
from rankhouse.serve.host.journal import Audit, Lines
from rankhouse.serve.host.keys import Keys
from rankhouse.serve.host.metrics import Metrics, Queue, Queues
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.judging.known import GivenQueries
from rankhouse.serve.judging.runs import SystemRuns
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.judging.training import TrainingJobs
from rankhouse.serve.search.catalogue import Catalogue

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker


class Phase(StrEnum):
    """Where a service is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass
class Service:
    """What handlers work with.

    Attributes:
        options: What the service was told when it started.
        catalogue: Indexes and rankers by name.
        judgements: What judges say; None where nobody judges.
        queries: Questions of the first index, to choose from.
        qrels: Judgements of them that were there before; only read.
        runs: Name -> run of them, to compare beside the systems.
        keys: Who may come in; None lets everybody in.
        metrics: What is counted.
        audit: Gets a line for whatever was judged, trained or refused.
        access_log: Gets a line a request.
        phase: Where the service is in its life; ready once its models are warm.
        is_over: Whether even requests in progress have no time left.
        system_runs: Runs of systems over the questions, made when they are compared.
        training: Trainings from the judgements.
        cluster: What holds rankers elsewhere; None for nothing.
    """

    options: ServeOptions
    catalogue: Catalogue = field(default_factory=lambda: Catalogue({}))
    judgements: JudgementStore | None = None
    queries: tuple[Query, ...] = ()
    qrels: Qrels = field(default_factory=dict)
    runs: Mapping[str, Run] = field(default_factory=dict)
    keys: Keys | None = None
    metrics: Metrics = field(default_factory=Metrics)
    audit: Audit = field(default_factory=lambda: Audit(None))
    access_log: Lines = field(default_factory=lambda: Lines(None))
    phase: Phase = Phase.STARTING
    is_over: bool = False
    cluster: ServiceCluster | None = None
    system_runs: SystemRuns = field(init=False)
    training: TrainingJobs = field(init=False)
    _tasks: set[asyncio.Task[object]] = field(default_factory=set)

    @cached_property
    def given(self) -> GivenQueries:
        """The questions that were given, by id and by their words; made when first asked for."""
        return GivenQueries(self.queries)

    def warm(self) -> None:
        """Open and warm the rankers; then the service is ready.

        Raises:
            RankhouseError: One of them cannot be opened.
        """
        for name, spec in self.options.rankers.items():
            self.add_ranker(name, spec)
        self.training.take_up()
        if self.phase is Phase.STARTING:
            self.phase = Phase.READY

    def add_ranker(self, name: str, spec: str) -> ServedRanker:
        """Open and warm a ranker and offer it from now on; one of that name is replaced.

        Raises:
            RankhouseError: It cannot be opened.
        """
        try:
            from rankhouse.serve.engine.rankers import open_served
        except ImportError as error:
            raise MissingExtra(f"the ranker {spec}", "neural") from error
        options = self.options
        ranker = open_served(
            name, spec, options.compute,
            split=options.split, pool=options.pool, capacity=options.limits.queue_tokens,
            spread=None if self.cluster is None else self.cluster.spreading(spec, options),
        )  # fmt: skip
        ranker.worker.observer = self.metrics.models
        ranker.warm()
        self.catalogue.add_ranker(ranker)
        return ranker

    def drain(self) -> None:
        """Take no more work: the service says at once that it is not ready."""
        self.phase = Phase.DRAINING

    def __post_init__(self) -> None:
        self.system_runs = SystemRuns(self.catalogue)
        self.training = TrainingJobs(_trainings(self.options), self, self.add_ranker, self.options.rankers)
        self.metrics.registry.register(Queues(self._workers))

    def _workers(self) -> list[tuple[str, Queue]]:
        return [(name, ranker.worker) for name, ranker in self.catalogue.rankers.items()]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the task at work as a request in progress while a block runs."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    @property
    def in_progress(self) -> int:
        """Requests that are being answered, probes aside."""
        return len(self._tasks)

    def cut_off(self) -> None:
        """End what is still in progress: its clients are told to ask again. Called in the event loop."""
        self.is_over = True
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        """Let go of models, files and processes."""
        self.training.close()
        self.system_runs.close()
        for ranker in self.catalogue.rankers.values():
            ranker.close()
        if self.judgements is not None:
            self.judgements.close()
        self.access_log.close()


def _trainings(options: ServeOptions) -> Path | None:
    """Return where trainings lie; None for a service that only reads."""
    path = options.judgements
    return None if path is None else options.trainings or path.with_name(f"{path.name}.trained")


def open_service(options: ServeOptions, cluster: ServiceCluster | None = None) -> Service:
    """Open what a service serves; models are warmed later, by :meth:`Service.warm`.

    Args:
        cluster: What holds its indexes and rankers; None for this process.

    Raises:
        RankhouseError: An index, a ranker or a file cannot be opened.
    """
    keys = None if options.key_file is None else Keys.read(options.key_file)
    queries = () if options.queries is None else tuple(read_queries(options.queries))
    catalogue = Catalogue(options.indexes, cluster=cluster)
    qrels = {} if options.qrels is None else read_qrels(options.qrels)
    runs = {name: read_run(path) for name, path in options.runs.items()}
    for run in runs.values():
        catalogue.view().index.require(run[next(iter(run))].doc_ids if len(run) else ())
    store = None if options.judgements is None else JudgementStore(options.judgements, queries)
    try:
        audit, access_log = Audit(options.audit), Lines(options.access_log)
    except BaseException:
        if store is not None:
            store.close()
        raise
    return Service(
        options, catalogue, store, queries, qrels, runs, keys,
        audit=audit, access_log=access_log, cluster=cluster,
    )  # fmt: skip
