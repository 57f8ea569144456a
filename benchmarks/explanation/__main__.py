"""Measure how good explanations are, on WikiQA and NFCorpus with rankers trained there.

    python -m benchmarks.explanation train   DATA WORK [--data wikiqa nfcorpus] [--rankers knrm tk ...]
    python -m benchmarks.explanation measure DATA WORK [--data ...] [--rankers ...] [--checks complete ...]
    python -m benchmarks.explanation table   DATA WORK [--json]

DATA holds wikiqa, nfcorpus and resources; WORK is a folder for what is made. ``train`` trains each ranker for
a minute or two by ``rh.train``, in fp32 on one thread; a training that was killed goes on. ``measure``
computes pieces, one for each (check, collection, ranker), and writes WORK/results/CHECK-DATA-RANKER.json;
pieces that are there are not computed again. Checks: complete (do parts sum to scores), faithful (deletion
and insertion against random order), bound (redrawn weights, the same bytes), irrelevant (a sentence of
another document), planted (a word count recovered), speed. ``table`` prints the tables of
docs/explanation-quality.md, or all numbers as JSON. Pairs are drawn with seed 0 from the candidates of test
questions, one a question for ``faithful``, ``bound`` and ``irrelevant``; for ``complete`` half of the
documents are any of the collection, for ``irrelevant`` they are relevant ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch

from rankhouse.explanation.methods import ExplainOptions
from rankhouse.io.outputs import write_json
from rankhouse.models.ranker import NeuralRanker

from . import bound, complete, faithful, speed, tables
from .rankers import DATA, DESIGNS, TEST, Collection, trained
from .ways import TRANSFORMERS, ways_of

FIRST_STAGES = "first stages"
CHECKS = ("planted", "speed", "bound", "irrelevant", "faithful", "complete")
COUNTS = {"faithful": 100, "bound": 50, "irrelevant": 100, "speed": 50, "complete": 10_000, "planted": 200}
"""Pairs of a check; a transformer's completeness is measured on fewer."""
FEW = {"complete": 300, "faithful": 50, "bound": 20, "irrelevant": 50}

Told = dict[str, object]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["train", "measure", "table"])
    parser.add_argument("given", type=Path, help="the folder of all collections")
    parser.add_argument("work", type=Path, help="a folder for what is made")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--rankers", nargs="+", default=[*DESIGNS, FIRST_STAGES])
    parser.add_argument("--checks", nargs="+", default=list(CHECKS), choices=CHECKS)
    parser.add_argument("--pairs", type=int, default=0, help="pairs of a check; 0: as in the documentation")
    parser.add_argument("--json", action="store_true", help="all numbers instead of tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = options.work.resolve() / "results"
    if options.what == "table":
        pieces = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(results.glob("*.json"))}
        print(json.dumps(pieces, indent=1) if options.json else tables.page(pieces))
        return
    results.mkdir(parents=True, exist_ok=True)
    for name in options.data:
        data = Collection(options.given.resolve(), options.work.resolve(), name)
        (data.work / name).mkdir(exist_ok=True)
        for ranker in options.rankers:
            if options.what == "measure":
                _measure(data, ranker, options, results)
            elif ranker in DESIGNS:
                trained(data, ranker)


def _measure(data: Collection, name: str, options: argparse.Namespace, results: Path) -> None:
    """Compute a ranker's pieces that are missing."""
    opened = cache(lambda: trained(data, name))
    for check in options.checks:
        path = results / f"{check}-{data.name}-{name.replace(' ', '_')}.json"
        table = _STAGES if name == FIRST_STAGES else _RANKERS
        if path.exists() or check not in table:
            continue
        few = name in TRANSFORMERS and FEW.get(check)
        count = options.pairs or few or COUNTS[check]
        began = time.process_time()
        told = table[check](data, None if name == FIRST_STAGES else opened(), count)
        write_json(path, told)
        print(f"{path.stem}: {time.process_time() - began:.0f} s", flush=True)


def _complete(data: Collection, ranker: NeuralRanker, count: int) -> Told:
    told: Told = {"own": complete.of_ranker(ranker, data.drawn(count), ExplainOptions())}
    for way in ways_of(ranker):
        if way.method == "gradients":
            told["gradients"] = complete.of_ranker(ranker, data.drawn(count // 5), way.options)
    return told


def _faithful(data: Collection, ranker: NeuralRanker, count: int) -> Told:
    pairs = data.pairs(count, each=1)
    units = dict.fromkeys(way.unit for way in ways_of(ranker))
    return {unit: faithful.gains(ranker, pairs, unit, data.name) for unit in units}


def _bound(data: Collection, ranker: NeuralRanker, count: int) -> Told:
    pairs, told = data.pairs(count, each=1), {}
    for way in ways_of(ranker):
        row: Told = {"same bytes": bound.same_bytes(ranker, pairs[:5], way)}
        if len(bound.correlations(ranker, pairs[:10], way)) >= 3:
            row["correlation"] = bound.correlations(ranker, pairs, way)
        told[f"{way.method or 'own'} {way.unit}"] = row
    return told


def _irrelevant(data: Collection, ranker: NeuralRanker, count: int) -> Told:
    pairs = data.pairs(count, each=1, relevant=True)
    ways = [way for way in ways_of(ranker) if way.unit != "query word"]
    return {f"{way.method or 'own'} {way.unit}": bound.appended(ranker, pairs, way) for way in ways}


def _speed(data: Collection, ranker: NeuralRanker, count: int) -> Told:
    pairs = data.pairs(count)
    told: Told = {"own": speed.of_ranker(ranker, pairs, ExplainOptions())}
    if ranker.model.family in TRANSFORMERS:
        documents = list(data.documents.values())[:20]
        told["twenty sentences"] = speed.twenty_sentences(ranker, pairs[0].query, documents)
    for way in ways_of(ranker):
        if way.method == "gradients":
            told["gradients"] = speed.of_ranker(ranker, pairs[:10], way.options)
    return told


def _stages_complete(data: Collection, _: object, count: int) -> Told:
    queries = data.queries(TEST[data.name])
    stages = complete.FIRST_STAGES
    return {name: complete.of_first_stage(data.index, queries, name, count) for name in stages}


def _stages_speed(data: Collection, _: object, count: int) -> Told:
    pairs = data.pairs(count)
    return {name: speed.of_first_stage(data.index, pairs, name) for name in complete.FIRST_STAGES}


def _stages_planted(data: Collection, _: object, count: int) -> Told:
    return dict(bound.planted(data.pairs(count, each=1)))


_RANKERS: Mapping[str, Callable[..., Told]] = {
    "complete": _complete,
    "faithful": _faithful,
    "bound": _bound,
    "irrelevant": _irrelevant,
    "speed": _speed,
}
_STAGES: Mapping[str, Callable[..., Told]] = {
    "complete": _stages_complete,
    "speed": _stages_speed,
    "planted": _stages_planted,
}


if __name__ == "__main__":
    main()
