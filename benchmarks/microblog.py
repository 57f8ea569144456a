"""samCNN on the two given years of TREC Microblog: train on one, test on the other, both ways.

    python benchmarks/microblog.py train ../shared/data WORK [--models bicnn qatt patt patt-plain]
        [--seeds 1 2 3 4 5] [--tests 2011 2012] [--minutes 9]
    python benchmarks/microblog.py table ../shared/data WORK

``train`` computes pieces, one for each (test year, model, seed), and writes WORK/YEAR-MODEL-SEED.json and the
test run beside it; pieces that are there are not computed again, none is begun after ``--minutes``, and a
training that was killed goes on from its last checkpoint. A fifth of the training year's queries, drawn by
the seed, is held out: the epoch kept and the weight of query likelihood are chosen on it. The test year's
judgements are read when the test run is final.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import msgspec
import numpy as np
import torch

from rankhouse.core import notation
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import compare_scores
from rankhouse.evaluation.measures import Scores, evaluate, scorer
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run, write_run
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.samcnn import SamCNNDesign
from rankhouse.nn.machine import choose
from rankhouse.ranking.fuse import linear, tune
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.training.examples import from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.settings import defaults
from rankhouse.training.validation import Validation

OTHER = {"2011": "2012", "2012": "2011"}
MODELS = {
    "bicnn": 'samcnn(attention=None, vectors="{vectors}")',
    "qatt": 'samcnn(attention="query", importance="idf", vectors="{vectors}")',
    "patt": 'samcnn(attention="position", importance="idf", overlap=True, vectors="{vectors}")',
    "patt-plain": 'samcnn(attention="position", vectors="{vectors}")',
}
MIXED = {"epochs": 10, "by_query": 0, "batch": 256, "count": 4}
"""Settings found on 2011: batches that mix queries, four posts not relevant for each relevant one."""
MEASURES = ("AP", "P@30")
GIVEN = {"ql": "QL", "rm3": "RM3", "mphcnn": "MP-HCNN (given run)"}
HELD_OUT = 5
"""Every so-manieth training query is held out."""


@dataclass(frozen=True)
class Year:
    """One year's collection.

    Attributes:
        folder: Where it lies.
    """

    folder: Path

    @cached_property
    def documents(self) -> dict[str, Document]:
        """The posts by id."""
        return {document.id: document for document in read_documents([self.folder / "corpus.jsonl.gz"])}

    @cached_property
    def queries(self) -> list[Query]:
        """The topics, cut into words as the posts are."""
        return list(read_queries(self.folder / "queries.jsonl", field="tokens"))

    @cached_property
    def qrels(self) -> Qrels:
        """The complete judgements."""
        return read_qrels(self.folder / "qrels.txt")

    def run(self, name: str) -> Run:
        """A given run."""
        return read_run(self.folder / "runs" / f"{name}.run")


class Piece(msgspec.Struct):
    """Result of one training; ``alone`` and ``with_ql`` are means of the test year."""

    test: str
    model: str
    seed: int
    alone: dict[str, float]
    with_ql: dict[str, float]
    weights: tuple[float, float]
    best_epoch: float
    validation: float
    seconds: float


@cache
def year_of(data: Path, name: str) -> Year:
    """Give a year's collection, read once."""
    return Year(data / f"microblog-{name}")


def name_of(test: str, model: str, seed: int) -> str:
    return f"{test}-{model}-{seed}"


def parted(queries: Sequence[Query], qrels: Qrels, seed: int) -> tuple[list[Query], list[Query]]:
    """Hold some judged queries out, drawn by the seed."""
    judged = [query for query in queries if query.id in qrels]
    order = np.random.default_rng((seed, 2019)).permutation(len(judged))
    held_out = set(order[: len(judged) // HELD_OUT].tolist())
    return (
        [query for at, query in enumerate(judged) if at not in held_out],
        [query for at, query in enumerate(judged) if at in held_out],
    )


def train(
    data: Path, work: Path, test: str, model_name: str, seed: int, changes: Mapping[str, object]
) -> None:
    """Compute one piece."""
    began = time.process_time()
    learn, asked = year_of(data, OTHER[test]), year_of(data, test)
    taught, held_out = parted(learn.queries, learn.qrels, seed)
    judged = {query.id: learn.qrels[query.id] for query in held_out}
    first = learn.run("ql")
    held_run = first.restrict(judged)
    validation = Validation(held_run, held_out, judged, learn.documents, Plan(depth=1000))
    examples = from_judgements(taught, learn.qrels, learn.documents, first)
    vectors = str(data / "resources" / "potion-base-4m-int8")
    design = notation.make(MODELS[model_name].format(vectors=vectors), {"samcnn": SamCNNDesign}, "ranker")
    model = design.fresh((document.text for document in learn.documents.values()), seed=seed)
    settings = defaults("samcnn").but(**(MIXED | {**changes} | {"seed": seed, "device": "cpu"}))
    folder = work / name_of(test, model_name, seed)
    outcome = fit(model, examples, settings, folder, validation)

    ranker = NeuralRanker(model, choose("fp32", "cpu"))
    held_scored = rerank(ranker, held_run, held_out, learn.documents, validation.plan)
    tuned = tune([held_scored, held_run], scorer(judged, "AP"), linear("z-score"))
    ql = asked.run("ql")
    alone = rerank(ranker, ql, asked.queries, asked.documents, Plan(depth=1000))
    write_run(alone, work / f"{folder.name}.run", model_name)
    both = linear("z-score")([alone, ql], tuned.weights)
    write_run(both, work / f"{folder.name}.ql.run", f"{model_name}+ql")
    piece = Piece(
        test,
        model_name,
        seed,
        evaluate(alone, asked.qrels, MEASURES).means,
        evaluate(both, asked.qrels, MEASURES).means,
        (tuned.weights[0], tuned.weights[1]),
        outcome.best_step * outcome.epochs / max(1, outcome.steps),
        outcome.best,
        time.process_time() - began,
    )
    (work / f"{folder.name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(piece)))
    shutil.rmtree(folder)
    print(piece, flush=True)


def mean_of(scores: Sequence[Scores]) -> Scores:
    """Average several systems query by query."""
    first = scores[0]
    return Scores(first.measures, first.query_ids, np.mean([each.values for each in scores], axis=0))


def joined(work: Path, year: Year, pieces: Sequence[Piece]) -> dict[str, Run]:
    """Join the seeds of one model by the mean of their scores, alone and with query likelihood.

    The weight of query likelihood is the mean of those that the seeds found on what they held out.
    """
    runs = [read_run(work / f"{name_of(piece.test, piece.model, piece.seed)}.run") for piece in pieces]
    share = float(np.mean([piece.weights[0] for piece in pieces]))
    fusion, name = linear("z-score"), f"{pieces[0].model} x{len(pieces)}"
    mean = fusion(runs, [1 / len(runs)] * len(runs))
    return {name: mean, f"{name}+QL": fusion([mean, year.run("ql")], [share, 1 - share])}


def table(data: Path, work: Path) -> None:
    """Print what has been computed, with the randomization test against the given runs."""
    found = [msgspec.json.decode(path.read_bytes(), type=Piece) for path in sorted(work.glob("*-*.json"))]
    for test in sorted({piece.test for piece in found}):
        year = year_of(data, test)
        systems = {shown: evaluate(year.run(name), year.qrels, MEASURES) for name, shown in GIVEN.items()}
        spread = {}
        for model in [name for name in MODELS if any((p.test, p.model) == (test, name) for p in found)]:
            own = [piece for piece in found if (piece.test, piece.model) == (test, model)]
            for ending, shown in (("", model), (".ql", f"{model}+QL")):
                runs = [read_run(work / f"{name_of(test, model, p.seed)}{ending}.run") for p in own]
                each = [evaluate(run, year.qrels, MEASURES) for run in runs]
                systems[shown] = mean_of(each)
                spread[shown] = (
                    len(each),
                    np.std([s.values.mean(1) for s in each], axis=0, ddof=min(1, len(each) - 1)),
                )
            if len(own) > 1:
                for shown, run in joined(work, year, own).items():
                    systems[shown] = evaluate(run, year.qrels, MEASURES)
        tests = {shown: compare_scores(systems, shown, "randomization") for shown in GIVEN.values()}
        print(
            f"\n{OTHER[test]} -> {test}: mean (standard deviation over seeds) and p against", *GIVEN.values()
        )
        for system, scores in systems.items():
            cells = []
            for at, measure in enumerate(MEASURES):
                cell = f"{measure} {scores.mean(measure):.4f}"
                if system in spread:
                    cell += f" ({spread[system][1][at]:.4f}, {spread[system][0]} seeds)"
                if system not in GIVEN.values():
                    contrasts = [tests[base].cell(system, measure).paired_test for base in tests]
                    cell += " p " + " ".join(f"{each.p:.3f}" for each in contrasts if each)
                cells.append(cell)
            print(f"  {system:20}", " | ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--tests", nargs="+", default=list(OTHER), choices=list(OTHER))
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=NUMBER", help="settings of training")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    if given.what == "table":
        table(given.data, given.work)
        return
    changes = {name: msgspec.json.decode(value) for name, value in (each.split("=", 1) for each in given.set)}
    until = time.monotonic() + 60 * given.minutes
    for seed in given.seeds:
        for test in given.tests:
            for model in given.models:
                if (
                    not (given.work / f"{name_of(test, model, seed)}.json").exists()
                    and time.monotonic() < until
                ):
                    train(given.data, given.work, test, model, seed, changes)


if __name__ == "__main__":
    main()
