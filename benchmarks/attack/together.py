"""Two processes at once, one output: one writes, or both do, one after the other; never a mixture."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from .calls import Call, call
from .kills import SCENES, _hidden, _home, _stage, _whole
from .verdicts import RIGHT, Trial, Verdict, breakdown, contents, differences
from .world import DENSE

_TRIALS_A_SCENE = 14
# Where the second process differs from the first, so that a mixture shows: words replaced.
OTHERS = {
    "index": ("corpus.jsonl", "more.jsonl"),
    "index --overwrite": ("more.jsonl", "corpus.tsv"),
    "search": ("my.index", "full.index"),
    "label": ('judged("qrels.txt") & taught("knrm")', 'judged("qrels.txt") | taught("knrm")'),
    "label --cache --report": (
        'judged("qrels.txt") & taught("knrm")',
        'judged("qrels.txt") | taught("knrm")',
    ),
    "fuse": ("ql.run", "cross.run"),
    "encode": (DENSE, 'biencoder("cross")'),
    "train": ("rate=0.01", "rate=0.02"),
    "pretrain": ("24", "32"),
}


def trials(seed: int) -> Iterator[Trial]:
    """Return pairs of equal and of different commands, begun at the same time or a little apart."""
    rng = random.Random(seed)
    for scene in SCENES:
        for i in range(_TRIALS_A_SCENE):
            apart = 0.0 if i < 4 else rng.random() * 0.8
            other = i % 2 == 1 and scene in OTHERS
            name = f"two {scene}, {'different' if other else 'equal'}, {apart:.0%} apart"
            yield Trial(name, lambda f, s=scene, a=apart, o=other: _both(f, s, a, other=o))


def _both(folder: Path, scene: str, apart: float, *, other: bool) -> Verdict:
    whole, volatile, seconds = _whole(scene, _home())
    before = _stage(folder, scene)
    first = SCENES[scene][0]
    second = first
    if other:
        old, new = OTHERS[scene]
        second = [new if word == old else word for word in first]
        alone = _alone(folder, second)
    calls = [Call(first, folder)]
    time.sleep(apart * seconds)
    calls.append(Call(second, folder))
    ended = [one.wait() for one in calls]
    for done in ended:
        broken = breakdown(done)
        if broken is not None:
            return broken
    codes = [done.code for done in ended]
    found = contents(folder)
    hurt = [
        n for n in before if n in whole and not _hidden(n) and n not in found
    ]  # whole: what one alone leaves
    if hurt:
        return Verdict("lost", ", ".join(hurt[:3]))
    wholes = [(whole, volatile)] + ([alone] if other else [])
    if not any(_alike(found, *one) for one in wholes if one[0]):
        if 0 not in codes:
            return Verdict("wrong", f"neither did it: {ended[1].err.strip()[-150:]}")
        odd = [n for n in differences(whole, found) if n not in volatile and not _hidden(n)]
        return Verdict("wrong", f"a mixture, exits {codes}: {', '.join(odd[:3])}")
    for done in ended:
        if done.code != 0 and (done.code not in (1, 2) or not done.err.strip()):
            return Verdict("wrong", f"exit code {done.code} without a message")
    if 0 not in codes:
        return Verdict("wrong", f"exits {codes}: {ended[0].err.strip()[-100:]}")
    return RIGHT


def _alone(folder: Path, second: list[str]) -> tuple[dict[str, str], set[str]]:
    """Return what the second command leaves where it runs alone, and what differs between two of them."""
    found = []
    for i in range(2):
        place = folder.with_name(f"{folder.name}-alone-{i}")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place, symlinks=True)
        done = call(second, place)
        found.append(contents(place) if done.code == 0 else {})
        shutil.rmtree(place)
    return found[0], set(differences(*found))


def _alike(found: dict[str, str], whole: dict[str, str], volatile: set[str]) -> bool:
    """Compare what is there to what one process alone leaves; caches may hold more."""
    seen, wanted = (
        {n: d for n, d in f.items() if not _hidden(n) and not n.startswith("scores")} for f in (found, whole)
    )
    return seen.keys() == wanted.keys() and all(seen[n] == wanted[n] for n in wanted if n not in volatile)
