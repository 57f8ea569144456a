"""``rankhouse up``: files that change, vanish and have odd names, kills, full disks, two at once, odd times.

When the folder is quiet again, the service must find what its files say, and nothing that is gone.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from rankhouse.core.errors import RankhouseError
from rankhouse.index.index import Index
from rankhouse.serve.folder.files import id_of

from .calls import call
from .served import WAIT, Fault, Service, verdict_of
from .verdicts import Trial
from .world import WORDS

_CHANGES, _KILLS, _KEEPER_KILLS, _FULL, _NAMES, _TWO, _TIMES, _DAMAGE = 40, 20, 12, 12, 12, 5, 12, 12
_MANY = 20_000
_DEEDS = ("new", "new", "edit", "edit", "same size", "remove", "rename", "to folder", "to link", "half",
          "binary", "empty", "move folder", "replace", "swap", "unreadable", "odd page")  # fmt: skip
_ODD = ("caf\udce9", "a\nb", "a\x1b[2Jb", "-rf", "--out", "%2e%2e", "a b\tc", "\u202eabc", "x" * 240, "*",
        "?", "'\"<script>", "na\u0308me", "\u2028", "a\x85b", "\x7f", "..a", "~", "$HOME", "\udcff\udcfe",
        "\U0001f6a2", "&amp;", "a;b", "a|b", "`id`")  # fmt: skip
_MARKUP = ("<!", "<![", "<![CDATA[", "]]>", "<!--", "<?", "</", "a ", "&#x110000;", "&#" + "9" * 5_000 + ";",
           "<script>", "<!DOCTYPE", "\0", "title", "<h1>", "</title>", "<b>" * 3_000)  # fmt: skip
_STATE = (
    "files.json",
    "progress.json",
    "index/manifest.json",
    "said.txt",
    ".keep.lock",
    ".gitignore",
    "index",
)


class Up(Service):
    """``rankhouse up`` on the folder "notes"."""

    command = ("up", "notes", "--lexical")


def trials(seed: int) -> Iterator[Trial]:
    """Return folders, each with a service of its own."""
    rng = random.Random(seed)
    kinds: list[tuple[str, int, Callable[[Path, random.Random], None]]] = [
        ("files that change", _CHANGES, _changes),
        ("the service killed", _KILLS, _killed),
        ("the watcher killed", _KEEPER_KILLS, _keeper_killed),
        ("a full disk", _FULL, _full),
        ("hostile names", _NAMES, _names),
        ("two at once", _TWO, _two),
        ("times that jump", _TIMES, _times),
        ("state damaged", _DAMAGE, _damage),
        (f"{_MANY:,} tiny files", 1, _many),
    ]
    for name, count, attack in kinds:
        for number in [rng.randrange(1 << 30) for _ in range(count)]:
            yield Trial(
                f"up: {name} {number}",
                lambda f, a=attack, n=number: verdict_of(lambda: a(f, random.Random(n))),
            )


# --- a folder of files, and what is to be found in it ----------------------------------------------------


def _text(rng: random.Random) -> str:
    """Draw a text of a fixed length with a word that no other text has."""
    return f"{' '.join(rng.choices(WORDS, k=6)):60.60} unique{rng.randrange(10**9):09}.\n"


def _filled(folder: Path, rng: random.Random, count: int = 12) -> Path:
    notes = folder / "notes"
    for number in range(count):
        path = notes / ("sub" if number % 3 else ".") / f"note{number}.{rng.choice(('txt', 'md'))}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(rng))
    return notes


def _expected(notes: Path) -> dict[str, str]:
    """Return what every file's document must hold, by its id."""
    found = {}
    for base, folders, names in os.walk(notes):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(base, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            with suppress(UnicodeDecodeError):
                text = path.read_text() if path.suffix in (".txt", ".md") else ""
                if text.strip() and "\0" not in text:  # an empty file is no document
                    found[id_of(path, notes)] = text.strip()
    return found


def _held(notes: Path) -> dict[str, tuple[str, str]]:
    """Return what the index holds, by id: texts alone, and behind their titles."""
    documents = Index.open(notes / ".rankhouse" / "index").documents
    return {d.id: (d.text, f"{d.title}\n{d.text}".strip()) for d in documents.stream()}


def _settled(service: Service, notes: Path, wait: float = WAIT) -> None:
    """Wait until index and answers say what the files say; raise a Fault where they never do."""
    ends, why = time.monotonic() + wait, ""
    while time.monotonic() < ends:
        service.check_alive("a change")
        wanted = _expected(notes)
        try:
            held = _held(notes)
        except (RankhouseError, OSError) as error:
            why = f"the index cannot be read: {error}"
        else:
            held = {name: texts for name, texts in held.items() if name.endswith((".txt", ".md"))}
            both = wanted.keys() & held.keys()
            wrong = sorted((wanted.keys() ^ held.keys()) | {n for n in both if wanted[n] not in held[n]})
            why = f"{len(wrong)} documents are not as their files are: {wrong[:2]!a}"
            if not wrong and not (why := _misses(service, wanted)):
                return
        time.sleep(0.3)
    raise Fault("wrong", f"after {wait:.0f} s {why}")


def _misses(service: Service, wanted: dict[str, str]) -> str:
    """Ask for the word that one file alone has, of a few files; say what was not found."""
    for name, text in [item for item in wanted.items() if "unique" in item[1]][:5]:
        word = text[text.rindex("unique") :].strip(" .\n")
        reply = service.ask("GET", f"/search?query={quote(word)}&k=3")
        if reply.status != 200:
            return f"{reply.status} to a search: {reply.body[:200]!r}"
        if name not in [hit["id"] for hit in reply.data["hits"]]:
            return f"{word} is not found in {name!a}"
    return ""


@contextmanager
def _up(folder: Path, *arguments: str) -> Iterator[Service]:
    """Have ``up`` at work while a block runs; it ends well, and its watcher with it."""
    service = Up(folder, *arguments)
    try:
        yield service
        service.check_alive("the trial")
    except BaseException:
        service.kill()
        raise
    else:
        done = service.end()
        if "\x1b" in done.err + done.out:
            raise Fault("wrong", "control characters reach the terminal")
    finally:
        ends = time.monotonic() + WAIT
        while _keepers(folder) and time.monotonic() < ends:
            time.sleep(0.05)
    if left := _keepers(folder):
        raise Fault("wrong", f"the watcher {left} outlives its service")


def _keepers(folder: Path) -> list[int]:
    """Return the processes that keep a folder's index up to its files."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            is_one = entry.name.isdecimal() and b"folder.keeping" in (entry / "cmdline").read_bytes()
            if is_one and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
    return found


# --- the attacks -------------------------------------------------------------------------------------------


def _deed(notes: Path, deed: str, rng: random.Random) -> None:
    """Do something to the files, as programs and people do."""
    files = [path for path in sorted(notes.rglob("*.*")) if ".rankhouse" not in path.parts]
    path = rng.choice(files) if files else notes / "first.txt"
    with suppress(OSError):  # what an earlier deed put there
        if deed == "new" or not files:
            (notes / "sub").mkdir(exist_ok=True)
            (notes / rng.choice((".", "sub")) / f"new{rng.randrange(99)}.txt").write_text(_text(rng))
        elif deed == "odd page":
            (notes / f"page{rng.randrange(9)}.html").write_text("".join(rng.choices(_MARKUP, k=9)))
        elif deed == "move folder":
            (notes / "sub").rename(notes / f"sub{rng.randrange(9)}")
        elif deed in ("edit", "same size", "half", "binary", "empty", "swap"):
            _write(path, deed, rng, rng.choice(files))
        else:
            _move(path, deed, rng)


def _write(path: Path, deed: str, rng: random.Random, other: Path) -> None:
    times, before = path.stat(), path.read_bytes()
    if deed == "swap":
        content = other.read_bytes()
        other.write_bytes(before)
    else:
        texts = {"edit": _text(rng) * rng.randint(1, 3), "same size": _text(rng)}
        content = {"half": before[:40], "binary": b"\x00\xff" * 50}.get(deed, texts.get(deed, "").encode())
    path.write_bytes(content)
    if deed == "same size":
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _move(path: Path, deed: str, rng: random.Random) -> None:
    if deed == "rename":
        path.rename(path.with_name(f"moved{rng.randrange(99)}.txt"))
    elif deed == "replace":
        path.with_name("scratch.tmp").write_text(_text(rng))
        path.with_name("scratch.tmp").replace(path)
    elif deed == "unreadable":
        path.chmod(0)
        time.sleep(0.2)
        path.chmod(0o600)
    else:
        path.unlink()
        if deed == "to folder":
            path.mkdir()
        elif deed == "to link":
            path.symlink_to("/etc/passwd")


def _changes(folder: Path, rng: random.Random) -> None:
    notes = _filled(folder, rng)
    with _up(folder) as service:
        for _ in range(rng.randint(1, 12)):
            _deed(notes, rng.choice(_DEEDS), rng)
            time.sleep(rng.choice((0, 0, 0.05, 0.4)))
        (notes / "last.txt").write_text(_text(rng))  # at least one is left
        _settled(service, notes)


def _killed(folder: Path, rng: random.Random) -> None:
    notes = _filled(folder, rng, 200)
    with suppress(Fault):  # it was killed before it was ready
        service = Up(folder)
        for _ in range(rng.randint(0, 6)):
            _deed(notes, rng.choice(_DEEDS), rng)
        time.sleep(rng.random() * 6)
        os.killpg(service.call.pid, signal.SIGKILL)
        service.call.wait()
    (notes / "last.txt").write_text(_text(rng))
    with _up(folder) as service:
        _settled(service, notes)


def _keeper_killed(folder: Path, rng: random.Random) -> None:
    notes = _filled(folder, rng, 100)
    with _up(folder) as service:
        for _ in range(rng.randint(1, 2)):
            ends = time.monotonic() + WAIT
            while not (watchers := _keepers(folder)) and time.monotonic() < ends:
                time.sleep(0.05)
            _deed(notes, rng.choice(_DEEDS), rng)
            time.sleep(rng.random() * 4)
            for number in watchers:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        (notes / "last.txt").write_text(_text(rng))
        _settled(service, notes)


def _full(folder: Path, rng: random.Random) -> None:
    """Let the disk run full while files change; with room again, all is as the files say."""
    (folder / "notes").mkdir()
    size = rng.randint(600, 3_000)
    if os.system(f"mount -t tmpfs -o size={size}k none {folder / 'notes'}") != 0:
        shutil.rmtree(folder / "notes")  # not allowed here: the files of the folder may not grow instead
        return _changes(folder, rng)
    try:
        notes = _filled(folder, rng)
        with _up(folder) as service:
            filler = notes / "filler.bin"
            with suppress(OSError), filler.open("wb") as out:
                while True:
                    out.write(bytes(1 << 12))
            for _ in range(rng.randint(1, 6)):
                _deed(notes, rng.choice(_DEEDS), rng)
            time.sleep(rng.random() * 5)
            _fair_search(service)
            filler.unlink(missing_ok=True)
            with suppress(OSError):
                (notes / "last.txt").write_text(_text(rng))
            _settled(service, notes)
    finally:
        os.system(f"umount -l {folder / 'notes'}")
    return None


def _fair_search(service: Service) -> None:
    reply = service.ask("GET", f"/search?query={WORDS[0]}")
    if reply.status != 200:
        raise Fault("wrong", f"{reply.status} while the disk is full: {reply.body[:200]!r}")


def _names(folder: Path, rng: random.Random) -> None:
    notes = _filled(folder, rng, 3)
    for name in rng.sample(_ODD, 12):
        with suppress(OSError):
            (notes / f"{name}.{rng.choice(('txt', 'md'))}").write_text(_text(rng))
        with suppress(OSError):
            (notes / f"d{name}"[:200]).mkdir()
            (notes / f"d{name}"[:200] / f"{rng.choice(_ODD)[:200]}.txt").write_text(_text(rng))
    with _up(folder) as service:
        _settled(service, notes)
        for path in ("/?query=harbour", "/?query=ship", "/search?query=harbour&k=50"):
            reply = service.ask("GET", path)
            if reply.status != 200 or b"\x1b" in reply.body or b"<script>.t" in reply.body:
                raise Fault("wrong", f"{reply.status} to {path}, or a file's name is not escaped")
        for hit in service.ask("GET", "/search?query=harbour&k=50").data["hits"]:
            if service.ask("GET", f"/document?id={quote(hit['id'])}").status >= 500:
                raise Fault("wrong", f"the document {hit['id']!a} has no page")


def _two(folder: Path, rng: random.Random) -> None:
    notes = _filled(folder, rng)
    with _up(folder) as service:
        for name in ("notes", "./notes/", str(notes)):
            done = call(["up", name, "--lexical", "--port", "0"], folder)
            if done.code not in (1, 2) or "another rankhouse up" not in done.err or done.crash:
                raise Fault("wrong", f"a second one: exit {done.code}: {done.err[-200:]}")
        _deed(notes, "new", rng)
        _settled(service, notes)


def _times(folder: Path, rng: random.Random) -> None:
    """Change files and set their times to long ago, to the future, to what they were."""
    notes = _filled(folder, rng)
    with _up(folder) as service:
        for _ in range(3):
            for path in rng.sample(sorted(notes.rglob("note*")), 4):
                stat = path.stat()
                path.write_text(_text(rng))
                when = rng.choice((0, -(10**9), 2**33, int(time.time()) + 86_400, stat.st_mtime))
                with suppress(OSError, OverflowError):
                    os.utime(path, (when, when))
                if rng.random() < 0.5:
                    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            _settled(service, notes)


def _damage(folder: Path, rng: random.Random) -> None:
    """Damage the state while ``up`` is at work or stopped."""
    notes = _filled(folder, rng)
    at_work = rng.random() < 0.5
    with _up(folder) as service:
        _settled(service, notes)
        if at_work:
            _harm(notes / ".rankhouse" / rng.choice(_STATE[:-2]), rng)
            (notes / "last.txt").write_text(_text(rng))
            _settled(service, notes)
    if not at_work:
        _harm(notes / ".rankhouse" / rng.choice(_STATE), rng)
    with _up(folder) as service:
        _settled(service, notes)


def _harm(path: Path, rng: random.Random) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        return
    content = path.read_bytes() if path.exists() else b""
    place = rng.randrange(len(content) + 1)
    kinds = (b"", b"{}", b"[]", content[:place], json.dumps({"index": "x"}).encode(), b"\xff" * 50)
    path.write_bytes(rng.choice((*kinds, content[:place] + b"7" + content[place + 1 :])))


def _many(folder: Path, rng: random.Random) -> None:
    notes = folder / "notes"
    for number in range(_MANY):
        path = notes / f"{number // 500}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(rng))
    with _up(folder) as service:
        _settled(service, notes, 10 * WAIT)
        shutil.rmtree(notes / "3")
        (notes / "last.txt").write_text(_text(rng))
        _settled(service, notes, 10 * WAIT)
