"""TK, KNRM and Conv-KNRM trained on small real collections, against BM25, alone and interpolated.

    python benchmarks/light_rankers.py prepare ../shared/data WORK [--data nfcorpus wikiqa trecqa]
    python benchmarks/light_rankers.py train ../shared/data WORK [--data ...] [--models tk knrm conv_knrm]
        [--seeds 1 2 3] [--minutes 9] [--set NAME=VALUE] [--name NAME]
    python benchmarks/light_rankers.py table ../shared/data WORK [--name NAME]
    python benchmarks/light_rankers.py train ../shared/data WORK --teacher MINILM --set loss=listwise-kl
        --set judged=0.5 --name with-teacher [--models tk] ...
    python benchmarks/light_rankers.py train ../shared/data WORK --init WORK/taught --name begun ...
    python benchmarks/light_rankers.py against ../shared/data WORK --name with-teacher --other final

``prepare`` writes queries, judgements, BM25 runs and an index for each collection. NFCorpus: 50 BM25
documents a query; every 26th training query is held out for validation, its dev queries are the test (the
files have no others). WikiQA and TrecQA: the given candidate sentences ordered by BM25; train, dev, test,
questions that have both right and wrong candidates.

``train`` computes pieces, one for each (collection, model, seed), and writes WORK/NAME/DATA-MODEL-SEED.json;
pieces that are there are not computed again, none is begun after ``--minutes``, and a training that was
killed goes on from its last checkpoint. Epoch and weight of interpolation are chosen on validation; the
test's judgements are read when the test run is final. With ``--teacher`` (a folder of all-MiniLM) a loss on
its scores of all candidates is learned besides. With ``--init`` models are begun as ``taught.py adapt`` left
them in that folder, DATA by DATA. ``against`` compares two names, collection by collection
and pooled: a permutation test of the differences of queries, each the mean over seeds.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from rankhouse.core.nouns import Document, Query, Ranker, Ranking
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import compare_scores
from rankhouse.evaluation.measures import Scores, evaluate, scorer
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run
from rankhouse.models.bundle import load
from rankhouse.models.contract import Model
from rankhouse.models.families import DESIGNS
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.machine import choose
from rankhouse.ranking.fuse import linear, tune
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.training.examples import from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.settings import defaults
from rankhouse.training.validation import Validation

MODELS = {"tk": "TK", "knrm": "KNRM", "conv_knrm": "Conv-KNRM"}
DATA = ("nfcorpus", "wikiqa", "trecqa")
MEASURES = ("AP", "nDCG@10", "RR@10")
DEPTH = {"nfcorpus": 50, "scifact": 100, "wikiqa": 1000, "trecqa": 1000}
"""BM25 documents a query; WikiQA and TrecQA have all their candidates."""
SIDES = ("train", "valid", "test")
SPLITS = {
    "nfcorpus": ("train", "train", "dev"),
    "scifact": ("train", "train", "dev"),
    "wikiqa": ("train", "dev", "test"),
    "trecqa": ("train", "dev", "test"),
}
HELD_OUT = {"nfcorpus": 26, "scifact": 8}
"""Where validation is taken from training: every so-manieth query."""

VECTORS = "resources/potion-base-4m-int8"
READING = {"min_count": 1}
SMALL = {"rate": 1e-2, "rates": {"embedding": 1e-4, "encoder": 1e-3, "mix": 3e-2}}
"""For hundreds of steps where the papers take hundreds of thousands; found on WikiQA's dev, one seed."""
SETTINGS: dict[str, dict[str, object]] = {
    "nfcorpus": {"epochs": 3, "steps": 300, "validate_every": 100, "overlap": "allow"},
    "wikiqa": {"epochs": 8},
    "trecqa": {"epochs": 20},
}


class Piece(msgspec.Struct, frozen=True):
    """Result of one training.

    Attributes:
        data: The collection.
        model: The family.
        seed: Of weights, batches and words without a vector.
        steps: Steps taken.
        best_step: Steps the kept model had been taught.
        validation: The measure maximised, on validation, alone.
        weight: Of BM25 in the interpolation.
        seconds: Training, validations included.
        settings: How it was trained.
        query_ids: Test queries.
        alone: Measure -> value of each test query.
        joined: The same, interpolated.
        remarks: What training noticed.
    """

    data: str
    model: str
    seed: int
    steps: int
    best_step: int
    validation: float
    weight: float
    seconds: float
    settings: dict[str, object]
    query_ids: list[str]
    alone: dict[str, list[float]]
    joined: dict[str, list[float]]
    remarks: list[str]


class Collection:
    """A prepared collection.

    Args:
        given: Folder of all collections as given.
        work: Folder for what is made.
        name: Which.
    """

    def __init__(self, given: Path, work: Path, name: str) -> None:
        self.given, self.own, self.name = given / name, work / name, name

    def path(self, side: str, kind: str) -> Path:
        """Give a file: kind is "queries.jsonl", "qrels" or "run"."""
        return self.own / f"{side}.{kind}"

    def prepare(self) -> None:
        """Write index, queries, judgements and runs, unless they are there."""
        if (self.own / "done").exists():
            return
        shutil.rmtree(self.own, ignore_errors=True)
        self.own.mkdir(parents=True)
        build(read_documents([self.given / "corpus.jsonl.gz"]), self.own / "index", BuildOptions())
        index = Index.open(self.own / "index")
        for side, split in zip(SIDES, SPLITS[self.name], strict=True):
            queries = self._side(read_queries(self.given / f"queries.{split}.jsonl"), side)
            qrels = read_qrels(self.given / f"qrels.{split}.txt")
            candidates = self.given / "runs" / f"candidates.{split}.run"
            if candidates.exists():
                queries = [
                    q for q in queries if set(map(bool, qrels.get(q.id, {}).values())) == {True, False}
                ]
                run = _ordered(index, queries, read_run(candidates))
            else:
                run = retrieve(index, queries, LexicalOptions("bm25", k=DEPTH[self.name]))
            write_run(run, self.path(side, "run"), "bm25")
            write_qrels({q.id: qrels[q.id] for q in queries if q.id in qrels}, self.path(side, "qrels"))
            lines = (msgspec.json.encode({"id": q.id, "text": q.text}) for q in queries)
            self.path(side, "queries.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        (self.own / "done").touch()

    def _side(self, queries: list[Query], side: str) -> list[Query]:
        every = HELD_OUT.get(self.name)
        if not every or side == "test":
            return queries
        return [q for i, q in enumerate(queries) if (i % every == 0) == (side == "valid")]

    @cached_property
    def documents(self) -> Mapping[str, Document]:
        """All documents by id."""
        return {d.id: d for d in read_documents([self.given / "corpus.jsonl.gz"])}

    def queries(self, side: str) -> list[Query]:
        """Give a side's queries."""
        return read_queries(self.path(side, "queries.jsonl"))

    def qrels(self, side: str) -> Qrels:
        """Give a side's judgements."""
        return read_qrels(self.path(side, "qrels"))

    def run(self, side: str) -> Run:
        """Give a side's BM25 run."""
        return read_run(self.path(side, "run"))


def _ordered(index: Index, queries: Sequence[Query], candidates: Run) -> Run:
    """Order given candidates by BM25 over the whole collection; those without a common word come last."""
    everything = retrieve(index, queries, LexicalOptions("bm25", k=len(index.documents)))
    rankings: dict[str, Ranking | Mapping[str, float]] = {}
    for query in queries:
        found = everything[query.id].to_dict()
        rankings[query.id] = {d: float(found.get(d, 0.0)) for d in candidates[query.id].doc_ids}
    return Run.from_rankings(rankings)


def train_piece(
    data: Collection,
    model: Model[Any],
    seed: int,
    folder: Path,
    design: dict[str, object],
    changes: dict[str, object],
    teacher: Ranker | None = None,
) -> Piece:
    """Train, choose on validation, and measure on the test once."""
    documents = data.documents
    rates = dict(SMALL["rates"])
    wanted = {
        **SMALL,
        **SETTINGS[data.name],
        "measure": "AP",
        "device": "cpu",
        "patience": 0,
        "seed": seed,
        **changes,
    }
    parts = {name.split(".")[0] for name, _ in model.named_parameters()}
    wanted["rates"] = {name: rate for name, rate in dict(wanted.get("rates", rates)).items() if name in parts}
    settings = defaults(model.family).but(**wanted)
    run = data.run("train")
    relevant = _retrieved(data.qrels("train"), run) if data.name in HELD_OUT else data.qrels("train")
    examples = from_judgements(data.queries("train"), relevant, documents, run, unjudged=teacher is not None)
    examples = replace(examples, teacher=teacher)
    plan = Plan(depth=DEPTH[data.name])
    validation = Validation(data.run("valid"), data.queries("valid"), data.qrels("valid"), documents, plan)
    outcome = fit(model, examples, settings, folder, validation)
    ranker = NeuralRanker(model, choose("fp32", "cpu", 1))
    valid = rerank(ranker, validation.run, data.queries("valid"), documents, plan)
    fusion = linear("min-max")
    tuned = tune([valid, validation.run], scorer(validation.qrels, "AP"), fusion)
    test = rerank(ranker, data.run("test"), data.queries("test"), documents, plan)
    joined = fusion([test, data.run("test")], tuned.weights)
    write_run(test, folder.with_suffix(".run"), model.family)
    alone, both = (evaluate(run, data.qrels("test"), MEASURES) for run in (test, joined))
    return Piece(
        data.name,
        model.family,
        seed,
        outcome.steps,
        outcome.best_step,
        outcome.best,
        tuned.weights[1],
        round(outcome.seconds, 1),
        {name: value for name, value in wanted.items() if name not in {"seed", "device"}} | design,
        list(alone.query_ids),
        {name: alone.of(name).tolist() for name in MEASURES},
        {name: both.of(name).tolist() for name in MEASURES},
        outcome.remarks,
    )


def _retrieved(qrels: Qrels, run: Run) -> Qrels:
    """Keep judgements of what BM25 found.

    Most of NFCorpus's relevant documents share no word with their query; beside negatives that BM25 found,
    they teach that shared words speak against a document.
    """
    found = {q: set(run[q].doc_ids) for q in run}
    return {q: {d: g for d, g in qrels[q].items() if d in found[q]} for q in run if q in qrels}


def train(options: argparse.Namespace, given: Path, work: Path) -> None:
    """Compute the pieces that are missing."""
    began = time.monotonic()
    out = work / options.name
    out.mkdir(parents=True, exist_ok=True)
    changes = dict(_change(text) for text in options.set)
    teacher = open_ranker(f"biencoder({options.teacher!r})", ComputeOptions()) if options.teacher else None
    design = {"vectors": str(given / VECTORS), **READING, **dict(_change(text) for text in options.design)}
    for name, seed, family in product(options.data, options.seeds, options.models):
        data = Collection(given, work, name)
        data.prepare()
        path = out / f"{name}-{family}-{seed}.json"
        if path.exists():
            continue
        if time.monotonic() - began > 60 * options.minutes:
            print(f"time is up before {path.name}; the same command goes on", flush=True)
            return
        folder = path.with_suffix("")
        if (folder / "outcome.json").exists():  # killed between the end of training and the result
            shutil.rmtree(folder)
        texts = (document.full_text for document in data.documents.values())
        model = (
            load(options.init / name / "ranker")
            if options.init
            else DESIGNS[family](**design).fresh(texts, seed=seed)
        )
        piece = train_piece(data, model, seed, folder, design, changes, teacher)
        path.write_bytes(msgspec.json.encode(piece))
        shutil.rmtree(folder)
        alone, joined = (np.mean(values["AP"]) for values in (piece.alone, piece.joined))
        print(
            f"{path.name}: validation AP {piece.validation:.4f} at step {piece.best_step} of {piece.steps}, "
            f"{piece.seconds:.0f} s; test AP {alone:.4f}, "
            f"interpolated {joined:.4f} (BM25 {piece.weight:.2f})",
            flush=True,
        )


def _change(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def table(options: argparse.Namespace, given: Path, work: Path) -> None:
    """Print means over seeds and their ensemble, and randomization tests on each query's mean over seeds."""
    for name in options.data:
        data = Collection(given, work, name)
        systems = {"BM25": evaluate(data.run("test"), data.qrels("test"), MEASURES)}
        spread: dict[str, str] = {}
        for family in options.models:
            files = sorted((work / options.name).glob(f"{name}-{family}-*.json"))
            pieces = [msgspec.json.decode(path.read_bytes(), type=Piece) for path in files]
            for kind in ("alone", "joined") if pieces else ():
                system = MODELS[family] + ("" if kind == "alone" else " + BM25")
                values = np.array([[getattr(p, kind)[m] for m in MEASURES] for p in pieces])
                systems[system] = Scores(MEASURES, tuple(pieces[0].query_ids), values.mean(0))
                each = " ".join(f"{v:.4f}" for v in values.mean(2)[:, 0])
                spread[system] = f"AP by seed {each}" + (
                    f"; weight of BM25 {' '.join(f'{p.weight:.2f}' for p in pieces)}"
                    if kind == "joined"
                    else ""
                )
            if len(pieces) > 1:
                runs = [read_run(path.with_suffix(".run")) for path in files]
                share = float(np.mean([piece.weight for piece in pieces]))
                mean = linear("min-max")(runs, [1 / len(runs)] * len(runs))
                both = linear("min-max")([mean, data.run("test")], [1 - share, share])
                system = f"{MODELS[family]} x{len(runs)} + BM25"
                systems[system] = evaluate(both, data.qrels("test"), MEASURES)
                spread[system] = f"the seeds' mean; weight of BM25 {share:.2f}"
        _print(name, systems, spread)


def against(options: argparse.Namespace, given: Path, work: Path) -> None:
    """Print differences between two names' trainings, by collection and pooled."""
    for family in options.models:
        pooled: list[Scores] = []
        for name in options.data:
            both = []
            for kind in (options.other, options.name):
                files = [work / kind / f"{name}-{family}-{seed}.json" for seed in options.seeds]
                pieces = [msgspec.json.decode(path.read_bytes(), type=Piece) for path in files]
                for how in ("alone", "joined"):
                    values = np.array([[getattr(p, how)[m] for m in MEASURES] for p in pieces]).mean(0)
                    ids = tuple(f"{name}:{query_id}" for query_id in pieces[0].query_ids)
                    both.append(Scores(MEASURES, ids, values))
            data = Collection(given, work, name)
            bm25 = evaluate(data.run("test"), data.qrels("test"), MEASURES)
            pooled = [*map(_both, pooled, both)] if pooled else both
            _differences(f"{family} on {name}, BM25 nDCG@10 {bm25.mean('nDCG@10'):.4f}", both, options)
        _differences(f"{family}, all queries", pooled, options)


def _both(one: Scores, other: Scores) -> Scores:
    return Scores(MEASURES, one.query_ids + other.query_ids, np.concatenate([one.values, other.values], 1))


def _differences(title: str, both: Sequence[Scores], options: argparse.Namespace) -> None:
    for how, old, new in (("alone", both[0], both[2]), ("joined", both[1], both[3])):
        pair = compare_scores({options.other: old, options.name: new}, options.other, "randomization")
        cell = pair.cell(options.name, "nDCG@10")
        test = cell.paired_test
        assert test is not None
        print(
            f"{title}, {how} ({len(old.query_ids)} queries, {len(options.seeds)} seeds): nDCG@10 "
            f"{pair.cell(options.other, 'nDCG@10').mean:.4f} -> {cell.mean:.4f}, {test.difference:+.4f} "
            f"({test.low:+.4f} to {test.high:+.4f}), p {test.p:.4f}"
        )


def _print(name: str, systems: dict[str, Scores], spread: dict[str, str]) -> None:
    comparison = compare_scores(systems, "BM25", "randomization", "holm")
    print(f"\n{name}: {len(comparison.query_ids)} test queries. {comparison.method}")
    for system in systems:
        cells = [comparison.cell(system, measure) for measure in MEASURES]
        said = [
            f"{c.mean:.4f}"
            + (
                f" (p {c.paired_test.corrected:.4f}){'*' if c.paired_test.significant else ' '}"
                if c.paired_test
                else " " * 12
            )
            for c in cells
        ]
        print(f"  {system:<19} {'  '.join(said)}  {spread.get(system, '')}")
    for better, worse in (("TK", "Conv-KNRM"), ("Conv-KNRM", "KNRM"), ("TK", "KNRM")):
        if better in systems and worse in systems:
            pair = compare_scores({worse: systems[worse], better: systems[better]}, worse, "randomization")
            cell = pair.cell(better, "AP")
            assert cell.paired_test is not None
            print(f"  {better} - {worse}: AP {cell.paired_test.difference:+.4f} (p {cell.paired_test.p:.4f})")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prepare", "train", "table", "against"])
    parser.add_argument("given", type=Path, help="the folder of all collections")
    parser.add_argument("work", type=Path, help="a folder for what is made")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(SPLITS))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting")
    parser.add_argument("--design", action="append", default=[], metavar="NAME=VALUE", help="of the model")
    parser.add_argument("--teacher", help="a folder of all-MiniLM, whose scores are learned as well")
    parser.add_argument(
        "--init", type=Path, help="a folder of rankers taught without judgements, to begin from"
    )
    parser.add_argument("--name", default="final", help="a folder for these results")
    parser.add_argument("--other", default="final", help="what the results are compared with")
    options = parser.parse_args()
    torch.set_num_threads(1)
    given, work = options.given.resolve(), options.work.resolve()
    if options.what == "prepare":
        for name in options.data:
            Collection(given, work, name).prepare()
    elif options.what == "train":
        train(options, given, work)
    else:
        {"table": table, "against": against}[options.what](options, given, work)


if __name__ == "__main__":
    main()
