"""Damage to the small files in which commands keep their state: given again, they say so or mend it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from .calls import call
from .verdicts import Trial, Verdict, message
from .world import command, light, neural

_DEEP = b'{"a": ' * 60_000
DAMAGES = ("empty", "{}", "[]", "null", "deep", "cut", "not UTF-8", *(f"flip {i}" for i in range(12)))
# Scene -> the command that makes the files, the files (a pattern), the command that reads them again.
SHARD = ["index", "corpus.jsonl", "--workers", "1", "--shard", "1/1", "--out", "result/1"]
SUBSET = ["subset", "--queries", "queries.tsv", "--folds", "result", "--fold", "1", "--out", "new.tsv"]
QUERY = ["--query", "ship"]
SCENES: dict[str, tuple[list[str], str, list[str]]] = {
    "index": (command("index", "result"), "result/manifest.json", ["search", "--index", "result", *QUERY]),
    "index --shard": (SHARD, "result/1/*.json", ["merge", "result", "--out", "merged"]),
    "run": (command("run", "result"), "result/**/*.json", command("run", "result")),
    "folds": (command("folds", "result"), "result", SUBSET),
    "train": (command("train", "result"), "result/*.json*", command("train", "result")),
    "pretrain": (command("pretrain", "result"), "result/*.json*", command("pretrain", "result")),
    "encode": (command("encode", ""), "my.index/vectors/**/*.json", command("encode", "")),
}  # fmt: skip


def _damaged(data: bytes, damage: str, rng: random.Random) -> bytes:
    if damage in ("{}", "[]", "null"):
        return damage.encode()
    if damage in ("empty", "deep"):
        return _DEEP if damage == "deep" else b""
    place = rng.randrange(len(data))
    if damage == "not UTF-8":
        return data.replace(b'"', b"\xe9", 1)
    if damage == "cut":
        return data[:place]
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def trials(seed: int) -> Iterator[Trial]:
    """Return each damage of a file of each scene."""
    for scene in SCENES:
        if light() and neural(scene):
            continue
        for number, damage in enumerate(DAMAGES):
            rng = random.Random(f"{seed} {scene} {number}")
            yield Trial(f"{scene}: {damage}", lambda f, s=scene, d=damage, r=rng: _damage(f, s, d, r))


def _damage(folder: Path, scene: str, damage: str, rng: random.Random) -> Verdict:
    before, pattern, again = SCENES[scene]
    done = call(before, folder)
    files = sorted(path for path in folder.glob(pattern) if path.is_file() and path.stat().st_size)
    if done.code or not files:
        return Verdict("wrong", f"no scene: {done.err.strip()[-150:]}")
    path = rng.choice(files)
    path.write_bytes(_damaged(path.read_bytes(), damage, rng))
    verdict = message(call(again, folder))
    return (
        verdict
        if verdict.kind == "right"
        else Verdict(verdict.kind, f"{path.relative_to(folder)}: {verdict.why}")
    )
