"""The service: its parts in one object, which every handler finds as ``request.app.state.service``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rankhouse.core import progress
from rankhouse.core.errors import needs
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.serve.host.gates import Keys
from rankhouse.serve.host.journal import JsonLines, Queues, ServiceMetrics
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.log import Audit
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.judging.training import TrainingJobs
from rankhouse.serve.search.answer import reading_time
from rankhouse.serve.search.catalogue import Catalogue, IndexView
from rankhouse.serve.search.systems import ReadingTime, doubt_of

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.serve.engine.served import ServedRanker
    from rankhouse.serve.engine.worker import ModelWorker


class Phase(StrEnum):
    """Phase of a service's life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class RemoteHolder(Protocol):
    """Holder of indexes and rankers elsewhere: a cluster."""

    def view(self, name: str, path: Path) -> IndexView:
        """Return an index that it holds."""

    def spreading(self, spec: str, options: ServeOptions) -> Callable[[NeuralRanker, str], ModelWorker]:
        """Return what has a ranker held, and makes the worker that spreads its work."""


@dataclass
class Service(ServedCollection):
    """The service that handlers work with: what is served, and how."""

    options: ServeOptions = field(default_factory=ServeOptions)
    keys: Keys | None = None  # those of the people who may come in; None lets everybody in
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    access_log: JsonLines = field(default_factory=lambda: JsonLines(None))
    phase: Phase = Phase.STARTING
    is_over: bool = False  # whether even requests in progress have no time left
    cluster: RemoteHolder | None = None  # the cluster that holds rankers elsewhere; None for none
    # the requests that are being answered, probes aside
    tasks: set[asyncio.Task[object]] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
        path, trainings = self.options.judgements, self.options.trainings
        folder = None if path is None else trainings or path.with_name(f"{path.name}.trained")
        self.training = TrainingJobs(folder, self, self.add_ranker, self.options.rankers)
        self.metrics.registry.register(Queues(self.catalogue))

    def warm(self) -> None:
        """Open and warm the rankers; then the service is ready."""
        for name, spec in self.options.rankers.items():
            if name not in self.options.late:
                self.add_ranker(name, spec)
        for index in self.catalogue.indexes:
            self._measure(index)
        self.training.offer_finished()
        if self.phase is Phase.STARTING:
            self.phase = Phase.READY

    def _measure(self, index: str) -> None:
        """Find out whether the first ranker is good and quick enough to rank by default, and say so."""
        catalogue, most, options = self.catalogue, self.options.quick, self.options
        view = catalogue.view(index)
        if (reading := catalogue.reading(catalogue.systems(view))) is None:
            return
        doubt, worth = (
            ("", "") if options.trust or not most else doubt_of(catalogue.ranker(reading.ranker).spec)
        )
        if doubt:
            time = ReadingTime(reading.ranker, None, most, doubt)
        else:
            time = reading_time(catalogue, view, reading, most)._replace(worth=worth)
        catalogue.reading_times[index] = time
        which = f"{index}: " * (len(catalogue.indexes) > 1)
        progress.say(which + time.sentence)

    def add_ranker(self, name: str, spec: str) -> ServedRanker:
        """Open and warm a ranker, or raise a RankhouseError, and offer it; one of that name is replaced."""
        with needs("neural", f"the ranker {spec}"):
            from rankhouse.serve.engine.served import open_served
        options = self.options
        ranker = open_served(
            name, spec, options.compute,
            split=options.split, pool=options.pool, capacity=options.limits.queue_tokens,
            spread=None if self.cluster is None else self.cluster.spreading(spec, options),
        )  # fmt: skip
        ranker.worker.observer = self.metrics
        ranker.warm()
        self.catalogue.add_ranker(ranker)
        return ranker

    def close(self) -> None:
        """Let go of models, files and processes."""
        self.training.close()
        self.system_runs.close()
        for ranker in self.catalogue.rankers.values():
            ranker.close()
        if self.judgements is not None:
            self.judgements.close()
        self.access_log.close()


def open_service(options: ServeOptions, cluster: RemoteHolder | None = None) -> Service:
    """Open what a service serves, or raise a RankhouseError; :meth:`Service.warm` opens models later."""
    keys = None if options.key_file is None else Keys.read(options.key_file)
    queries = () if options.queries is None else tuple(read_queries(options.queries))
    held = None if cluster is None else cluster.view
    catalogue = Catalogue(
        options.indexes, systems=options.systems, held=held, given=options.rankers,
        of_folder=options.contents is not None,
    )  # fmt: skip
    qrels = {} if options.qrels is None else read_qrels(options.qrels)
    runs = {name: read_run(path) for name, path in options.runs.items()}
    for run in runs.values():
        catalogue.view().index.require(run[next(iter(run))].doc_ids if len(run) else ())
    audit, access_log = Audit(options.audit), JsonLines(options.access_log)
    store = None if options.judgements is None else JudgementStore(options.judgements, queries)
    return Service(
        catalogue, store, queries, qrels, runs=runs, audit=audit, contents=options.contents,
        options=options, keys=keys, access_log=access_log, cluster=cluster,
    )  # fmt: skip
