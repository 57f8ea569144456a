"""The policies of recipes/product-matching.toml beside human, with the product as the unit of the test.

    python benchmarks/product_tests.py product-matching.out

Queries of one product succeed and fail together, so a test that counts each of them as a draw of its own
finds too much. Here the differences in top-1 accuracy of all queries and seeds of a product change their
signs together (two-sided randomization test, 20,000 draws); the interval is a normal one over products.
Beside it stand every seed's difference and the p of a t-test over these alone, which has hardly any power.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from scipy.stats import ttest_1samp

from rankhouse.io.trec import read_qrels, read_run

DRAWS = 20_000
Outcomes = dict[tuple[str, str], float]
"""(seed, query id) -> 1 where the first entry is right, else 0."""


def passes(folder: Path, step: str) -> Iterator[tuple[Mapping[str, str], Path]]:
    for one in json.loads((folder / "manifest.json").read_text("utf-8"))["steps"]:
        if one["step"] == step:
            yield {k: str(v) for k, v in one["loop"].items()}, folder / one["output"]


def outcomes(folder: Path) -> tuple[dict[tuple[str, str, str], Outcomes], dict[tuple[str, str], str]]:
    """Return (set, noise, policy) -> outcomes, and (set, query id) -> its product."""
    right: dict[tuple[str, str, str], Outcomes] = defaultdict(dict)
    product: dict[tuple[str, str], str] = {}
    qrels = {
        (loop["set"], loop["seed"]): read_qrels(path / "test.qrels") for loop, path in passes(folder, "parts")
    }
    for loop, path in passes(folder, "tested"):
        judged, run = qrels[loop["set"], loop["seed"]], read_run(path)
        for query_id, grades in judged.items():
            first = run[query_id].doc_ids[:1] if query_id in run else ()
            own = right[loop["set"], loop["noise"], loop["policy"]]
            own[loop["seed"], query_id] = float(any(grades.get(d, 0) > 0 for d in first))
            product[loop["set"], query_id] = min(query_id, *grades)
    return right, product


def compare(own: Outcomes, base: Outcomes, product_of: Mapping[str, str]) -> tuple[float, float, float, int]:
    """Return the mean difference, half its 95 % interval, p, and the number of products."""
    sums: dict[str, float] = defaultdict(float)
    for key, value in own.items():
        sums[product_of[key[1]]] += value - base[key]
    totals = np.array(list(sums.values()))
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), (DRAWS // 1000, 1000, len(totals)))
    drawn = np.abs(signs @ totals).ravel()
    p = (1 + (drawn >= abs(totals.sum()) - 1e-9).sum()) / (1 + DRAWS)
    half = 1.96 * float(np.sqrt((totals**2).sum())) / len(own)
    return float(totals.sum()) / len(own), half, float(p), len(totals)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="The result's folder of the recipe.")
    right, product = outcomes(parser.parse_args().folder)
    print("| set | wrong | policy | top-1 | difference to human | p | each seed | p | queries, products |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, noise, policy), own in right.items():
        if policy == "human":
            continue
        base = right[name, noise, "human"]
        of = {query_id: one for (where, query_id), one in product.items() if where == name}
        mean, half, p, products = compare(own, base, of)
        seeds = sorted({seed for seed, _ in own})
        each = [np.mean([own[k] - base[k] for k in own if k[0] == seed]) for seed in seeds]
        shown = " ".join(f"{value:+.3f}" for value in each)
        small = "< .0001" if p < 1e-4 else f"{p:.4f}"
        print(
            f"| {name} | {noise} | {policy} | {np.mean(list(own.values())):.4f} | {mean:+.4f} ± {half:.4f} "
            f"| {small} | {shown} | {ttest_1samp(each, 0).pvalue:.2f} | {len(own):,}, {products} |"
        )


if __name__ == "__main__":
    main()
