"""Trials, what came of them, and the table of all campaigns."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import sqlite3
import stat
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .calls import Outcome
from .imports import prepare_rankers
from .world import neural

_TIMES = re.compile(  # and the checksums of what holds them
    rb'"(seconds|started|\w*_per_second|\w*seconds\w*)"\s*:\s*("[^"]*"|[^,}\s]+)|"checksums"\s*:\s*\{[^}]*\}'
)
_LONGEST = 12_000  # a message may repeat a word of the command line, never a file
KINDS = ("right", "wrong", "traceback", "hang", "lost")


@dataclass(frozen=True)
class Verdict:
    """Verdict of a trial: one of KINDS, and why."""

    kind: str
    why: str = ""


RIGHT = Verdict("right")


@dataclass(frozen=True)
class Trial:
    """One attack: a name that says how to do it again, and what does it in a fresh copy of the world."""

    name: str
    attack: Callable[[Path], Verdict]


def breakdown(done: Outcome) -> Verdict | None:
    """Return the verdict of a call that hung or broke down, None for one that ended as programs should."""
    if done.code is None:
        return Verdict("hang", f"still at work after {done.seconds:.0f} s")
    return Verdict("traceback", done.crash) if done.crash else None


def refused(done: Outcome) -> Verdict:
    """Judge a call that ought to be refused: exit code 1 or 2, and a message that a person can read."""
    broken = breakdown(done)
    if broken is not None:
        return broken
    if done.code == 0:
        return Verdict("wrong", "accepted, exit code 0")
    return message(done)


def message(done: Outcome) -> Verdict:
    """Judge how a call ended that may be refused: a message belongs to every exit code but 0."""
    broken = breakdown(done)
    if broken is not None:
        return broken
    if "\x1b" in done.err + done.out:
        return Verdict("wrong", "control characters reach the terminal")
    if done.code == 0:
        return RIGHT
    if done.code not in (1, 2):
        return Verdict("wrong", f"exit code {done.code}")
    if not (done.err + done.out).strip():
        return Verdict("wrong", "no message")
    longest = max(map(len, done.err.splitlines()), default=0)
    return Verdict("wrong", f"a message of {longest} characters") if longest > _LONGEST else RIGHT


def contents(folder: Path) -> dict[str, str]:
    """Return what a folder holds, by relative path: hashes of files, kinds of everything else."""
    found = {}
    for base, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(base, name)
            found[str(path.relative_to(folder))] = _identity(path)
    return found


def _without_times(name: str, data: bytes) -> bytes:
    """Take out of a file how long its making took."""
    if name == "step.json" or (
        name == "manifest.json" and b'"recipe"' in data
    ):  # holds hashes of files that hold times; those are compared themselves
        return b""
    if name == "report.html":
        return data.partition(b"<h2>Steps</h2>")[0]
    return _TIMES.sub(b"", data) if name.endswith((".json", ".jsonl")) else data


def _rows(path: Path) -> bytes:
    """Return what a database says, table by table; its bytes tell as well how often it was written."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        return "\n".join(sorted(database.iterdump())).encode()


def _content(path: Path) -> bytes:
    if path.suffix == ".sqlite":
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
            return _rows(path)
    return _without_times(path.name, path.read_bytes())


def _identity(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode):
        data = _content(path)
        return hashlib.blake2b(data, digest_size=12).hexdigest()
    if stat.S_ISLNK(mode):
        return f"link to {path.readlink()}"
    return {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}.get(
        stat.S_IFMT(mode), f"device {path.lstat().st_rdev}"
    )


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the names that are gone, new or changed."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def carry_out(trials: Sequence[Trial], world: Path, workers: int, scratch: Path) -> list[dict[str, str]]:
    """Do all trials in forked workers, each in a copy of the world of its own; in the order given."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    pids = []
    for worker in range(workers):
        pid = os.fork()
        if pid == 0:
            try:
                _work(trials, range(worker, len(trials), workers), world, scratch / str(worker))
            except BaseException:  # noqa: BLE001 - said, and the parent misses the results
                traceback.print_exc()
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    done = {}
    for worker in range(workers):
        for line in (scratch / f"{worker}.jsonl").read_text().splitlines():
            record = json.loads(line)
            done[record.pop("number")] = record
    shutil.rmtree(scratch, ignore_errors=True)
    missing = {"kind": "wrong", "why": "the attack itself broke down"}
    return [done.get(i, {"name": trial.name, **missing}) for i, trial in enumerate(trials)]


def _work(trials: Sequence[Trial], numbers: range, world: Path, scratch: Path) -> None:
    """Do some trials, one after the other; a line each."""
    with scratch.with_name(scratch.name + ".jsonl").open("w") as results:
        for number in sorted(numbers, key=lambda n: neural(trials[n].name)):
            if neural(trials[number].name):
                prepare_rankers()
            random.seed(number)
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(world, scratch, symlinks=True)
            began = time.perf_counter()
            try:
                verdict = trials[number].attack(scratch)
            except Exception:  # noqa: BLE001 - one trial that fails must not end the campaign
                verdict = Verdict("wrong", f"the attack itself broke down: {traceback.format_exc()[-400:]}")
            record = {"number": number, "name": trials[number].name} | asdict(verdict)
            results.write(json.dumps(record | {"seconds": round(time.perf_counter() - began, 2)}) + "\n")
            results.flush()
    shutil.rmtree(scratch, ignore_errors=True)


def summary(records: Sequence[dict[str, str]]) -> dict[str, int]:
    """Count the trials of a campaign by what came of them."""
    counts = Counter(record["kind"] for record in records)
    return {"tried": len(records)} | {kind: counts[kind] for kind in KINDS}


def table(campaigns: dict[str, dict[str, int]]) -> str:
    """Write the counts of several campaigns as a table in Markdown, with their sum."""
    columns = ("tried", *KINDS)
    total = {column: sum(counts[column] for counts in campaigns.values()) for column in columns}
    rows = [*campaigns.items(), ("all", total)]
    lines = [f"| campaign | {' | '.join(columns)} |", "|---" + "|---:" * len(columns) + "|"]
    lines += [f"| {name} | {' | '.join(f'{counts[c]:,}' for c in columns)} |" for name, counts in rows]
    return "\n".join(lines)
