"""Kills at every change of the file system and at random times; Ctrl-C and SIGTERM likewise.

The rules: what was there before is there, whole, or what the command makes is; nothing else is touched; the
same command given again ends with 0 and leaves what an undisturbed one leaves, to the byte.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .calls import Call, call
from .hooks import counting, ending_at
from .imports import apart
from .verdicts import RIGHT, Trial, Verdict, breakdown, contents, differences
from .world import CPU, DENSE, MORE, SMALL, WORDS, command, light, neural

CACHED = [*command("rerank", "result"), "--cache", "scores"]
OLDER = Path(__file__).parents[2] / "tests" / "index" / "index_of_version_2.zip"
# Name -> command line, its output, and the command or archive of what stood there before ([]: nothing did).
SCENES: dict[str, tuple[list[str], str, list[str] | Path]] = {
    "index": (command("index", "result"), "result", []),
    "index --workers 2": ([*command("index", "result"), "--workers", "2"], "result", []),
    "index --append": (
        ["index", "more.jsonl", "--workers", "1", "--append", "--out", "result"], "result",
        command("index", "result"),
    ),
    "index --overwrite": (
        ["index", "more.jsonl", "--workers", "1", "--overwrite", "--out", "result"], "result",
        command("index", "result"),
    ),
    "index --upgrade": (["index", "--upgrade", "--out", "older.index"], "older.index", OLDER),
    "encode": (command("encode", ""), "my.index", []),
    "encode TK": (["encode", "--index", "my.index", "--ranker", "tk/ranker", *CPU], "my.index", []),
    "encode after append": (
        ["encode", "--index", "full.index", "--ranker", DENSE, *CPU], "full.index",
        ["index", "more.jsonl", "--workers", "1", "--append", "--out", "full.index"],
    ),
    **{
        name: (command(name, "result"), "result", [*command("search", "result"), "-k", "3"])
        for name in ("search", "rerank", "label", "fuse", "subset", "combine")
    },
    "rerank --cache": (CACHED, "result", []),
    "label --cache --report": (
        [*command("label", "result"), "--cache", "scores", "--report", "page.html"], "result", []
    ),
    "train": (command("train", "result"), "result", []),
    "pretrain": (command("pretrain", "result"), "result", []),
    "group-split": (command("group-split", "result"), "result", []),
    "folds": (command("folds", "result"), "result", []),
    "evaluate --report": (
        [*command("evaluate", "result"), "--report", "page.html"], "result", command("fuse", "result")
    ),
    "run": (command("run", "result"), "result", []),
}  # fmt: skip
GOES_ON = {
    "index --append",
    "index --upgrade",
    "encode",
    "encode TK",
    "encode after append",
    "train",
    "pretrain",
    "run",
    "group-split",
}
SIDE_OUTPUTS = {"page.html", "scores", "result", "my.index", "full.index", "older.index"}
_MOST_POINTS, _RANDOM_TIMES, _SIGNALS = 70, 8, 8


def trials(seed: int) -> Iterator[Trial]:
    """Return kills at the changes of each scene (all, or evenly drawn ones), at random times, and signals."""
    rng = random.Random(seed)
    home = Path(os.environ["ATTACK_WORLD"])
    scenes = [scene for scene in SCENES if not (light() and neural(scene))]
    totals = apart(lambda: {scene: _count(scene, home) for scene in scenes})
    for scene, total in totals.items():
        points = range(1, total + 1)
        if total > _MOST_POINTS:
            points = sorted(rng.sample(points, _MOST_POINTS))
        for nth in points:
            yield Trial(f"kill {scene} at change {nth} of {total}", lambda f, s=scene, n=nth: _kill(f, s, n))
        for _ in range(_RANDOM_TIMES):
            share = rng.random()
            yield Trial(f"kill {scene} at {share:.0%}", lambda f, s=scene, p=share: _kill(f, s, share=p))
        for i, nth in enumerate(sorted(rng.sample(range(1, total + 1), min(total, _SIGNALS)))):
            number = (signal.SIGINT, signal.SIGTERM)[i % 2]
            yield Trial(
                f"{number.name} {scene} at change {nth} of {total}",
                lambda f, s=scene, n=nth, k=number: _signal(f, s, n, k),
            )


def _stage(folder: Path, scene: str) -> dict[str, str]:
    """Write what stood there before; return the contents of everything."""
    before = SCENES[scene][2]
    if isinstance(before, Path):
        with zipfile.ZipFile(before) as archive:
            archive.extractall(folder / SCENES[scene][1])
    elif before:
        done = call(before, folder)
        if done.code != 0:
            raise RuntimeError(f"{before}: {done.err}")
    return contents(folder)


def _count(scene: str, home: Path) -> int:
    folder = home.with_name("count")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(home, folder, symlinks=True)
    _stage(folder, scene)
    call(SCENES[scene][0], folder, before=counting(home.with_name("changes")))
    total = home.with_name("changes").stat().st_size
    home.with_name("changes").unlink()
    shutil.rmtree(folder)
    return total


@cache
def _whole(scene: str, home: Path) -> tuple[dict[str, str], set[str], float]:
    """Return what an undisturbed command leaves, the files that differ between two of them, and its time."""
    found, seconds = [], 0.0
    for _ in range(2):
        folder = home.with_name(f"whole-{os.getpid()}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(home, folder, symlinks=True)
        _stage(folder, scene)
        done = call(SCENES[scene][0], folder)
        if done.code != 0:
            raise RuntimeError(f"{scene}: {done.err}")
        seconds = done.seconds
        found.append(contents(folder))
        shutil.rmtree(folder)
    return found[0], set(differences(*found)), seconds


def _home() -> Path:
    return Path(os.environ["ATTACK_WORLD"])


def _kill(folder: Path, scene: str, nth: int = 0, share: float = 0.0) -> Verdict:
    whole, volatile, seconds = _whole(scene, _home())
    before = _stage(folder, scene)
    if nth:
        call(SCENES[scene][0], folder, before=ending_at(nth))
    else:
        under_way = Call(SCENES[scene][0], folder)
        time.sleep(max(0.01, share * seconds))
        under_way.kill()
        under_way.wait()
    return _judge(folder, scene, before, whole, volatile)


def _signal(folder: Path, scene: str, nth: int, number: signal.Signals) -> Verdict:
    whole, volatile, _ = _whole(scene, _home())
    before = _stage(folder, scene)
    done = call(SCENES[scene][0], folder, before=ending_at(nth, number))
    if done.code is not None and done.code == -number and number == signal.SIGTERM:
        return Verdict("wrong", "SIGTERM: ended by the signal, nothing tidied or said")
    broken = breakdown(done)
    if broken is not None:
        return broken
    if done.code not in (0, 128 + number):
        return Verdict("wrong", f"{number.name}: exit code {done.code}: {done.err.strip()[-150:]}")
    if done.code == 0 and differences(whole, contents(folder)) and not _same(folder, whole, volatile):
        return Verdict("wrong", f"{number.name} was swallowed, and what is left is not whole")
    scratch = [n for n in contents(folder) if n.endswith(".part")]
    if scratch:
        return Verdict("wrong", f"{number.name}: scratch files are left: {scratch[0]}")
    return _judge(folder, scene, before, whole, volatile)


def _judge(
    folder: Path, scene: str, before: dict[str, str], whole: dict[str, str], volatile: set[str]
) -> Verdict:
    """Judge what a kill left, then give the command again and judge that."""
    arguments, target, _ = SCENES[scene]
    killed = contents(folder)
    hurt = [n for n in differences(before, killed) if n in before and n.split("/")[0] not in SIDE_OUTPUTS]
    if hurt:
        return Verdict("lost", f"after the kill: {', '.join(hurt[:3])}")
    if scene == "index --append" and not _searchable(folder):
        return Verdict("lost", "the index cannot be searched, or finds something else")
    standing = _under(killed, target)
    was, will = _under(before, target), _under(whole, target)
    finished = _like(standing, will, volatile)
    if scene not in GOES_ON and not finished and standing != was:
        gone = bool(was) and not standing
        return Verdict("lost" if was else "wrong", "nothing stands there" if gone else "what stands is half")
    done = call(arguments, folder)
    broken = breakdown(done)
    if broken is not None:
        return Verdict(broken.kind, f"given again: {broken.why}")
    if scene == "index --append" and _searchable(folder, added=True):
        return RIGHT  # whether this call added the documents or the killed one had: each is there once
    if done.code != 0 and not (finished and scene.startswith("index")):
        return Verdict("wrong", f"given again: exit {done.code}: {done.err.strip()[-200:]}")
    if not _same(folder, whole, volatile):
        odd = [n for n in differences(whole, contents(folder)) if n not in volatile]
        return Verdict("wrong", f"given again, it differs: {', '.join(odd[:4])}")
    return RIGHT


def _searchable(folder: Path, *, added: bool = False) -> bool:
    """Tell whether an addition left an index that finds all documents of before, and none or all new ones."""
    (folder / "probe.tsv").write_text(f"p\t{' '.join(WORDS)}\n")
    done = call(["search", "--index", "result", "--queries", "probe.tsv", "--out", "probe.run"], folder)
    if done.code != 0:
        return False
    rows = [line.split()[2] for line in (folder / "probe.run").read_text().splitlines()]
    for name in ("probe.tsv", "probe.run"):
        (folder / name).unlink()
    new = sum(name.startswith("d2-") for name in rows)
    return len(rows) - new == SMALL and new in ((MORE,) if added else (0, MORE))


def _under(found: dict[str, str], target: str) -> dict[str, str]:
    own = {n: d for n, d in found.items() if n == target or n.startswith(target + "/")}
    return {n: d for n, d in own.items() if not _hidden(n)}


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _like(found: dict[str, str], whole: dict[str, str], volatile: set[str]) -> bool:
    return found.keys() == whole.keys() and all(d == whole[n] for n, d in found.items() if n not in volatile)


def _same(folder: Path, whole: dict[str, str], volatile: set[str]) -> bool:
    """Tell whether a folder holds what an undisturbed command leaves; locks may be there or not."""
    found = contents(folder)
    if [n for n in found if n.endswith(".part")]:
        return False
    seen, wanted = ({n: d for n, d in f.items() if not _hidden(n)} for f in (found, whole))
    return _like(seen, wanted, volatile)
