"""The constants of docs/scale.md, measured: what a passage, a query and a pair cost, one thread each.

    python benchmarks/measure_constants.py [lexical] [dense] [tk] [cross] [--scratch DIR]

Every constant is a difference of two runs of different size, so that starting, importing and loading models
cancel out; seconds are processor seconds, which other work on the machine disturbs little (caches and clocks
are still shared, so a busy machine measures too much rather than too little). Each is written into
benchmarks/constants.json with its unit, the command that measured it, and the machine's load at the time.
``benchmarks/billion.py`` computes the page from them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scale import collection, make_models
from usage import bytes_under, rankhouse, run

CONSTANTS = Path(__file__).with_name("constants.json")
SMALL, LARGE = 100_000, 1_000_000
CPU = ("--device", "cpu", "--threads", 1)
WIDTH = 384


def note(name: str, value: float, unit: str, command: str) -> None:
    """Write a constant down, with the machine's load."""
    table = json.loads(CONSTANTS.read_text()) if CONSTANTS.exists() else {}
    load = round(os.getloadavg()[0], 1)
    table[name] = {
        "value": float(f"{value:.4g}"), "unit": unit, "command": command, "load": load,
        "cores": os.cpu_count(), "processor": processor(),
    }  # fmt: skip
    CONSTANTS.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    print(f"{name:30}{value:14.6g} {unit:40} load {load}", flush=True)


def processor() -> str:
    """Return the processor's name and whether it has the instructions that our loops use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {key.strip(): value.strip() for key, value in said.items()}
    flags = fields.get("flags", "").split()
    has = [name for flag, name in (("avx512f", "AVX-512"), ("amx_int8", "AMX")) if flag in flags]
    return ", ".join([fields.get("model name", platform.processor()), *has])


def lexical(folder: Path) -> None:
    """Measure index and search at two sizes."""
    cost = {}
    for documents in (SMALL, LARGE):
        place = collection(folder, documents)
        out = place / "my.index"
        built = run(rankhouse("index", place / "corpus.tsv", "--out", out, "--workers", 1))
        lines = (place / "queries.tsv").read_text().splitlines(keepends=True)
        took = []
        for count in (200, 1200):
            asked = place / f"q{count}.tsv"
            asked.write_text("".join(lines[:count]))
            words = ("search", "--index", out, "--queries", asked, "--threads", 1, "--out", place / "x.run")
            took.append(run(rankhouse(*words)).processor)
        cost[documents] = (built.processor, (took[1] - took[0]) / 1000, built.memory)
        if documents == LARGE:
            texts = bytes_under(out, "store.bin", "block_rows.npy", "block_starts.npy")
            ids = bytes_under(out, "ids.bin", "ids_at.npy", "id_order.npy", "id_rank.npy")
            forward = bytes_under(out, "forward.bin", "forward_at.npy")
            rest = bytes_under(out) - texts - ids - forward
            index = f"rankhouse index corpus.tsv --workers 1, {LARGE:,} passages"
            note("index.bytes.texts", texts / LARGE, "bytes a passage", index)
            note("index.bytes.ids", ids / LARGE, "bytes a passage", index)
            note("index.bytes.forward", forward / LARGE, "bytes a passage", index)
            note("index.bytes.postings", rest / LARGE, "bytes a passage", index)
            note("index.memory", built.memory, "MB of one indexing process", index)
    built = (cost[LARGE][0] - cost[SMALL][0]) / (LARGE - SMALL)
    command = f"rankhouse index --workers 1, {LARGE:,} less {SMALL:,} passages"
    note("index.seconds", built, "processor seconds a passage", command)
    slope = (cost[LARGE][1] - cost[SMALL][1]) / (LARGE - SMALL)
    command = (
        f"rankhouse search -k 1000 --threads 1, 1,200 less 200 queries, {LARGE:,} and {SMALL:,} passages"
    )
    note("bm25.seconds.passage", slope, "processor seconds a query and passage", command)
    note(
        "bm25.seconds.query",
        max(0.0, cost[SMALL][1] - slope * SMALL),
        "processor seconds a query and shard",
        command,
    )


def _sized(folder: Path, documents: int) -> Path:
    place = collection(folder, documents)
    if not (place / "my.index").exists():
        run(rankhouse("index", place / "corpus.tsv", "--out", place / "my.index", "--workers", 1))
    return place


def encoded(folder: Path, ranker: str, *words: object, sizes: tuple[int, int]) -> tuple[float, float]:
    """Return the processor seconds and bytes a passage that encoding takes."""
    took, held = [], []
    for documents in sizes:
        index = _sized(folder, documents) / "my.index"
        before = bytes_under(index)
        took.append(run(rankhouse("encode", "--index", index, "--ranker", ranker, *words, *CPU)).processor)
        held.append(bytes_under(index) - before)
    more = sizes[1] - sizes[0]
    return (took[1] - took[0]) / more, (held[1] - held[0]) / more


def reranked(folder: Path, ranker: str, *words: object, documents: int, queries: tuple[int, int]) -> float:
    """Return the processor seconds a pair that reranking the first 100 takes."""
    place = _sized(folder, documents)
    lines = (place / "queries.tsv").read_text().splitlines(keepends=True)
    took, pairs = [], []
    for count in queries:
        asked, first = place / f"q{count}.tsv", place / f"q{count}.run"
        asked.write_text("".join(lines[:count]))
        index = ("--index", place / "my.index", "--queries", asked)
        run(rankhouse("search", *index, "-k", 100, "--out", first))
        words_ = (
            "rerank",
            *index,
            "--run",
            first,
            "--ranker",
            ranker,
            *words,
            *CPU,
            "--out",
            place / "x.run",
        )
        took.append(run(rankhouse(*words_)).processor)
        pairs.append(len(first.read_text().splitlines()))
    return (took[1] - took[0]) / (pairs[1] - pairs[0])


def dense(folder: Path) -> None:
    """Measure encoding by MiniLM, and what structures take over drawn vectors."""
    encoder, _ = make_models(folder)
    sizes = (500, 2500)
    seconds, size = encoded(folder, encoder, "--name", "measured", sizes=sizes)
    command = "rankhouse encode --ranker biencoder(MiniLM-L6), 2,500 less 500 passages of 56 words"
    note("dense.encode.seconds", seconds, "processor seconds a passage", command)
    note("dense.bytes.vectors", size, "bytes a passage, float32", command)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for count in (20_000, 80_000):
        for name, *numbers in structures(folder, count):
            rows.setdefault(name, []).append((numbers[0], numbers[1], numbers[2]))
    for name, (small, large) in rows.items():
        made = "drawn vectors of 384 numbers, k=100, 80,000 less 20,000 rows"
        if name == "ivf":  # 4 sqrt(n) lists, 32 of them looked into: 12 sqrt(n) comparisons
            scale = 80_000**0.5 - 20_000**0.5
            note(
                "ivf.search.seconds",
                (large[1] - small[1]) / scale,
                "processor seconds a query and sqrt(rows)",
                made,
            )
            note("ivf.build.seconds", large[0] / 80_000**1.5, "processor seconds a row and sqrt(rows)", made)
        else:
            note(
                f"{name}.search.seconds",
                (large[1] - small[1]) / 60_000,
                "processor seconds a query and row",
                made,
            )
            if name != "exact":
                note(f"{name}.build.seconds", (large[0] - small[0]) / 60_000, "processor seconds a row", made)
        if name != "exact":
            note(f"{name}.bytes", (large[2] - small[2]) / 60_000, "bytes a passage", made)


class Drawn:
    """An encoder of vectors around a thousand centres, which costs next to nothing."""

    similarity, fingerprint = "dot", "drawn"

    def encode_passages(self, texts: list[str]) -> np.ndarray:
        """Return (n, 384) vectors of length 1."""
        rng = np.random.default_rng(len(texts[0]) + int(texts[0][1:]))
        centres = np.random.default_rng(0).standard_normal((1000, WIDTH), np.float32)
        rows = centres[rng.integers(0, 1000, len(texts))] + rng.standard_normal(
            (len(texts), WIDTH), np.float32
        )
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        """Return (q, 384) vectors of length 1."""
        return self.encode_passages(texts)


def structures(folder: Path, rows: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, seconds of building, seconds a query and bytes of every structure over drawn vectors."""
    from rankhouse.core.nouns import Document
    from rankhouse.index.dense import faiss
    from rankhouse.index.dense.exact import ExactSearcher
    from rankhouse.index.dense.vectors import EncodeOptions, encode
    from rankhouse.text.split import SPLITTERS

    place = folder / f"vectors-{rows}"
    documents = (Document(f"d{i:08d}", f"w{i:08d}") for i in range(rows))
    vectors = encode(Drawn(), documents, place, EncodeOptions(rows, "drawn", SPLITTERS["whole"]()))
    points = Drawn().encode_queries(["w00000001"] * 64)
    for name in ("exact", "flat", "sq8", "ivf"):
        before, started = bytes_under(place), time.process_time()
        searcher = ExactSearcher(vectors) if name == "exact" else faiss.build(vectors, name)
        built = time.process_time() - started
        searcher.best(points[:4], 100)
        started = time.process_time()
        searcher.best(points, 100)
        yield name, built, (time.process_time() - started) / len(points), bytes_under(place) - before


def tk(folder: Path) -> None:
    """Measure TK of the paper's size with stored vectors; the weights are drawn."""
    from rankhouse.models import bundle
    from rankhouse.models.tk import TKDesign

    model = folder / "tk"
    texts = (line.split("\t")[1] for line in (collection(folder, 2500) / "corpus.tsv").open())
    bundle.save(TKDesign(min_count=1, width=300).fresh(texts), model)
    for dtype in ("int8", "float16"):
        seconds, size = encoded(folder, str(model), "--dtype", dtype, sizes=(500, 2500))
        command = (
            f"rankhouse encode --ranker TK (width 300) --dtype {dtype}, 2,500 less 500 passages of 56 words"
        )
        note(f"tk.bytes.{dtype}", size, "bytes a passage", command)
    note("tk.encode.seconds", seconds, "processor seconds a passage", command)
    stored = reranked(folder, str(model), "--stored", documents=2500, queries=(100, 600))
    note(
        "tk.pair.seconds",
        stored,
        "processor seconds a pair",
        "rankhouse rerank --stored, 600 less 100 queries of 100",
    )


def cross(folder: Path) -> None:
    """Measure a cross-encoder of MiniLM's size."""
    _, ranker = make_models(folder)
    for precision in ("bf16", "int8"):
        seconds = reranked(folder, ranker, "--precision", precision, documents=2500, queries=(3, 18))
        run_as = f"rankhouse rerank --ranker crossencoder(MiniLM-L6) --precision {precision}"
        command = f"{run_as}, 18 less 3 queries of 100"
        note(f"cross.pair.seconds.{precision}", seconds, "processor seconds a pair", command)


PARTS = {"lexical": lexical, "dense": dense, "tk": tk, "cross": cross}


def main() -> None:
    """Read the arguments and measure."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--scratch", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        for name in options.parts or PARTS:
            PARTS[name](Path(folder))


if __name__ == "__main__":
    main()
