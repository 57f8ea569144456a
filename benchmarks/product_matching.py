"""A catalogue made of labelled pairs of titles, for recipes/product-matching.toml.

    python benchmarks/product_matching.py pairs.cameras.*.jsonl* --out wdc-cameras
    rankhouse run recipes/product-matching.toml --set data.mine=wdc-cameras --set 'loop.set=["mine"]'

Pair files hold {"query", "text", "label"}. Every distinct title is an entry; titles that matches join, also
by way of others, are one product; every entry of a product with two or more is a query, its matches are the
product's other entries. So queries are entries themselves, have several matches, and the labels (on the web,
product numbers that shops gave) hold errors, as in the paper's own data. It prints how many pairs labelled as
no match have both titles in one product all the same: the least that is wrong.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from rankhouse.evaluation.folds import products
from rankhouse.io.files import numbered_lines


def read(files: list[Path]) -> Iterator[tuple[str, str, int]]:
    for path in files:
        for _, raw in numbered_lines(path):
            pair = json.loads(raw)
            yield " ".join(pair["query"].split()), " ".join(pair["text"].split()), int(pair["label"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()
    pairs = list(read(given.pairs))
    keys: dict[str, list[str]] = {}
    for number, (one, other, label) in enumerate(pairs):
        keys.setdefault(one, [])
        keys.setdefault(other, [])
        if label:
            keys[one].append(f"match {number}")
            keys[other].append(f"match {number}")
    ids = {title: f"e{number}" for number, title in enumerate(keys)}
    groups = [titles for titles in products(keys) if len(titles) > 1]
    product = {title: number for number, titles in enumerate(groups) for title in titles}
    given.out.mkdir(parents=True, exist_ok=True)
    with (
        (given.out / "corpus.jsonl.gz").open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as corpus,
    ):
        for title, name in ids.items():
            corpus.write((json.dumps({"id": name, "title": title, "text": ""}) + "\n").encode())
    with (given.out / "queries.jsonl").open("w", encoding="utf-8") as queries:
        queries.writelines(json.dumps({"id": ids[t], "text": t}) + "\n" for titles in groups for t in titles)
    with (given.out / "qrels.txt").open("w", encoding="utf-8") as qrels:
        for titles in groups:
            qrels.writelines(f"{ids[a]} 0 {ids[b]} 1\n" for a in titles for b in titles if a != b)
    wrong = sum(product.get(a, -1) == product.get(b, -2) for a, b, label in pairs if not label)
    print(
        f"{len(ids):,} entries, {len(product):,} of them queries, {len(groups):,} products of "
        f"{len(product) / max(1, len(groups)):.1f} entries, the largest of "
        f"{max(map(len, groups), default=0)}; "
        f"{wrong:,} of {sum(not label for *_, label in pairs):,} pairs called no match are within a product"
    )


if __name__ == "__main__":
    main()
