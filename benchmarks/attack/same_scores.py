"""A pair's score is the pair's own: whatever is scored beside it, in whatever order, from a cache or not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from .calls import call
from .verdicts import RIGHT, Trial, Verdict, breakdown
from .world import LEARN, SETTINGS

RANKERS = {
    "crossencoder": 'crossencoder("cross")',
    "biencoder": 'biencoder("plain")',
    "knrm": "knrm",
    "tk": "tk/ranker",
    "conv_knrm": "train:conv_knrm(min_count=1, width=16, filters=8)",
    "samcnn": "train:samcnn(min_count=1, width=16, filters=8)",
    "drmm": "train:drmm(min_count=1, width=16)",
    "pacrr": "train:pacrr(min_count=1, width=16)",
    "matchpyramid": "train:matchpyramid(min_count=1, width=16)",
    "mp_hcnn": "train:mp_hcnn(min_count=1, width=16)",
    "monot5": "pretrain:",
}
PRECISIONS = ("fp32", "bf16", "int8")
WAYS = ("alone", "cache cut off", "queries shuffled", "in two halves", "two threads", "fewer documents")


def trials(seed: int) -> Iterator[Trial]:
    """Return every ranker in every precision, reranking the same pairs in other company."""
    for family in RANKERS:
        for precision in PRECISIONS:
            for way in WAYS:
                for i in range(2):
                    yield Trial(
                        f"{family} in {precision}, {way} ({i}, seed {seed})",
                        lambda f, n=family, p=precision, w=way, s=f"{seed}-{family}-{i}": _compare(
                            f, n, p, w, s
                        ),
                    )


def _compare(folder: Path, family: str, precision: str, way: str, seed: str) -> Verdict:
    rng = random.Random(seed)
    ranker = RANKERS[family]
    if ":" in ranker:
        kind, _, spec = ranker.partition(":")
        ranker = "fresh" if kind == "train" else 'monot5("fresh")'
        if kind == "train":
            made = call(["train", *LEARN, "--ranker", spec, *SETTINGS, "--out", "fresh"], folder)
        else:
            size = [
                "--d-model",
                "32",
                "--layers",
                "2",
                "--heads",
                "2",
                "--d-ff",
                "32",
                "--steps",
                "2",
                "--length",
                "24",
            ]
            made = call(
                ["pretrain", "corpus.jsonl", "--vocabulary", "spiece.model", *size, "--out", "fresh"], folder
            )
        if made.code != 0:
            return Verdict("wrong", f"the ranker could not be made: {made.err[-200:]}")
    rows = [f"q{q} Q0 d1-{d} 1 {rng.random():.4f} t\n" for q in range(12) for d in range(40)]
    (folder / "all.run").write_text("".join(rows))
    whole = _rerank(folder, "all.run", ranker, precision, [])
    if isinstance(whole, Verdict):
        return whole
    other: dict[tuple[str, str], str] = {}
    for run, more in _other_way(folder, rows, way, rng):
        if way == "cache cut off" and not other:
            _rerank(folder, "few.run", ranker, precision, ["--cache", "c"])
        part = _rerank(folder, run, ranker, precision, more)
        if isinstance(part, Verdict):
            return part
        other |= part
    moved = [pair for pair, score in other.items() if whole[pair] != score]
    if moved:
        gap = max(abs(float(whole[p]) - float(other[p])) for p in moved)
        return Verdict("wrong", f"{len(moved)} of {len(other)} scores differ, by {gap:.1e} at most")
    return RIGHT


def _other_way(folder: Path, rows: list[str], way: str, rng: random.Random) -> list[tuple[str, list[str]]]:
    """Write the runs of another way to score the same pairs; return them with their options."""
    few = [row for row in rows if rng.random() < 0.4]
    mixed = rng.sample(rows, len(rows))
    (folder / "few.run").write_text("".join(few))
    (folder / "rest.run").write_text("".join(row for row in rows if row not in set(few)))
    queries = rng.sample((folder / "queries.tsv").read_text().splitlines(keepends=True), 12)
    (folder / "mixed.tsv").write_text("".join(queries))
    (folder / "mixed.run").write_text("".join(mixed))
    return {
        "alone": [("all.run", ["--alone"])],
        "cache cut off": [("all.run", ["--cache", "c"])],
        "queries shuffled": [("mixed.run", ["--queries", "mixed.tsv"])],
        "in two halves": [("few.run", []), ("rest.run", [])],
        "two threads": [("all.run", ["--threads", "2"])],
        "fewer documents": [("few.run", [])],
    }[way]


def _rerank(
    folder: Path, run: str, ranker: str, precision: str, more: list[str]
) -> dict[tuple[str, str], str] | Verdict:
    line = ["rerank", "--run", run, "--index", "my.index", "--ranker", ranker, "--precision", precision]
    line += ["--device", "cpu", "--out", "x.run", "--json"]
    line += [] if "--threads" in more else ["--threads", "1"]
    done = call([*line, *([] if "--queries" in more else ["--queries", "queries.tsv"]), *more], folder, 90)
    broken = breakdown(done)
    if broken is not None:
        return broken
    if done.code != 0:
        return Verdict("wrong" if precision == "fp32" else "right", done.err.strip()[-200:])
    json.loads(done.out)
    read = (line.split() for line in (folder / "x.run").read_text().splitlines())
    return {(row[0], row[2]): row[4] for row in read}
