"""Training with everything that goes with it: the model to begin, its examples, validation, pages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankhouse.core import notation
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.progress import Progress, ignore, say, shown
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import compare
from rankhouse.evaluation.measure_notation import graded
from rankhouse.index.index import Index
from rankhouse.io.outputs import only_writer
from rankhouse.io.trec import read_run, write_run
from rankhouse.labels.soft_scores import JoinedTeachers, RunTeacher
from rankhouse.models import bundle
from rankhouse.models.families import DESIGNS, FAMILIES, Design, open_model
from rankhouse.nn.machine import choose
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.text.split import SPLITTERS
from rankhouse.training import folder
from rankhouse.training.distillation import with_scores
from rankhouse.training.examples import Examples, from_judgements, from_pairs
from rankhouse.training.fit import fit
from rankhouse.training.log import read_log, write_curve
from rankhouse.training.settings import Settings, defaults
from rankhouse.training.tuning import interpolated
from rankhouse.training.validation import Validation

if TYPE_CHECKING:
    from rankhouse.models.contract import Model


def write_pages(out: Path, validation: Validation | None, measure: str) -> None:
    """Draw the learning curve and compare the kept model with what was there before, where missing."""
    try:
        if not (out / folder.CURVE).exists() and (
            log := read_log(out / folder.LOG) if (out / folder.LOG).exists() else []
        ):
            write_curve(log, out / folder.CURVE)
        if validation is not None:
            trained = _validation_run(out, validation)
            if not (out / folder.REPORT).exists():
                _compare(out, validation, trained, measure)
    except MissingExtra as missing:
        say(f"no {folder.CURVE} and no {folder.REPORT}: {missing}")


def _validation_run(out: Path, validation: Validation) -> Run:
    """Return the validation run re-ranked by what was kept."""
    if (out / folder.VALIDATION_RUN).exists():
        return read_run(out / folder.VALIDATION_RUN)
    ranker = bundle.open_ranker(str(out / folder.RANKER), choose("fp32"))
    with shown("re-ranking validation", validation.rows) as show:
        reranked = rerank(
            ranker,
            validation.run,
            list(validation.queries),
            validation.documents,
            plan=validation.plan,
            progress=show,
        )
    write_run(reranked, out / folder.VALIDATION_RUN, "trained")
    return reranked


def _compare(out: Path, validation: Validation, trained: Run, measure: str) -> None:
    """Write the page: the first stage, what was untaught, what was kept, both joined if scores are known."""
    runs = {"first stage": validation.run}
    for name, file in (("untaught", out / folder.UNTAUGHT), ("encoder alone", out / folder.ENCODER)):
        if file.exists():
            runs[name] = read_run(file)
    runs["trained"] = trained
    joined = interpolated(trained, validation.run, validation.qrels, measure)
    if joined is not None:
        runs["trained + first stage"] = joined
    measures = "AP nDCG@10 RR@10"
    comparison = compare(
        runs, validation.qrels, measures, "first stage", test="randomization", correction="holm"
    )
    comparison.save(out / folder.NUMBERS)
    texts = {query.id: query.text for query in validation.queries}
    comparison.save(out / folder.REPORT, title=f"Training {out.name}: validation", texts=texts)


@dataclass(frozen=True)
class TrainingData:
    """Data to learn from, and data to choose the best model by."""

    queries: Sequence[Query] | None = None  # texts to learn from
    qrels: Qrels | None = None  # their judgements
    run: Run | None = None  # a first stage, for negatives
    pairs: tuple[Path, ...] = ()  # PAIRS files in place of the three
    relevant_from: int = 1  # the lowest grade or label that means relevant
    validation: Validation | None = None  # None keeps the last model
    # whose scores are learned; it scores the pairs that have none, a run or several teachers all of them,
    # before the training. Judgements are not needed then.
    teacher: Ranker | None = None


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training and of the ranker's intended use.

    Raises WrongUse: an unknown splitter or pool, or an argument that it does not take.
    """

    split: str = "whole"  # how documents are cut for validation and use, in notation
    pool: str = "max"  # what makes one score of passages, in notation
    depth: int = 100  # how deep validation re-ranks
    settings: Mapping[str, object] = field(default_factory=dict)  # what differs from the family's defaults

    def __post_init__(self) -> None:
        self.plan  # noqa: B018 - without validation too, what is wrong is said before anything is learned

    @cached_property
    def plan(self) -> Plan:
        """Plan of validation's reranking."""
        split = notation.make(self.split, SPLITTERS, "splitter")
        return Plan(split, notation.make(self.pool, POOLS, "pool"), self.depth)

    @property
    def seed(self) -> int:
        """The settings' seed, for a fresh model's weights; the settings refuse what is none."""
        value = self.settings.get("seed")
        return value if isinstance(value, int) and value >= 0 else 0


def begin(ranker: str, texts: Iterable[str], seed: int = 0) -> Model[Any]:
    """Return a model to train: a fresh one, a published checkpoint, or one that was trained before.

    ``tk(vectors="glove.txt")``, ``crossencoder("DIR")``, or the folder of a ranker. A fresh one takes its
    words from the texts.

    Raises WrongUse: an unknown family or argument; BadModel: the checkpoint cannot be used.
    """
    if Path(ranker).is_dir():
        return bundle.load(bundle.best_of(ranker))
    name = ranker.partition("(")[0].strip()
    notation.choose(name, FAMILIES, "family of rankers")
    if name not in DESIGNS:
        return open_model(ranker)
    design: Design = notation.make(ranker, DESIGNS, "ranker")
    return design.fresh(texts, seed=seed)


NO_INDEX = "give the index of the documents; only labelled pairs bring their texts along"


def texts_of(index: Index) -> Iterator[str]:
    """Stream the texts of an index's documents, titles included."""
    return (document.full_text for document in index.documents.stream())


def examples_of(data: TrainingData, index: Index | None, progress: Progress | None = None) -> Examples:
    """Lay out what is to be learned.

    Raises WrongUse: neither judgements nor pairs were given, or both, or no index for judgements; BadData:
    nothing to learn from.
    """
    if data.pairs and (data.queries or data.qrels or data.run):
        raise WrongUse("pairs hold queries and labels already; leave out queries, qrels and run")
    if data.pairs:
        examples = from_pairs(*data.pairs, relevant_from=data.relevant_from)
    elif data.queries is None or (data.run if data.teacher else data.qrels) is None:
        raise WrongUse("give queries and qrels (and a run for negatives), queries, run and teacher, or pairs")
    else:
        if index is None:
            raise WrongUse(NO_INDEX)
        examples = from_judgements(
            data.queries,
            data.qrels or {},
            index.documents,
            data.run,
            relevant_from=data.relevant_from,
            unjudged=data.teacher is not None,
        )
    if isinstance(data.teacher, JoinedTeachers | RunTeacher):
        return with_scores(examples, data.teacher, progress or ignore)
    return replace(examples, teacher=data.teacher)


def train_with(
    ranker: str,
    index: Index | None,
    data: TrainingData,
    out: Path,
    options: TrainOptions,
    progress: Progress | None = None,
) -> folder.TrainingOutcome:
    """Train a model, and write its curve, its validation run and its report.

    A fresh model takes its words from the index; without one, from the pairs.

    Raises WrongUse: another process trains there, or the folder holds another training; BadData: nothing to
    learn from.
    """
    model = None if index is None else begin(ranker, texts_of(index), options.seed)
    validation = None
    if data.validation is not None:
        given = data.validation
        ids = {query.id for query in given.queries}
        run = given.run.restrict([query_id for query_id in given.run if query_id in ids])
        validation = replace(given, run=run, plan=options.plan)
    use = {"split": options.split, "pool": options.pool}
    first = os.environ.get("RANK", "0") == "0"  # torchrun's other processes neither lock nor make pages
    with only_writer(out) if first else nullcontext():
        examples = examples_of(data, index, progress)
        model = model or begin(ranker, examples.texts(), options.seed)
        settings = settings_of(model.family, data, options)
        outcome = fit(model, examples, settings, out, validation=validation, use=use, progress=progress)
        if first:
            write_pages(out, validation, settings.measure)
    return outcome


def settings_of(family: str, data: TrainingData, options: TrainOptions) -> Settings:
    """Return the family's defaults with what differs; validation counts the grades that training does.

    Raises WrongUse: an unknown setting, or a value that it cannot have.
    """
    settings = defaults(family)
    if data.teacher is not None and "denoise" not in options.settings:
        settings = settings.but(loss="margin-mse")
    settings = settings.but(**options.settings)
    if data.relevant_from == 1:
        return settings
    return settings.but(measure=str(graded(settings.measure, data.relevant_from)[0]))
