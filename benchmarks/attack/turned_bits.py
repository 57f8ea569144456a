"""One byte changed, in every file of indexes, vectors, kept passages, caches, bundles and checkpoints."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .calls import call
from .verdicts import RIGHT, Trial, Verdict, breakdown, message
from .world import CPU, CROSS, DENSE, TASK

BIG = ["search", "--index", "big.index", "--queries", "queries.tsv", "-k", "50", "--out", "x.run"]
SMALL = ["search", "--index", "my.index", "--queries", "queries.tsv", "--out", "x.run"]
VECTORS = [
    *("search", "--index", "full.index", "--queries", "queries.tsv"),
    *("--model", f"dense({DENSE})", "--out", "x.run", *CPU),
]
IN_FULL = ["--queries", "queries.tsv", "--index", "full.index", "--run", "bm25.run", *CPU, "--out", "x.run"]
KEPT = ["rerank", *IN_FULL, "--ranker", "tk/ranker"]
TOKENS = ["rerank", *IN_FULL, "--ranker", CROSS]
CACHE = ["rerank", *TASK, "--ranker", CROSS, *CPU, "--cache", "cache", "--out", "x.run"]
BUNDLE = ["rerank", *TASK, "--ranker", "knrm", *CPU, "--out", "x.run"]
CHECKPOINT = ["rerank", *TASK, "--ranker", CROSS, *CPU, "--out", "x.run"]
# Name -> folder (a pattern), command that reads it, what doctor is asked about, trials, must a flip be seen?
THINGS: dict[str, tuple[str, list[str], str, int, bool]] = {
    "index, large files": ("big.index", BIG, "big.index", 400, True),
    "index, small files": ("my.index", SMALL, "my.index", 200, True),
    "vectors": ("full.index/vectors", VECTORS, "full.index", 120, True),
    "kept passages": ("full.index/kept/vectors*", KEPT, "full.index", 120, True),
    "kept tokens": ("full.index/kept/tokens*", TOKENS, "full.index", 60, True),
    "score cache": ("cache", CACHE, "cache", 160, False),
    "bundle": ("knrm", BUNDLE, "knrm", 120, True),
    "checkpoint": ("cross", CHECKPOINT, CROSS, 60, False),
}


def trials(seed: int) -> Iterator[Trial]:
    """Return one changed byte a trial: in each file at least once, in large files more often."""
    rng = random.Random(seed)
    home = Path(os.environ["ATTACK_WORLD"])
    for name, (_, line, doctored, number, _) in THINGS.items():
        files = _files(home, name)
        sizes = {file: (home / file).stat().st_size for file in files}
        for i in range(number):
            file = files[i] if i < len(files) else rng.choices(files, [s**0.5 for s in sizes.values()])[0]
            at, flip = rng.randrange(sizes[file]), 1 << rng.randrange(8) if i % 2 else rng.randrange(1, 256)
            yield Trial(
                f"{name}: byte {at} of {file} ^ {flip}",
                lambda f, n=name, p=file, a=at, x=flip, c=line, d=doctored: _turn(f, n, (p, a, x), c, d),
            )


def _files(home: Path, name: str) -> list[str]:
    """Return the files of a thing that hold anything."""
    folders = sorted(home.glob(THINGS[name][0]))
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return [str(path.relative_to(home)) for path in files if path.stat().st_size]


@cache
def _sound(name: str, home: Path) -> str:
    _, line, doctored, _, _ = THINGS[name]
    place = home.with_name(f"sound-{os.getpid()}")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(home, place, symlinks=True)
    done = call(line, place)
    doctor = call(["doctor", doctored], place)
    if done.code != 0 or (doctor.code != 0 and name != "score cache"):
        raise RuntimeError(f"{name}: {done.err} {doctor.err} {doctor.out}")
    text = (place / "x.run").read_text()
    shutil.rmtree(place)
    return text


def _same(sound: str, found: str, within: float) -> bool:
    """Compare two runs; a row that a cache threw away is scored again, which moves the last digits."""
    if within == 0.0 or sound == found:
        return sound == found
    scores = [{tuple(w[:3]): float(w[4]) for w in map(str.split, run.splitlines())} for run in (sound, found)]
    return scores[0].keys() == scores[1].keys() and all(
        abs(score - scores[1][pair]) <= within for pair, score in scores[0].items()
    )


def _says_the_same(before: bytes, after: bytes) -> bool:
    """Tell whether two JSON files differ in white space only."""
    with contextlib.suppress(ValueError):
        return bool(json.loads(before) == json.loads(after))
    return False


def _turn(folder: Path, name: str, turn: tuple[str, int, int], line: list[str], doctored: str) -> Verdict:
    must_show = THINGS[name][4]
    sound = _sound(name, Path(os.environ["ATTACK_WORLD"]))
    file, at, flip = turn
    data = bytearray((folder / file).read_bytes())
    before = bytes(data)
    data[at] ^= flip
    (folder / file).write_bytes(data)
    doctor = call(["doctor", doctored], folder)
    done = call(line, folder)
    for one in (doctor, done):
        broken = breakdown(one)
        if broken is not None:
            return Verdict(broken.kind, f"{'doctor: ' if one is doctor else ''}{broken.why}")
    if done.code != 0:
        return message(done)
    same = _same(sound, (folder / "x.run").read_text(), 1e-6 if name == "score cache" else 0.0)
    if not same and name != "checkpoint":
        return Verdict("wrong", f"another ranking, exit code 0; doctor ends with {doctor.code}")
    if (
        must_show
        and doctor.code == 0
        and not (file.endswith(".json") and _says_the_same(before, bytes(data)))
    ):
        return Verdict("wrong", "unseen: the same ranking here, but doctor calls it sound")
    return RIGHT
