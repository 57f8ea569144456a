"""No room: a file system that is full after some kilobytes, and files that may grow no further."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .calls import Outcome, call
from .hooks import at_most
from .kills import GOES_ON, SCENES, _home, _same, _stage, _under, _whole
from .verdicts import RIGHT, Trial, Verdict, breakdown, contents, differences

_TRIALS_A_SCENE = 12


def trials(seed: int) -> Iterator[Trial]:
    """Return every scene with little room, of several sizes."""
    rng = random.Random(seed)
    mounts = os.geteuid() == 0
    for scene in SCENES:
        for i in range(_TRIALS_A_SCENE):
            small = i % 2 == 0 or not mounts
            size = int(2 ** rng.uniform(6, 15)) if small else int(2 ** rng.uniform(2, 8))
            name = (
                f"{scene}, files of at most {size} bytes"
                if small
                else f"{scene}, a disk with {size} KiB left"
            )
            yield Trial(name, lambda f, s=scene, n=size, limit=small: (_limited if limit else _full)(f, s, n))


def _limited(folder: Path, scene: str, size: int) -> Verdict:
    whole, volatile, _ = _whole(scene, _home())
    before = _stage(folder, scene)
    done = call(SCENES[scene][0], folder, before=at_most(size))
    legible = len(done.err.encode()) < size  # the limit holds for the file of the message too
    return _judge(folder, scene, done, (before, whole, volatile), legible=legible)


def _full(folder: Path, scene: str, left: int) -> Verdict:
    """Do the scene in a small file system of which little is left."""
    whole, volatile, _ = _whole(scene, _home())
    with own_disk(folder) as place:
        if place is None:
            return _limited(folder, scene, left * 1024)
        before = _stage(place, scene)
        with filled(place, left):
            done = call(SCENES[scene][0], place)
        return _judge(place, scene, done, (before, whole, volatile))


@contextmanager
def own_disk(folder: Path) -> Iterator[Path | None]:
    """Copy a folder into a file system of its own; None where none can be mounted."""
    disk = folder.with_name(folder.name + ".disk")
    disk.mkdir(exist_ok=True)
    if os.system(f"mount -t tmpfs -o size=64m none {disk}") != 0:
        yield None
        return
    try:
        shutil.copytree(folder, disk / "w", symlinks=True)
        yield disk / "w"
    finally:
        os.system(f"umount {disk}")


@contextmanager
def filled(place: Path, left: int) -> Iterator[None]:
    """Leave so many KiB of a file system free while a block runs."""
    state, ballast = os.statvfs(place), place.with_name("ballast")
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - left * 1024)
    try:
        yield
    finally:
        ballast.unlink()


def _judge(
    folder: Path,
    scene: str,
    done: Outcome,
    states: tuple[dict[str, str], dict[str, str], set[str]],
    *,
    legible: bool = True,
) -> Verdict:
    before, whole, volatile = states
    arguments, target, _ = SCENES[scene]
    broken = breakdown(done)
    if broken is not None:
        return broken
    found = contents(folder)
    if done.code == 0 and not _same(folder, whole, volatile):
        return Verdict("wrong", "exit code 0, but what is there is not whole")
    hurt = [
        n for n in differences(before, found) if n in before and n.split("/")[0] not in (target, "scores")
    ]
    if hurt and done.code != 0 and "page.html" not in hurt:
        return Verdict("lost", ", ".join(hurt[:3]))
    if done.code != 0:
        if legible and (done.code not in (1, 2) or not done.err.strip()):
            return Verdict("wrong", f"exit code {done.code}, {done.err.strip()[-100:] or 'no message'}")
        standing, will = _under(found, target), _under(whole, target)
        if scene not in GOES_ON and standing != _under(before, target) and standing.keys() != will.keys():
            return Verdict("lost" if _under(before, target) else "wrong", "what stands there is half")
        if legible and not any(word in done.err for word in ("full", "large", "space", "quota", "cannot be")):
            return Verdict("wrong", f"the message does not say why: {done.err.strip()[-150:]}")
        again = call(arguments, folder)
        if breakdown(again) is not None or (again.code != 0 and standing != will):
            return Verdict("wrong", f"with room again: exit {again.code}: {again.err.strip()[-150:]}")
        if not _same(folder, whole, volatile):
            return Verdict("wrong", "with room again, what is there differs")
    return RIGHT
