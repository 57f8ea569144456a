"""Outputs aimed at what must not be hurt: folders, indexes, devices, pipes, links, read-only places."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from .calls import call
from .verdicts import RIGHT, Trial, Verdict, contents, differences, message
from .world import COMMANDS, CPU, DENSE, LEARN

OF_FILES = {
    **{
        f"{n} --out": COMMANDS[n] for n in ("search", "fuse", "rerank", "subset", "combine", "folds", "label")
    },
    "label --report": [*COMMANDS["label"][:-1], "pairs.out", "--report", "OUT"],
    "evaluate --per-query": COMMANDS["evaluate"],
    "evaluate --report": [*COMMANDS["evaluate"][:-2], "--report", "OUT"],
    "evaluate --chart": [*COMMANDS["evaluate"][:-2], "--baseline", "ql.run", "--chart", "OUT"],
    "paired-wins --chart": COMMANDS["paired-wins"],
}
OF_FOLDERS = {
    **{f"{name} --out": COMMANDS[name] for name in ("index", "group-split", "pretrain", "train", "run")},
    "index --overwrite": [*COMMANDS["index"], "--overwrite"],
    "index --append": ["index", "more.jsonl", "--workers", "1", "--append", "--out", "OUT"],
    "rerank --cache": [*COMMANDS["rerank"][:-1], "new.run", "--cache", "OUT"],
    "label --cache": [*COMMANDS["label"][:-1], "pairs.out", "--cache", "OUT"],
    "encode --index": ["encode", "--index", "OUT", "--ranker", DENSE, *CPU],
    "train --init": ["train", *LEARN, "--init", "knrm", "--epochs", "1", "--out", "OUT"],
}
FREE = ("new.run", "pairs.out")  # what a command may write beside what it was aimed at
# How targets are called; {} stands for the ending that a command's output needs (.svg, .html).
TARGETS = (
    *("mine", "mine/", "my.index", "full.index/", "cache", "cross", "null{}", "full{}", "pipe{}", "socket{}"),
    *("link{}", "folderlink", "loop{}", "dangling{}", "thesis.txt/x{}", "ro/x{}", "ro", "", ".", ".."),
    *("../outside{}", "x" * 300, "x" * 250 + "{}", "my.index/manifest.json", "a\nb{}", "-", "/dev/stdout"),
    *("/proc/x{}", "/dev/null", "mine/../mine", "new/deep/er{}", "thesis.txt", "bm25.run"),
)
_DEVICES = ("/dev/null", "/dev/full")
_SAFE_TO_CHANGE = {"thesis.txt", "bm25.run", "my.index/manifest.json"}  # regular files, replaced as asked


def trials(seed: int) -> Iterator[Trial]:
    """Return every writing option aimed at every target."""
    del seed
    for name, arguments in (OF_FILES | OF_FOLDERS).items():
        ending = {"--chart": ".svg", "--report": ".html"}.get(name.split()[1], "")
        for target in TARGETS:
            aimed = target.replace("{}", ending)
            yield Trial(f"{name} {aimed[:60]!r}", lambda f, a=arguments, t=aimed, n=name: _aim(f, a, t, n))


def _aim(folder: Path, arguments: list[str], target: str, name: str) -> Verdict:
    ending = Path(target).suffix if Path(target).suffix in (".svg", ".html") else ""
    if name == "index --append" and target in ("my.index", "my.index/manifest.json", "full.index/"):
        return RIGHT  # that is what it is for
    if name == "encode --index" and target in ("my.index", "full.index/"):
        return RIGHT
    if name == "index --overwrite" and target in ("my.index", "full.index/"):
        return RIGHT
    inside = folder / "here"
    inside.mkdir()
    for entry in list(folder.iterdir()):
        if entry != inside:
            entry.rename(inside / entry.name)
    read_only = _traps(inside, ending)
    before = contents(folder)
    devices = [Path(path).stat().st_rdev for path in _DEVICES]
    try:
        done = call([target if word == "OUT" else word for word in arguments], inside)
        after = contents(folder)
    finally:
        if read_only:
            os.system(f"umount {inside / 'ro'}")
    lost = [n for n in differences(before, after) if not _allowed(n, before, target, name)]
    lost += [path for path, rdev in zip(_DEVICES, devices, strict=True) if not _still(path, rdev)]
    if lost:
        return Verdict("lost", f"exit {done.code}: {', '.join(lost[:4])}")
    return message(done)


def _still(path: str, rdev: int) -> bool:
    """Tell whether a device is what it was, and put it back where it is not."""
    if Path(path).exists() and Path(path).stat().st_rdev == rdev:
        return True
    Path(path).unlink(missing_ok=True)
    os.mknod(path, 0o20666, rdev)
    Path(path).chmod(0o666)
    return False


def _traps(folder: Path, ending: str) -> bool:
    """Lay devices, pipes, sockets, links and a read-only folder; tell whether the last could be mounted."""
    for name, minor in (("null", 3), ("full", 7)):
        try:
            os.mknod(folder / (name + ending), 0o20666, os.makedev(1, minor))
        except PermissionError:  # not root: a folder is in the way as well
            (folder / (name + ending)).mkdir()
    pipe = folder / f"pipe{ending}"
    os.mkfifo(pipe)
    threading.Thread(target=_drain, args=(pipe,), daemon=True).start()
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(folder)
        server.bind(f"socket{ending}")
        os.chdir(here)
    (folder / f"link{ending}").symlink_to("thesis.txt")
    (folder / "folderlink").symlink_to("mine")
    (folder / f"loop{ending}").symlink_to(f"loop{ending}")
    (folder / f"dangling{ending}").symlink_to("nowhere")
    (folder / "ro").mkdir()
    if os.geteuid() == 0:
        return os.system(f"mount -t tmpfs -o ro,size=64k none {folder / 'ro'} 2>/dev/null") == 0
    (folder / "ro").chmod(0o555)
    return False


def _drain(pipe: Path) -> None:
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for _ in range(400):
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 1 << 16)
        threading.Event().wait(0.1)


def _allowed(name: str, before: dict[str, str], target: str, option: str) -> bool:
    """Tell whether a change under ``name`` (seen from above the world) is what was asked for."""
    path = name.removeprefix("here/")
    if path.split("/")[-1].startswith(".") or path in FREE or path.split("/")[0] in FREE:
        return True  # locks; how scratch files are tidied is the campaign of kills' matter
    if name not in before:
        return True  # new files hurt nobody, wherever the user wanted them
    if option == "index --append" and path.startswith("my.index/"):
        return False
    plain = os.path.normpath(target)
    if plain in _SAFE_TO_CHANGE and path == plain:
        return option != "OUT" and option in OF_FILES
    if target.startswith(("link", "dangling")):
        return path in ("thesis.txt", target, "nowhere")
    if option.endswith("--cache") and plain == "cache":
        return path.startswith("cache/")
    return False
