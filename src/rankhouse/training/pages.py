"""What a person looks at after a training: the curve, and a page that compares the systems.

Every file is made only if it is not there yet, so that the command that was killed makes the rest.
"""

from __future__ import annotations

from pathlib import Path

from rankhouse.cli import console
from rankhouse.core.errors import MissingExtra
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import compare
from rankhouse.index.index import Index
from rankhouse.io.trec import read_run, write_run
from rankhouse.ranking.rerank import rerank
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.training.curve import write_curve
from rankhouse.training.folder import CURVE, ENCODER, LOG, REPORT, UNTAUGHT, VALIDATION_RUN
from rankhouse.training.log import read_log
from rankhouse.training.tuning import interpolated
from rankhouse.training.validation import Validation

_MEASURES = "AP nDCG@10 RR@10"


def write_pages(out: Path, index: Index, validation: Validation | None, measure: str) -> None:
    """Draw the learning curve and compare the kept model with what was there before, where missing."""
    try:
        if not (out / CURVE).exists():
            write_curve(read_log(out / LOG), out / CURVE)
        if validation is not None:
            trained = _validation_run(out, index, validation)
            if not (out / REPORT).exists():
                _compare(out, validation, trained, measure)
    except MissingExtra as missing:
        console.say(f"no {CURVE} and no {REPORT}: {missing}")


def _validation_run(out: Path, index: Index, validation: Validation) -> Run:
    """Return the validation run re-ranked by what was kept."""
    if (out / VALIDATION_RUN).exists():
        return read_run(out / VALIDATION_RUN)
    ranker = open_ranker(str(out), ComputeOptions("fp32"))
    with console.progress("re-ranking validation", validation.rows) as show:
        reranked = rerank(
            ranker,
            validation.run,
            list(validation.queries),
            index.documents,
            validation.plan,
            progress=show,
        )
    write_run(reranked, out / VALIDATION_RUN, "trained")
    return reranked


def _compare(out: Path, validation: Validation, trained: Run, measure: str) -> None:
    """Write the page: the first stage, what was untaught, what was kept, both joined if that can be told."""
    runs = {"first stage": validation.run}
    if (out / UNTAUGHT).exists():
        runs["untaught"] = read_run(out / UNTAUGHT)
    if (out / ENCODER).exists():
        runs["encoder alone"] = read_run(out / ENCODER)
    runs["trained"] = trained
    joined = interpolated(trained, validation.run, validation.qrels, measure)
    if joined is not None:
        runs["trained + first stage"] = joined
    comparison = compare(runs, validation.qrels, _MEASURES, "first stage", "randomization", "holm")
    texts = {query.id: query.text for query in validation.queries}
    comparison.save(out / REPORT, title=f"Training {out.name}: validation", texts=texts)
