"""train: its options, and its work."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import Ranker
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.qrels import RelevantFrom
from rankhouse.index.index import Index
from rankhouse.io.files import PathLike
from rankhouse.io.inputs import QrelsLike, QueriesLike, RunLike, as_qrels, as_queries, as_run
from rankhouse.io.outputs import real_path, writing_failures
from rankhouse.io.scratch import scratch_folder
from rankhouse.systems.rankers import with_default
from rankhouse.systems.teachers import Join, TeacherLike, on_index, open_teacher

if TYPE_CHECKING:
    from rankhouse.training.folder import TrainingOutcome
    from rankhouse.training.validation import Validation


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """The options of ``rankhouse train`` and ``rh.train``."""

    ranker: Annotated[
        str | None, Option('A new model: tk(...), knrm(...); or a checkpoint: crossencoder("DIR").', "source")
    ] = None
    init: Annotated[str | None, Option("Continue training a ranker trained here: its folder.", "source")] = (
        None
    )
    index: Annotated[
        PathLike | Index | None, Option("The index that holds the documents; --pairs need none.", "input")
    ] = None
    queries: Annotated[QueriesLike | None, Option("Training queries.", "source")] = None
    qrels: Annotated[QrelsLike | None, Option("Their judgements.", "input")] = None
    run: Annotated[RunLike | None, Option("A first-stage run of them; negatives come from it.", "input")] = (
        None
    )
    pairs: Annotated[
        tuple[Path, ...],
        Option("Labelled pairs instead, as rankhouse label writes them, or triples of texts.", "input"),
    ] = ()
    teachers: Annotated[
        tuple[TeacherLike, ...],
        Option(
            "A ranker, a system, or a run with scores, to learn from; then --queries and --run suffice. "
            "Repeat for more; their scores are joined.",
            "source",
            flag="--teacher",
        ),
    ] = ()
    join: Join = "z-score"
    loss: Annotated[
        str | None,
        Option("On teachers' scores: margin-mse, listwise-kl, pointwise.  [with --teacher: margin-mse]"),
    ] = None
    cache: Annotated[Path | None, Option("Folder for the teacher's scores.", "local", neutral=True)] = None
    relevant_from: RelevantFrom = 1
    valid_queries: Annotated[QueriesLike | None, Option("Validation queries.", "source")] = None
    valid_qrels: Annotated[QrelsLike | None, Option("Their judgements.", "input")] = None
    valid_run: Annotated[
        RunLike | None, Option("Their first-stage run, reranked at every validation.", "input")
    ] = None
    valid_sets: Annotated[
        tuple[str, ...],
        Option(
            "Instead, a collection with queries and judgements of its own, whose first documents by BM25 are "
            "reranked: a folder in BEIR's layout, ir_datasets:nano-beir/nq. Repeat for more: their mean.",
            "source",
            flag="--valid-set",
        ),
    ] = ()
    depth: Annotated[int, Option("Documents reranked per validation query.", least=1)] = 100
    split: Annotated[str, Option('How validation splits documents: "words(100)" ...')] = "whole"
    pool: Annotated[str, Option("The pool of passages' scores in validation.")] = "max"
    epochs: Annotated[
        int | None, Option("Passes over the training data; the family's own by default.", least=1)
    ] = None
    changes: Annotated[
        tuple[str, ...], Option("Any setting: rate=1e-4, batch=32 ...", flag="--set", metavar="NAME=VALUE")
    ] = ()
    seed: Annotated[int | None, Option("Of all random draws.", default="0", least=0, most=2**32 - 1)] = None

    def train(
        self, out: Path, settings: Mapping[str, object], progress: Progress | None = None
    ) -> TrainingOutcome:
        """Train, or go on with a training; MissingExtra where torch is not installed."""
        with needs("neural", "training"):
            from rankhouse.training.teaching import NO_INDEX, TrainingData, TrainOptions, train_with
        options = TrainOptions(split=self.split, pool=self.pool, depth=self.depth, settings=settings)
        index = self.index
        if index is None and not self.pairs:
            raise WrongUse(NO_INDEX)
        if index is not None and not isinstance(index, Index):
            index = Index.open(Path(index))
        with ExitStack() as stack:
            data = TrainingData(
                queries=None if self.queries is None else as_queries(self.queries),
                qrels=None if self.qrels is None else as_qrels(self.qrels),
                run=None if self.run is None else as_run(self.run),
                pairs=self.pairs,
                relevant_from=self.relevant_from,
                validation=self._validation(index, out, stack),
                teacher=self._teacher(index, stack, progress or ignore) if self.teachers else None,
            )
            ranker = with_default(str(self.ranker or self.init))
            return train_with(ranker, index, data, out=out, options=options, progress=progress)

    def _teacher(self, index: Index | None, stack: ExitStack, progress: Progress) -> Ranker:
        """Open the teachers; systems among them rank the documents for the questions first."""
        teacher = open_teacher(self.teachers, self.join, self.cache, stack)
        if self.queries is None or index is None:
            return teacher
        return on_index(teacher, as_queries(self.queries), index, progress)

    def _validation(self, index: Index | None, out: Path, stack: ExitStack) -> Validation | None:
        from rankhouse.training.validation import Validation, validation_sets

        if self.valid_sets:
            with writing_failures(out):  # beside it, where the next training tidies up after a killed one
                folder = stack.enter_context(scratch_folder(real_path(out)))
            return validation_sets(self.valid_sets, folder / "sets", self.depth)
        if self.valid_queries is None or self.valid_qrels is None or self.valid_run is None:
            return None
        if index is None:
            raise WrongUse("validation reranks documents of an index; give that too")
        queries, qrels = as_queries(self.valid_queries), as_qrels(self.valid_qrels)
        return Validation(as_run(self.valid_run), queries, qrels, index.documents)
