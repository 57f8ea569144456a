"""Files of every kind, changed in some places, given to the commands that read them."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

from .calls import call
from .monsters import _zstd
from .verdicts import Trial, Verdict, contents, differences, message
from .world import CPU, CROSS, KNRM, LEARN, SETTINGS, TASK, command

NASTY: tuple[bytes, ...] = (
    b"nan", b"inf", b"-inf", b"1e999", b"1_0", b"9" * 20, b"-1", b"0", b"1.5", b"null", b"true", b'""', b'"',
    b"[]", b"{}", b"[" * 1_000, b"{", b"}", b"\\", b"\\ud800", b"\x00", b"\x1b[31mred\x1b[0m", b"\xff\xfe",
    b"\xc3", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\n", b"\n\n", b"\t", b"\t\t", b" ", b"\xc2\xa0",
    b"\xe2\x80\xa8", b"\x0b", b"<DOC>", b"</DOC>", b"<DOC\t>", b"<TEXT>", b"</TEXT>", b"<top>", b"</top>",
    b"<num>", b"&lt;", b"<!--", b"<", b"../../x", b"/etc/passwd", "٣".encode(), "漢".encode(),
    "e\u0301".encode(), b"A" * 70_000, b"Q0", b"#", b",", b'"id"', b'"text"', b'"_id"', b'"label"',
    b'"station"', b"@root", b"{seed}", b"[[table]]", b"=",
)  # fmt: skip

FUSE = ["fuse", "FILE", "ql.run"]
SEARCH = ["search", "--index", "my.index", "--queries"]


def _with_file(name: str, file: str) -> list[str]:
    """Return a command that reads FILE where it read ``file``."""
    return ["FILE" if word == file else word for word in command(name, "new")]


# Name -> file that is changed, command that reads it.
READERS: dict[str, tuple[str, list[str]]] = {
    "corpus.jsonl": ("corpus.jsonl", ["index", "FILE", "--workers", "1", "--out", "new"]),
    "corpus.tsv": ("corpus.tsv", ["index", "FILE", "--workers", "1", "--out", "new"]),
    "corpus.trec": ("corpus.trec", ["index", "FILE", "--workers", "1", "--out", "new"]),
    "corpus.jsonl, tolerant": (
        "corpus.jsonl", ["index", "FILE", "--workers", "1", "--skip-bad", "1000", "--out", "new"]
    ),
    "corpus.trec, tolerant": (
        "corpus.trec", ["index", "FILE", "--workers", "1", "--skip-bad", "1000", "--out", "new"]
    ),
    "corpus appended": ("more.jsonl", ["index", "FILE", "--append", "--workers", "1", "--out", "my.index"]),
    "queries.jsonl": ("queries.jsonl", [*SEARCH, "FILE", "--out", "new"]),
    "queries.tsv": ("queries.tsv", [*SEARCH, "FILE", "--out", "new"]),
    "topics": ("topics.txt", [*SEARCH, "FILE", "--out", "new"]),
    "qrels": (
        "qrels.txt",
        ["evaluate", "--qrels", "FILE", "bm25.run", "--per-query", "new", "--report", "p.html"],
    ),
    "run, evaluated": ("bm25.run", ["evaluate", "--qrels", "qrels.txt", "FILE", "--per-query", "new"]),
    "run, fused": ("bm25.run", ["fuse", "FILE", "ql.run", "--out", "new"]),
    "run, tuned": ("bm25.run", [*FUSE, "--tune", "qrels.txt", "--step", "0.5", "--out", "new"]),
    "run, reranked": (
        "bm25.run",
        [*("rerank", "--run", "FILE", "--queries", "queries.tsv", "--index", "my.index"), *CPU,
         *("--ranker", CROSS, "--depth", "3", "--out", "new")],
    ),
    "run, versus": ("bm25.run", ["paired-wins", "FILE", "ql.run", "--qrels", "qrels.txt", "--ranges", "2"]),
    "run, joined": ("half1.run", ["combine", "FILE", "half2.run", "--out", "new"]),
    "pairs": ("pairs.jsonl", ["label-stats", "FILE", "--truth", "qrels.txt"]),
    "pairs, selected": ("pairs.jsonl", ["subset", "--pairs", "FILE", "--sample", "9", "--out", "new"]),
    "pairs, trained": (
        "pairs.jsonl",
        [*("train", "--index", "my.index", "--pairs", "FILE", "--ranker", KNRM, "--out", "new"),
         *SETTINGS, "--set", "device=cpu"],
    ),
    "passages": (
        "passages.jsonl",
        ["label", *TASK, "--rule", 'judged("qrels.txt")', "--passages", "FILE", "--out", "new"],
    ),
    "qrels of a rule": ("qrels.txt", ["label", *TASK, "--rule", 'judged("FILE")', "--out", "new"]),
    "folds": (
        "folds.json",
        ["subset", "--queries", "queries.tsv", "--folds", "FILE", "--fold", "1", "--out", "new"],
    ),
    "folds given": ("folds.json", ["folds", "--queries", "queries.tsv", "--given", "FILE", "--out", "new"]),
    "recipe": ("recipe.toml", ["run", "FILE", "--out", "new"]),
    "recipe, dry": ("recipe.toml", ["run", "FILE", "--out", "new", "--dry-run"]),
    "word vectors": (
        "vectors.txt",
        ["train", *LEARN, "--ranker", 'knrm(vectors="FILE", min_count=1)', *SETTINGS, "--out", "new"],
    ),
    "entries of parts": ("corpus.jsonl", _with_file("group-split", "corpus.jsonl")),
    "matches of parts": ("matches.txt", _with_file("group-split", "matches.txt")),
    "anything, doctored": ("", ["doctor", "FILE"]),
}  # fmt: skip
_SLOW = {"pairs, trained", "word vectors", "recipe", "run, reranked"}
_TRIALS, _SLOW_TRIALS = 65, 35


def trials(seed: int) -> Iterator[Trial]:
    """Return changed files, some of them compressed before or after the change."""
    for name, (file, line) in READERS.items():
        for i in range(_SLOW_TRIALS if name in _SLOW else _TRIALS):
            yield Trial(
                f"{name}, change {i} by seed {seed}",
                lambda f, p=file, c=line, s=f"{seed}-{name}-{i}": _fuzz(f, p, c, random.Random(s)),
            )


def changed(data: bytes, rng: random.Random) -> bytes:
    """Change some places of a file: bytes, words, lines, its end."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 12))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(9)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at : at + rng.choice((1, 2, 10, 100))]
        elif kind == 2:
            out[at:at] = rng.choice(NASTY)
        elif kind == 3:  # a whole word for another
            ends = [i for i in (out.find(c, at) for c in (b" ", b"\t", b",", b"\n", b'"')) if i >= 0]
            out[at : min(ends, default=len(out))] = rng.choice(NASTY)
        elif kind == 4:
            lines = bytes(out).splitlines(keepends=True)
            rng.shuffle(lines)
            out = bytearray(b"".join(lines[: rng.randrange(len(lines) + 1)]))
        elif kind == 5:
            out = out[:at]
        elif kind == 6:
            out[at:at] = out[at : at + rng.randrange(300)]
        elif kind == 7:
            out = bytearray(bytes(out).replace(b"\n", rng.choice((b"\r\n", b"\r", b" ", b"\n\n", b"")), 5))
        else:
            out[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(out)


def _fuzz(folder: Path, file: str, line: list[str], rng: random.Random) -> Verdict:
    if not file:
        file = rng.choice(sorted(p.name for p in folder.iterdir() if p.is_file()))
    if file == "passages.jsonl":
        text = (folder / "corpus.jsonl").read_text().replace('"id"', '"index": 0, "doc_id"')
        (folder / file).write_text(text)
    name, data = f"changed-{file}", (folder / file).read_bytes()
    pack, ending = rng.choice(((gzip.compress, ".gz"), (_zstd, ".zst"), *[(None, "")] * 6))
    if pack is None:
        data = changed(data, rng)
    else:
        data = changed(pack(data), rng) if rng.random() < 0.6 else pack(changed(data, rng))
    (folder / (name + ending)).write_bytes(data)
    before = contents(folder)
    done = call([word.replace("FILE", name + ending) for word in line], folder)
    after = contents(folder)
    free = "my.index" if "--append" in line and done.code == 0 else "new"
    hurt = [
        n for n in differences(before, after) if n in before and not n.startswith(free) and ".lock" not in n
    ]
    if hurt:
        return Verdict("lost", f"exit {done.code}: {', '.join(hurt[:3])}")
    verdict = message(done)
    if verdict.kind == "right" and done.code == 0:
        return _reads_back(folder, line)
    return verdict


def _reads_back(folder: Path, line: list[str]) -> Verdict:
    """Judge what was made of a changed file: a run holds finite scores in order, an index is sound."""
    new = folder / "new"
    if line[0] in ("search", "fuse", "rerank", "combine") and new.exists():
        asked = ["fuse", "new", "new", "--out", "again"]
    elif line[0] == "index":
        asked = ["doctor", line[-1]]
    else:
        return Verdict("right")
    done = call(asked, folder)
    verdict = message(done)
    if verdict.kind == "right" and done.code != 0 and (not new.is_file() or new.stat().st_size):
        return Verdict("wrong", f"what it made is not sound: {(done.err + done.out).strip()[-200:]}")
    return verdict
