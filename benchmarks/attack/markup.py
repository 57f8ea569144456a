"""TREC markup written in every way it may be: each document and topic is read, or the file is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from .calls import Outcome, call
from .verdicts import RIGHT, Trial, Verdict, message
from .world import WORDS

_TRIALS = 250


def trials(seed: int) -> Iterator[Trial]:
    """Return collections and topics in drawn markup, half of them with one mark left out."""
    for i in range(_TRIALS):
        for kind, attack in (("documents", _documents), ("topics", _topics)):
            broken = i % 2 == 1
            yield Trial(
                f"{kind} {i} by seed {seed}{', a mark left out' if broken else ''}",
                lambda f, a=attack, s=f"{seed}-{kind}-{i}", b=broken: a(f, random.Random(s), broken=b),
            )


def _tag(rng: random.Random, name: str) -> str:
    name = name if rng.random() < 0.8 else name.swapcase()
    return f"<{name}{rng.choice(('', '', '', '', ' ', chr(9), chr(10)))}>"


def _gap(rng: random.Random) -> str:
    return rng.choice(("\n", "\n", "\n", "", " ", "\t", "\n\n", "\r\n"))


def _documents(folder: Path, rng: random.Random, *, broken: bool) -> Verdict:
    parts, names = [], [f"doc{i}" for i in range(rng.randint(1, 8))]
    for i, name in enumerate(names):
        text = " ".join(rng.choices(WORDS, k=5)) + f" mark{i}x"
        field = rng.choice(("TEXT", "TEXT", "HEADLINE", "TITLE"))
        parts += [
            *(_tag(rng, "DOC"), _gap(rng), _tag(rng, "DOCNO"), f" {name} ", _tag(rng, "/DOCNO"), _gap(rng)),
            *(_tag(rng, field), _gap(rng), text, _gap(rng), _tag(rng, f"/{field}"), _gap(rng)),
            *(_tag(rng, "/DOC"), _gap(rng)),
        ]
    if broken:
        marks = [i for i, part in enumerate(parts) if part.startswith("<")]
        del parts[rng.choice(marks)]
    (folder / "m.trec").write_text("".join(parts))
    done = call(["index", "m.trec", "--workers", "1", "--out", "new.index", "--json"], folder)
    if done.code != 0 or message(done) is not RIGHT:
        return _named(done)
    number = json.loads(done.out)["documents"]
    if number != len(names):
        return Verdict("wrong", f"{len(names)} documents were written, {number} were read, exit 0")
    queries = "".join(f"{i}\tmark{i}x\n" for i in range(len(names)))
    (folder / "q.tsv").write_text(queries)
    call(["search", "--index", "new.index", "--queries", "q.tsv", "--out", "new.run"], folder)
    found = {line.split()[0]: line.split()[2] for line in (folder / "new.run").read_text().splitlines()}
    lost = [i for i, name in enumerate(names) if found.get(str(i)) != name]
    return Verdict("wrong", f"the text of document {lost[0]} is not found, exit 0") if lost else RIGHT


def _named(done: Outcome) -> Verdict:
    """Judge a refusal: it names the line."""
    verdict = message(done)
    if verdict is RIGHT and ", line " not in done.err:
        return Verdict("wrong", f"refused without a line: {done.err.strip()[-200:]}")
    return verdict


def _topics(folder: Path, rng: random.Random, *, broken: bool) -> Verdict:
    parts, number = [], rng.randint(1, 8)
    for i in range(number):
        parts += [
            *(_tag(rng, "top"), rng.choice(("\n", "\n", " ")), _tag(rng, "num"), f" Number: {300 + i}"),
            *(
                rng.choice(("\n", "\n", "\r\n", " ")),
                _tag(rng, "title"),
                f" {' '.join(rng.sample(WORDS, 3))}",
            ),
            *(rng.choice(("\n", "\n\n")), _tag(rng, "desc"), " Description:\n", "Say it.", "\n"),
            *(_tag(rng, "/top"), _gap(rng)),
        ]
    if broken:
        marks = [i for i, part in enumerate(parts) if part.startswith("<")]
        del parts[rng.choice(marks)]
    (folder / "t.txt").write_text("".join(parts))
    line = ["search", "--index", "my.index", "--queries", "t.txt", "--out", "new.run", "--json"]
    done = call(line, folder)
    if done.code != 0 or message(done) is not RIGHT:
        return _named(done)
    read = len({row.split()[0] for row in (folder / "new.run").read_text().splitlines()})
    if read != number:
        return Verdict("wrong", f"{number} topics were written, {read} were searched, exit 0")
    return RIGHT
