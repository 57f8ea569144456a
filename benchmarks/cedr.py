"""CEDR beside its plain encoder: equal starts, steps and pairs (docs/cedr.md).

    python benchmarks/light_rankers.py prepare DATA WORK --data wikiqa trecqa
    python benchmarks/cedr.py train DATA WORK RANKER [--data wikiqa trecqa] [--systems ...] [--seeds 0 1 2]
    python benchmarks/cedr.py table DATA WORK RANKER [--data ...] [--seeds ...]
    python benchmarks/cedr.py speed DATA WORK RANKER [--data nfcorpus wikiqa]

RANKER names the cross-encoder that each seed's trainings begin as, ``{seed}`` in it is the seed
(docs/qa-docrank.md has the command for them). ``plain`` goes on as it is, with the cross-encoder's loss.
``cls`` has a drawn line over the last [CLS] state and CEDR's loss: what a CEDR without its match matrices
would be. ``cedr_knrm`` and ``cedr_pacrr`` have their heads drawn. All learn from as many pairs in as many
steps; the last model is kept.

``train`` writes runs of validation and test, losses, and seconds of processor time into WORK/NAME; what is
finished is not computed again. ``table`` prints means over seeds, alone and joined with BM25 by the weight
that is best on validation, intervals of differences over questions (each question's mean over the seeds), and
randomization tests, Holm over all of a collection's. ``speed`` scores the first 40 pairs of the test with
the untaught models of the first seed, on one thread: least processor time of three, in ms.
"""

from __future__ import annotations

import argparse
import shutil
import time
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from label_students import per_query
from light_rankers import Collection, _change
from numpy.typing import NDArray
from torch import Tensor

from rankhouse.core.nouns import Pair, Passage
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import scorer
from rankhouse.evaluation.significance import holm, randomization_test, t_interval
from rankhouse.io.trec import read_run, write_run
from rankhouse.models.bundle import load
from rankhouse.models.cedr import KNRMHead
from rankhouse.models.cedr_design import CEDRDesign
from rankhouse.models.contract import Model
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.machine import choose
from rankhouse.ranking.fuse import linear, tune
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.training.examples import from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.settings import defaults

SYSTEMS = {
    "start": "the start",
    "plain": "cross-encoder",
    "cls": "[CLS] and CEDR's loss",
    "cedr_knrm": "CEDR-KNRM",
    "cedr_pacrr": "CEDR-PACRR",
}
MEASURES = ("AP", "nDCG@10")
PAIRS = 16
"""Pairs a step: of points, or half as many contrasts of two."""
SETTINGS: dict[str, object] = {
    "steps": 100,
    "epochs": 1000,
    "rates": {"network": 5e-5},
    "optimizer": "adamw",
    "schedule": "linear(warmup=0.1)",
    "clip": 1.0,
    "dropout": 0,
    "precision": "bf16",
    "device": "cpu",
}


class FirstState(KNRMHead):
    """A line over the last [CLS] state: the kernels of a passage without tokens are zeros."""

    def forward(self, match: Tensor, first: Tensor) -> Tensor:
        """Score one pair without its matrices: ()."""
        return super().forward(match[:, :, :0], first)


class Piece(msgspec.Struct, frozen=True):
    """What a training took, and scoring the test's pairs, in seconds of processor time; its losses."""

    training: float
    scoring: float
    losses: list[float]
    settings: dict[str, object]


def begin(system: str, start: str, seed: int) -> Model[Any]:
    """Return the model before its first step."""
    if system in {"start", "plain"}:
        return load(Path(start))
    model = CEDRDesign(start, "knrm" if system == "cls" else system.removeprefix("cedr_")).fresh([], seed)
    if system == "cls":
        model.head.__class__ = FirstState
    return model


def train(data: Collection, system: str, seed: int, chosen: argparse.Namespace) -> None:
    """Train one system from one seed, and have it read validation and test."""
    out: Path = data.own.parent / chosen.name / data.name / f"{system}-{seed}"
    if out.with_suffix(".json").exists():
        return
    documents, run, qrels = data.documents, data.run("train"), data.qrels("train")
    model, losses, changes = begin(system, chosen.ranker.format(seed=seed), seed), [], dict(SETTINGS)
    begun = time.process_time()
    if system != "start":
        contrasts = model.objective == "contrasts"
        changes |= {"batch": PAIRS // 2 if contrasts else PAIRS, "seed": seed, "accumulate": 1}
        changes |= dict(_change(text) for text in chosen.set)
        settings = defaults(model.family).but(**changes)
        shutil.rmtree(out, ignore_errors=True)  # an unfinished one
        fit(model, from_judgements(data.queries("train"), qrels, documents, run), settings, out)
        lines = list(map(msgspec.json.decode, (out / "log.jsonl").read_bytes().splitlines()))
        losses = [line["loss"] for line in lines if "loss" in line]
        shutil.rmtree(out)
    trained = time.process_time()
    ranker, scoring = NeuralRanker(model, choose(chosen.precision, "cpu", 1)), 0.0
    for side in ("valid", "test"):
        before = time.process_time()
        found = rerank(ranker, data.run(side), data.queries(side), documents, Plan(depth=1000))
        scoring = time.process_time() - before
        out.parent.mkdir(parents=True, exist_ok=True)
        write_run(found, out.with_suffix(f".{side}.run"), system)
    piece = Piece(round(trained - begun, 1), round(scoring, 1), losses, changes)
    out.with_suffix(".json").write_bytes(msgspec.json.encode(piece))
    value = scorer(data.qrels("valid"), "AP")(read_run(out.with_suffix(".valid.run")))
    ends = f"loss {np.mean(losses[:2]):.3f} to {np.mean(losses[-2:]):.3f}, " if losses else ""
    print(
        f"{time.strftime('%H:%M:%S')} {data.name} {system} {seed}: {ends}validation AP {value:.4f}, "
        f"training {piece.training:.0f} s, scoring {piece.scoring:.0f} s",
        flush=True,
    )


def table(data: Collection, chosen: argparse.Namespace) -> str:
    """Return a collection's tables in Markdown: effectiveness and times, and differences."""
    folder, judged = data.own.parent / chosen.name / data.name, data.qrels("test")
    runs: dict[str, list[Run]] = {"BM25": [data.run("test")]}
    said = {}
    for system, name in SYSTEMS.items():
        stems = [folder / f"{system}-{seed}" for seed in chosen.seeds]
        if not all(stem.with_suffix(".json").exists() for stem in stems):
            continue
        pieces = [msgspec.json.decode(stem.with_suffix(".json").read_bytes(), type=Piece) for stem in stems]
        runs[name], runs[f"{name} + BM25"], weights = [], [], []
        for stem in stems:
            valid, test = (read_run(stem.with_suffix(f".{side}.run")) for side in ("valid", "test"))
            fusion = linear("z-score")
            tuned = tune([valid, data.run("valid")], scorer(data.qrels("valid"), "AP"), fusion)
            weights.append(f"{tuned.weights[0]:.2f}")
            runs[name].append(test)
            runs[f"{name} + BM25"].append(fusion([test, data.run("test")], tuned.weights))
        times = (f"{np.mean([getattr(one, what) for one in pieces]):.0f}" for what in ("training", "scoring"))
        said[name], said[f"{name} + BM25"] = " | ".join(times), f"weights {', '.join(weights)} | "
    values = {
        name: [per_query(every, judged, measure) for measure in MEASURES] for name, every in runs.items()
    }
    lines = [f"{data.name}, {len(judged)} questions", ""]
    lines += [f"| | {' | '.join(MEASURES)} | {MEASURES[0]} by seed | training, s | scoring, s |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, every in values.items():
        means = " | ".join(f"{value.mean():.3f}" for value in every)
        seeded = ", ".join(f"{value:.3f}" for value in every[0].mean(axis=1))
        lines.append(f"| {name} | {means} | {seeded} | {said.get(name, ' | ')} |")
    return "\n".join([*lines, "", *differences({name: every[0] for name, every in values.items()})])


def differences(values: dict[str, NDArray[np.float64]]) -> list[str]:
    """Return rows of the differences of AP that are asked for, over each question's mean of the seeds."""
    heads = [SYSTEMS["cedr_knrm"], SYSTEMS["cedr_pacrr"]]
    before = [SYSTEMS["plain"], SYSTEMS["cls"], SYSTEMS["start"]]
    asked = [(f"{a}{end}", f"{b}{end}") for end in ("", " + BM25") for a, b in product(heads, before)]
    asked += [(SYSTEMS["plain"], SYSTEMS["start"]), (SYSTEMS["plain"], SYSTEMS["cls"])]
    asked += [(f"{one} + BM25", one) for one in (SYSTEMS["plain"], *heads)]
    asked = [(one, other) for one, other in asked if one in values and other in values]
    gains = np.array([values[one].mean(axis=0) - values[other].mean(axis=0) for one, other in asked])
    p = randomization_test(gains)
    lines = [
        f"| difference of AP ({len(asked)} tests) | mean, 95 % interval | p | Holm |",
        "|---|---|---|---|",
    ]
    for (one, other), gain, raw, corrected in zip(asked, gains, p, holm(p), strict=True):
        mean, low, high = t_interval(gain)
        shown = f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
        lines.append(f"| {one} − {other} | {shown} | {raw:.4f} | {corrected:.4f} |")
    return lines


def speed(data: Collection, chosen: argparse.Namespace) -> None:
    """Print what scoring costs."""
    texts = {query.id: query for query in data.queries("test")}
    run, seed = data.run("test"), chosen.seeds[0]
    found = [(texts[query_id], doc_id) for query_id in run for doc_id in run[query_id].doc_ids]
    pairs = [
        Pair(query, Passage(doc_id, 0, data.documents[doc_id].full_text)) for query, doc_id in found[:40]
    ]
    print(f"| {data.name}, ms | fp32 | bf16 | int8 |", "|---|---|---|---|", sep="\n")
    for system in ("start", "cedr_knrm", "cedr_pacrr", "cedr_drmm"):
        model, least = begin(system, chosen.ranker.format(seed=seed), seed), []
        for precision in ("fp32", "bf16", "int8"):
            ranker, times = NeuralRanker(model, choose(precision, "cpu", 1)), []
            for _ in range(4):  # the first makes the texts ids
                begun = time.process_time()
                ranker.score(pairs)
                times.append(time.process_time() - begun)
            least.append(f"{1000 * min(times[1:]):,.0f}")
        print(f"| {system} | {' | '.join(least)} |", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("do", choices=("train", "table", "speed"))
    parser.add_argument("given", type=Path, metavar="DATA")
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("ranker", metavar="RANKER")
    parser.add_argument("--data", nargs="+", default=["wikiqa", "trecqa"])
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--precision", default="bf16", help="of scoring")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting")
    parser.add_argument("--name", default="cedr", help="a folder for these results")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    collections = [Collection(chosen.given.resolve(), chosen.work.resolve(), name) for name in chosen.data]
    if chosen.do == "table":
        for data in collections:
            print(table(data, chosen), end="\n\n", flush=True)
        return
    if chosen.do == "speed":
        for data in collections:
            speed(data, chosen)
        return
    for seed, data, system in product(chosen.seeds, collections, chosen.systems):
        train(data, system, seed, chosen)


if __name__ == "__main__":
    main()
