r"""How far a pair's fp32 score depends on the pairs around it, and what a cache of scores costs.

    python benchmarks/batches.py [--plain] [CHECKPOINT ...]        CHECKPOINT: 'monot5("DIR")' ...
    ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \
        python benchmarks/batches.py --plain                       as on a processor without AVX-512

Every family is begun with drawn weights, scores 400 pairs of drawn words together, then 40 samples of them in
other orders, alone, and by batches of other sizes; the largest difference of a pair's two scores is printed.
``--plain`` leaves the compiled loops out. The cache is filled with 200,000 pairs by a ranker that costs
nothing, then asked for all of them: pairs per second, bytes a pair.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankhouse.core.nouns import FloatArray, Pair, Passage, Query
from rankhouse.models.contract import Model
from rankhouse.models.families import DESIGNS, FAMILIES, open_model
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn import machine
from rankhouse.nn.machine import Compute
from rankhouse.ranking.cache import CachedRanker

READ = {"words": "whitespace(lower=True)", "min_count": 1, "width": 50}


def drawn_pairs(n: int, rng: random.Random) -> list[Pair]:
    def text(words: int) -> str:
        return " ".join(f"w{int(rng.paretovariate(0.6)) % 900}" for _ in range(words))

    queries = [Query(f"q{i}", text(words)) for i, words in enumerate((1, 2, 3, 3, 5, 9))]
    return [Pair(rng.choice(queries), Passage(f"d{i}", 0, text(rng.randint(1, 150)))) for i in range(n)]


def largest_difference(
    model: Model[Any], open_ranker: Callable[..., NeuralRanker], pairs: list[Pair], rng: random.Random
) -> float:
    def score(rows: Sequence[int], budget: int, threads: int) -> FloatArray:
        return open_ranker(model, Compute("fp32", torch.device("cpu"), threads), budget).score(
            [pairs[row] for row in rows]
        )

    whole, worst = score(range(len(pairs)), 0, 1), 0.0
    for _ in range(40):
        rows = rng.sample(range(len(pairs)), rng.choice((1, 2, 7, 40, len(pairs))))
        some = score(rows, rng.choice((0, 260, 20_000)), rng.choice((1, 2)))
        worst = max(worst, float(np.abs(some.astype(float) - whole[rows]).max()))
    return worst


class Free:
    """A ranker whose scores cost nothing."""

    fingerprint, scale = "free", "score"

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Number the pairs."""
        return np.arange(len(pairs), dtype=np.float32)


def measure_cache(pairs: list[Pair]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for _ in range(2):
            with CachedRanker(Free(), folder) as ranker:
                started = time.perf_counter()
                ranker.score(pairs)
                seconds.append(time.perf_counter() - started)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    added, looked_up = (len(pairs) / one for one in seconds)
    print(
        f"cache: {added:,.0f} pairs/s added, {looked_up:,.0f} looked up, {size / len(pairs):.1f} bytes each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkpoints", nargs="*")
    parser.add_argument("--plain", action="store_true")
    chosen = parser.parse_args()
    if chosen.plain:
        machine.INFER_LOOPS = machine.TRAIN_LOOPS = False
    pairs = drawn_pairs(400, random.Random(0))
    texts = [pair.passage.text for pair in pairs] + [pair.query.text for pair in pairs]
    light = {name: design for name, design in DESIGNS.items() if "words" in signature(design).parameters}
    models = {name: design(**READ).fresh(texts, seed=1).eval() for name, design in light.items()}
    models |= {spec: open_model(spec) for spec in chosen.checkpoints}
    for name, model in models.items():
        worst = largest_difference(model, FAMILIES[model.family].ranker, pairs, random.Random(1))
        print(f"{name}: {worst:.1e}" if worst else f"{name}: the same to the bit", flush=True)
    measure_cache([Pair(Query("q", "words"), Passage(str(i), 0, f"text {i}")) for i in range(200_000)])


if __name__ == "__main__":
    main()
