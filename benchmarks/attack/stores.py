"""Stores: names that lead elsewhere, files of others, kills, two pushes at once, flips, full disks."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .calls import Call, call
from .tight import filled, own_disk
from .verdicts import RIGHT, Trial, Verdict, breakdown, contents, message, refused

# Kind -> module, notation of a collection in the folder "store", how it is asked, the file with its note.
KINDS = {
    "qdrant_edge": ("qdrant_edge", 'qdrant_edge("store", collection={})', "impacts", "store/papers.json"),
    "lancedb": ("lancedb", 'lancedb("store", table={})', "text", ""),
    "qdrant": ("qdrant_client", 'qdrant("store", collection={})', "impacts", "store/meta.json"),
    "milvus": ("milvus_lite", 'milvus("store.db", collection={})', "impacts", ""),
}
NAMES = (".", "..", "", "../mine", "a/b", "a\\b", "a\nb", "a\x7fb", "/mine")
STRANGERS = (
    *("store/thesis.txt", "store/papers/thesis.txt", "store/papers.json", "store/papers.lance/thesis.txt"),
    *("store/meta.json", "store/collection/papers/thesis.txt", "store.db/thesis.txt", "store.db/LOCK"),
)
_KILLS, _PAIRS, _FLIPS, _FULL = 4, 2, 6, 8  # trials of each kind


def trials(seed: int) -> Iterator[Trial]:
    """Return the trials of every kind whose client is installed."""
    rng = random.Random(seed)
    for kind, (module, _, _, note) in KINDS.items():
        if importlib.util.find_spec(module) is None:
            continue
        for name in NAMES:
            yield Trial(f"{kind} named {name!r}", lambda f, k=kind, n=name: _named(f, k, n))
        for path in STRANGERS:
            for overwrite in (False, True):
                what = f"{kind} where {path} stands{', --overwrite' if overwrite else ''}"
                yield Trial(what, lambda f, k=kind, p=path, o=overwrite: _beside(f, k, p, overwrite=o))
        for _ in range(_KILLS):
            share = rng.random()
            yield Trial(f"{kind} killed at {share:.0%}", lambda f, k=kind, s=share: _killed(f, k, s))
        for _ in range(_PAIRS):
            apart = rng.random() * 0.3
            yield Trial(f"two {kind}, {apart:.0%} apart", lambda f, k=kind, a=apart: _both(f, k, a))
        for turn in range(_FULL if os.geteuid() == 0 else 0):
            left = 4 * int(2 ** rng.uniform(0, 9)) if turn else 0
            yield Trial(
                f"{kind}, a disk with {left} KiB left", lambda f, k=kind, n=left: _little_room(f, k, n)
            )
        for _ in range(_FLIPS if note else 0):
            place, mask = rng.random(), 1 << rng.randrange(8)
            yield Trial(
                f"{kind}: {note} ^ {mask} at {place:.0%}",
                lambda f, k=kind, p=place, m=mask: _flip(f, k, p, m),
            )


def _push(kind: str, name: str = "papers") -> list[str]:
    impacts = ["--impacts", "bm25"] if KINDS[kind][2] == "impacts" else []
    return ["push", "--index", "my.index", "--to", KINDS[kind][1].format(repr(name)), *impacts]


def _pull(kind: str) -> list[str]:
    store = KINDS[kind][1].format(repr("papers"))
    return [
        "pull",
        "--from",
        store,
        "--queries",
        "queries.tsv",
        "--model",
        KINDS[kind][2],
        "-k",
        "20",
        "--out",
        "x.run",
    ]


@cache
def _sound(kind: str, home: Path) -> tuple[str, float]:
    """Return the run of an undisturbed push, and the seconds that the push takes."""
    place = home.with_name(f"sound-{os.getpid()}")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(home, place, symlinks=True)
    done = [call(_push(kind), place), call(_pull(kind), place)]
    if any(one.code for one in done):
        raise RuntimeError(f"{kind}: {done[0].err} {done[1].err}")
    text = (place / "x.run").read_text()
    shutil.rmtree(place)
    return text, done[0].seconds


def _whole(kind: str) -> tuple[str, float]:
    return _sound(kind, Path(os.environ["ATTACK_WORLD"]))


def _ids(run: str) -> list[tuple[str, ...]]:
    """Return queries and documents of a run without scores, whose last digits differ from pull to pull."""
    return sorted(tuple(line.split()[:3:2]) for line in run.splitlines())


def _hurt(before: dict[str, str], folder: Path) -> list[str]:
    after = contents(folder)
    return [name for name in before if after.get(name) != before[name]]


def _named(folder: Path, kind: str, name: str) -> Verdict:
    before = contents(folder)
    done = call([*_push(kind, name), "--overwrite"], folder)
    if hurt := _hurt(before, folder):
        return Verdict("lost", ", ".join(hurt[:3]))
    return refused(done)


def _beside(folder: Path, kind: str, path: str, *, overwrite: bool) -> Verdict:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text('{"title": "Years of work"}')
    before = contents(folder)
    done = call([*_push(kind), *(["--overwrite"] if overwrite else [])], folder)
    if hurt := _hurt(before, folder):
        return Verdict("lost", ", ".join(hurt[:3]))
    return message(done)


def _settled(folder: Path, kind: str) -> Verdict:
    """Judge what a pull gives now, and what it gives after another push."""
    done = call(_pull(kind), folder)
    if (broken := breakdown(done)) is not None:
        return broken
    if done.code == 0 and _ids((folder / "x.run").read_text()) != _ids(_whole(kind)[0]):
        return Verdict("wrong", "a part of the results, exit code 0")
    again, after = call(_push(kind), folder), call(_pull(kind), folder)
    if again.code or after.code:
        return Verdict("wrong", f"pushed again: {again.err.strip()[-150:]} {after.err.strip()[-100:]}")
    if _ids((folder / "x.run").read_text()) != _ids(_whole(kind)[0]):
        return Verdict("wrong", "pushed again, and other results")
    return RIGHT


def _killed(folder: Path, kind: str, share: float) -> Verdict:
    under_way = Call(_push(kind), folder)
    time.sleep(max(0.01, share * _whole(kind)[1]))
    under_way.kill()
    under_way.wait()
    return _settled(folder, kind)


def _both(folder: Path, kind: str, apart: float) -> Verdict:
    calls = [Call(_push(kind), folder)]
    time.sleep(apart * _whole(kind)[1])
    calls.append(Call(_push(kind), folder))
    for done in [one.wait() for one in calls]:
        if message(done) != RIGHT:
            return message(done)
    return _settled(folder, kind)


def _little_room(folder: Path, kind: str, left: int) -> Verdict:
    with own_disk(folder) as place:
        if place is None:
            return RIGHT
        with filled(place, left):
            done = call(_push(kind), place)
            if message(done) != RIGHT:
                return message(done)
            if done.code and "full" not in done.err:
                return Verdict("wrong", f"the message does not say why: {done.err.strip()[-150:]}")
            if message(asked := call(_pull(kind), place)) != RIGHT:
                return message(asked)
        return _settled(place, kind)


def _flip(folder: Path, kind: str, place: float, mask: int) -> Verdict:
    done = call(_push(kind), folder)
    if done.code:
        return Verdict("wrong", done.err.strip()[-150:])
    note = folder / KINDS[kind][3]
    data = bytearray(note.read_bytes())
    data[int(place * len(data))] ^= mask
    note.write_bytes(data)
    for line in (_pull(kind), _push(kind), [*_push(kind), "--overwrite"]):
        if message(done := call(line, folder)) != RIGHT:
            return message(done)
    return RIGHT
