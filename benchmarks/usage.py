"""Commands run and measured: wall time, processor time, memory of the whole tree of processes, load."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
EVERY = 0.25


class Usage(NamedTuple):
    """Usage of commands that ran side by side.

    Attributes:
        seconds: Wall time.
        processor: Processor seconds of all processes (Ray's are looked at four times a second).
        memory: Peak of all their own memory together, in MB; mapped files are left out.
        mapped: Peak with mapped files.
        load: The machine's load average of a minute when they began.
    """

    seconds: float
    processor: float
    memory: float
    mapped: float
    load: float

    def __add__(self, other: tuple[object, ...]) -> Usage:  # type: ignore[override]
        """Return what two in a row take."""
        assert isinstance(other, Usage)
        return Usage(
            self.seconds + other.seconds,
            self.processor + other.processor,
            max(self.memory, other.memory),
            max(self.mapped, other.mapped),
            max(self.load, other.load),
        )


def rankhouse(*arguments: object) -> list[str]:
    """Return the command line of a command."""
    return [sys.executable, "-m", "rankhouse", *map(str, arguments)]


def run(*commands: Sequence[str]) -> Usage:
    """Run commands side by side, each with one thread a library, and measure them.

    Args:
        commands: Command lines.
    """
    environment = os.environ | ONE_THREAD
    load, started = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryFile() as said:
        running = [subprocess.Popen(words, env=environment, stdout=said, stderr=said) for words in commands]
        watch = _Watch([process.pid for process in running])
        watch.start()
        processor, failed = 0.0, list[str]()
        for process, words in zip(running, commands, strict=True):
            _, status, took = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            processor += took.ru_utime + took.ru_stime
            if process.returncode:
                failed.append(f"{process.returncode}: {' '.join(words)}")
        seconds = time.perf_counter() - started
        watch.over.set()
        watch.join()
        if failed:
            said.seek(0)
            sys.exit("\n".join([*failed, said.read().decode(errors="replace")]))
    return Usage(seconds, max(processor, sum(watch.processor.values())), watch.own, watch.all, load)


class _Watch(threading.Thread):
    """Looks at the memory of processes and of all they started."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(daemon=True)
        self._pids, self.over = pids, threading.Event()
        self.own = self.all = 0.0
        self.processor: dict[int, float] = {}

    def run(self) -> None:
        while not self.over.wait(EVERY):
            pids = _tree(self._pids)
            for pid in pids:
                self.processor[pid] = max(self.processor.get(pid, 0.0), _processor(pid))
            sizes = [_memory(pid) for pid in pids]
            self.own = max(self.own, sum(own for own, _ in sizes))
            self.all = max(self.all, sum(all_ for _, all_ in sizes))


def _tree(roots: list[int]) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(after[1]), []).append(int(entry.name))
    found, left = list[int](), list(roots)
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def _processor(pid: int) -> float:
    """Return a process's own processor seconds so far."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> tuple[float, float]:
    """Return a process's share of memory in MB: its own, and with mapped files."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1000 for line in lines[1:]}
    return sizes.get("Pss_Anon", 0.0) + sizes.get("Pss_Shmem", 0.0), sizes.get("Pss", 0.0)


def bytes_under(folder: Path, *endings: str) -> int:
    """Return the size of a folder's files, or of those with such names.

    Args:
        folder: The folder.
        endings: How their names end; all by default.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files if not endings or path.name.endswith(endings))
