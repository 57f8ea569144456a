"""Documents deleted and replaced in place: kills at every change, two at once, a search beside it, odd ids.

Whatever happens, an index holds all of what it held or all of what it should, and finds no more than that.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from .calls import Call, call
from .hooks import counting, ending_at
from .imports import apart
from .verdicts import RIGHT, Trial, Verdict, breakdown, message
from .world import MORE, SMALL, WORDS

_TIMES, _PAIRS, _READERS = 12, 12, 8
_GONE = {f"d1-{i}" for i in range(5, 17)}
_NEW = {f"d2-{i}" for i in range(MORE)}
_OLD = {f"d1-{i}" for i in range(SMALL)}
_WORD = "zebra"  # stands in what --update writes, and in nothing else
# Name -> command line, the documents that are to be found behind it, and those of them with the word.
DEEDS: dict[str, tuple[list[str], set[str], set[str]]] = {
    "--delete": (["--delete", "gone.txt"], _OLD - _GONE, set()),
    "--update": (["new.jsonl", "--workers", "1", "--update"], _OLD | _NEW, _GONE | _NEW),
}
_ODD_IDS = (
    *("", "\n", "nobody\n", "d1-1\nd1-1\n", "d1-1\nnobody\n", "d1-1\r\nd1-2\r\n", "\ufeffd1-1\n", " d1-1\n"),
    *("d1-1 \n", "D1-1\n", "a\x1b[31mb\n", "\x00\n", "x" * 100_000 + "\n", "\u202ed1-1\n", "d1-1\td1-2\n"),
    "\n".join(sorted(_OLD)) + "\n",
)


def trials(seed: int) -> Iterator[Trial]:
    """Return attacks on each way to change an index."""
    rng = random.Random(seed)
    home = Path(os.environ["ATTACK_WORLD"])
    totals = apart(lambda: {deed: _count(deed, home) for deed in DEEDS})
    for deed, total in totals.items():
        for nth in range(1, total + 1):
            yield Trial(
                f"index {deed} killed at change {nth} of {total}", lambda f, d=deed, n=nth: _killed(f, d, n)
            )
        for share in [rng.random() for _ in range(_TIMES)]:
            yield Trial(
                f"index {deed} killed at {share:.0%}", lambda f, d=deed, s=share: _killed(f, d, share=s)
            )
    for _ in range(_PAIRS):
        pair, apart_by = tuple(rng.choices(list(DEEDS), k=2)), rng.random() * 0.3
        yield Trial(f"two at once, {pair}, {apart_by:.2f} s", lambda f, p=pair, a=apart_by: _both(f, p, a))
    for turn in range(_READERS):
        deed = list(DEEDS)[turn % len(DEEDS)]
        yield Trial(f"searches beside index {deed}, {turn}", lambda f, d=deed: _beside(f, d))
    for ids in _ODD_IDS:
        for again in (False, True):
            name = f"--delete {ids[:40]!r}{', of an index with deletions' if again else ''}"
            yield Trial(name, lambda f, i=ids, a=again: _odd(f, i, again=a))


def _line(deed: str) -> list[str]:
    return ["index", *DEEDS[deed][0], "--out", "result"]


def _stage(folder: Path) -> None:
    shutil.copytree(folder / "my.index", folder / "result")
    (folder / "gone.txt").write_text("".join(f"{name}\n" for name in sorted(_GONE)))
    rows = [{"id": name, "text": f"{_WORD} {' '.join(WORDS[:3])}"} for name in sorted(_GONE | _NEW)]
    (folder / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "probe.tsv").write_text(f"all\t{' '.join(WORDS)}\nnew\t{_WORD}\n")


def _count(deed: str, home: Path) -> int:
    folder = home.with_name("count-changes")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(home, folder, symlinks=True)
    _stage(folder)
    marks = folder / "changes"
    call(_line(deed), folder, before=counting(marks))
    total = marks.stat().st_size
    shutil.rmtree(folder)
    return total


def _found(folder: Path) -> tuple[set[str], set[str]] | str:
    """Return the documents that the index finds, all and those with the word; or why it finds none."""
    line = ["search", "--index", "result", "--queries", "probe.tsv", "--out", "probe.run"]
    done = call(line, folder)
    if done.code != 0 or done.crash:
        return f"a search: {done.code} {done.crash or done.err.strip()[-200:]}"
    rows = [row.split() for row in (folder / "probe.run").read_text().splitlines()]
    (folder / "probe.run").unlink()
    return {row[2] for row in rows}, {row[2] for row in rows if row[0] == "new"}


def _wanted(deeds: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """Return what is found behind some deeds, one after the other."""
    held, fresh = set(_OLD), set[str]()
    for deed in deeds:
        if "--update" in deed:
            held, fresh = held | _GONE | _NEW, fresh | _GONE | _NEW
        else:
            held, fresh = held - _GONE, fresh - _GONE
    return held, fresh


def _killed(folder: Path, deed: str, nth: int = 0, share: float = 0.0) -> Verdict:
    _stage(folder)
    if nth:
        call(_line(deed), folder, before=ending_at(nth))
    else:
        under_way = Call(_line(deed), folder)
        time.sleep(0.01 + share * 0.8)
        under_way.kill()
        under_way.wait()
    found = _found(folder)
    if found not in (_wanted(()), _wanted((deed,))):
        return Verdict("lost", f"after the kill: {_told(found, deed)}")
    again = call(_line(deed), folder)
    if (broken := breakdown(again)) is not None:
        return broken
    was_done = found == _wanted((deed,))
    if again.code and not (was_done and "has no such document" in again.err):
        return Verdict("wrong", f"given again: exit {again.code}: {again.err.strip()[-200:]}")
    return _sound(folder, (_wanted((deed,)),))


def _told(found: tuple[set[str], set[str]] | str, deed: str) -> str:
    if isinstance(found, str):
        return found
    return (
        f"{len(found[0])} documents, {len(found[1])} new ones; {[len(s) for s in _wanted((deed,))]} are due"
    )


def _sound(folder: Path, wanted: tuple[tuple[set[str], set[str]], ...]) -> Verdict:
    """Judge what the index finds, and what doctor says of it."""
    found = _found(folder)
    if found not in wanted:
        return Verdict("wrong", _told(found, "--update"))
    if left := [path.name for path in (folder / "result").rglob("*.part")]:
        return Verdict("wrong", f"scratch files are left: {left[0]}")
    done = call(["doctor", "result"], folder)
    return message(done) if done.code == 0 else Verdict("wrong", f"doctor: {(done.out + done.err)[-200:]}")


def _both(folder: Path, pair: tuple[str, ...], apart_by: float) -> Verdict:
    _stage(folder)
    calls = [Call(_line(pair[0]), folder)]
    time.sleep(apart_by)
    calls.append(Call(_line(pair[1]), folder))
    ended = [one.wait() for one in calls]
    for done in ended:
        if message(done) != RIGHT:
            return message(done)
    did = tuple(deed for deed, done in zip(pair, ended, strict=True) if done.code == 0)
    if not did:
        return Verdict("wrong", f"neither did it: {ended[1].err.strip()[-200:]}")
    return _sound(folder, (_wanted(did), _wanted(did[::-1])))


def _beside(folder: Path, deed: str) -> Verdict:
    """Search again and again while an index is changed: what was there, or what is to be, and no error."""
    _stage(folder)
    under_way = Call(_line(deed), folder)
    for _ in range(6):
        if (found := _found(folder)) not in (_wanted(()), _wanted((deed,))):
            under_way.kill()
            under_way.wait()
            return Verdict("wrong", f"beside it: {_told(found, deed)}")
    done = under_way.wait()
    return _sound(folder, (_wanted((deed,)),)) if message(done) == RIGHT else message(done)


def _odd(folder: Path, ids: str, *, again: bool) -> Verdict:
    """Delete by a file of odd ids: they are gone exactly, or it is refused and nothing has changed."""
    _stage(folder)
    if again:
        call(_line("--delete"), folder)
    before = _found(folder)
    (folder / "odd.txt").write_text(ids, newline="")
    done = call(["index", "--delete", "odd.txt", "--out", "result"], folder)
    if message(done) != RIGHT:
        return message(done)
    after = _found(folder)
    if isinstance(before, str) or isinstance(after, str):
        return Verdict("wrong", f"{before if isinstance(before, str) else after}")
    named = {name.removeprefix("\ufeff") for name in ids.splitlines()}
    due = before[0] - named if done.code == 0 else before[0]
    return RIGHT if after[0] == due else Verdict("wrong", f"{len(after[0])} left, {len(due)} are due")
