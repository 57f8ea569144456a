"""Do people find the passage? Questions with a known answer, asked of a folder that ``rankhouse up`` serves.

    rankhouse up FOLDER --port 8080
    python benchmarks/folder_questions.py http://127.0.0.1:8080 QUESTIONS [--system default bm25] [--each]
    python benchmarks/folder_questions.py FOLDER QUESTIONS [--repeat 3]

"default" names no system, as a person does: the best quick one answers, and copies of a text are one hit,
which is right if one of them is. Where a system is named, every copy is a hit of its own.

QUESTIONS has a line of JSON a question: {"question": "who steers ships?", "phrase": "steered by a pilot"}.
The phrase is a distinctive part of the passage that answers, as the document has it but for white space,
case and the kind of quotation marks; a document that holds it is a right one. For an honest number, write
the questions before you look at any ranking, in words of your own, about passages drawn at random.

One line a system: how many questions have a right document at rank 1, in the first three, in the first ten;
for how many the snippet of the first right document (of those in the first three) holds the phrase or lies
within 200 characters of it; and the same out of all questions. --each adds a line a question: rank and
distance of the snippet to the phrase in characters, by system.

With a folder in place of the address: how long a person waits who has it served for the first time. A folder
of hard links beside it is served, so that nothing is indexed yet (its files may be in the system's cache). A
line a repetition: seconds from the command to the first page, which says how far the reading is, to the
search page, to the first answer (to the questions in their order) with a right document in the first three,
and the processor's seconds until then, of the program and the processes it has waited for.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rankhouse.serve.folder.prepare import claimed

NEAR = 200
"""Characters between snippet and phrase."""
DEPTH = 10
DEFAULT = "default"


class KnownAnswer(msgspec.Struct):
    """A question, and a part of the passage that answers it."""

    question: str
    phrase: str


class HitPlace(NamedTuple):
    """Rank of the first right document, 0 for none, and how far its snippet is from the phrase.

    The distance is in characters, -1 where the snippet is not in the text.
    """

    rank: int
    distance: int


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("service", help="address of the service, or a folder")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--system", nargs="+", default=["default", "hybrid", "bm25", "dense"])
    parser.add_argument("--index", default="")
    parser.add_argument("--each", action="store_true", help="a line a question, too")
    parser.add_argument("--repeat", type=int, default=3, help="starts, of a folder")
    given = parser.parse_args()
    lines = given.questions.read_text("utf-8").splitlines()
    known = [msgspec.json.decode(line, type=KnownAnswer) for line in lines if line.strip()]
    if (folder := Path(given.service)).is_dir():
        print("page s", "search s", "answer s", "processor s", sep="\t")
        for _ in range(given.repeat):
            print(*(f"{seconds:.1f}" for seconds in first_answer(folder, known)), sep="\t", flush=True)
        return
    table = {name: [asked(given.service, given.index, name, one) for one in known] for name in given.system}
    print("system", "first", "of 3", f"of {DEPTH}", "snippet", "both", "questions", sep="\t")
    for name, row in table.items():
        firsts = [sum(0 < one.rank <= depth for one in row) for depth in (1, 3, DEPTH)]
        snippets = sum(0 < one.rank <= 3 and 0 <= one.distance <= NEAR for one in row)
        print(name, *firsts, f"{snippets} of {firsts[1]}", snippets, len(row), sep="\t")
    for number, one in enumerate(known if given.each else ()):
        told = [f"{name} {row[number].rank or '-'} ({row[number].distance})" for name, row in table.items()]
        print(*told, one.question, sep="\t")


def first_answer(folder: Path, known: list[KnownAnswer]) -> tuple[float, float, float, float]:
    """Serve a folder that was never served; return seconds to page, search, answer, and of the processor."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as inside, socket.socket() as free:
        fresh = Path(inside) / folder.name
        shutil.copytree(
            folder, fresh, symlinks=True, copy_function=os.link, ignore=shutil.ignore_patterns(".rankhouse")
        )
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        text_of.cache_clear()
        address, began = f"http://127.0.0.1:{port}", time.monotonic()
        command = [sys.executable, "-m", "rankhouse", "up", str(fresh), "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
            try:
                page = 0.0
                while (status := status_of(f"{address}/readyz" if page else f"{address}/")) != 200:
                    if up.poll() is not None:
                        raise SystemExit(f"{' '.join(command)}: ended with {up.returncode}")
                    page = page or (time.monotonic() - began if status else 0.0)
                    time.sleep(0.05)
                search = time.monotonic() - began
                if not any(0 < asked(address, "", DEFAULT, one).rank <= 3 for one in known):
                    raise SystemExit(f"{folder}: no question has a right document in the first three")
                answer, processor = time.monotonic() - began, processor_seconds(up.pid)
            finally:
                up.terminate()
        with claimed(fresh):  # the process that watched the files has ended as well
            pass
        return page or search, search, answer, processor


def status_of(address: str) -> int:
    """Return the status of a page, 503 while files are read; 0 where nothing answers."""
    asked = urllib.request.Request(address, headers={"accept": "text/html"})
    try:
        with urllib.request.urlopen(asked) as page:
            return int(page.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def processor_seconds(pid: int) -> float:
    """Return the processor's seconds of a process and of those it has waited for (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def asked(service: str, index: str, system: str, known: KnownAnswer) -> HitPlace:
    """Ask one question of one system."""
    body = {"query": known.question, "k": DEPTH} | ({"index": index} if index else {})
    body |= {} if system == DEFAULT else {"system": system}
    answer = fetched(f"{service}/search", json.dumps(body).encode())
    for hit in answer["hits"]:
        for doc_id in (hit["id"], *hit.get("copies", ())):
            text = text_of(service, answer["index"], doc_id)
            if match := flexible(known.phrase).search(text):
                return HitPlace(hit["rank"], distance(text, match.span(), hit["snippet"]))
        if flexible(known.phrase).search(hit["title"]):
            return HitPlace(hit["rank"], 0)
    return HitPlace(0, -1)


def distance(text: str, phrase: tuple[int, int], snippet: str) -> int:
    """Return how many characters are between a snippet and a phrase; -1 for a snippet of no text."""
    found = flexible(snippet.strip("… ")).search(text) if snippet.strip("… ") else None
    if found is None:
        return -1
    return max(0, found.start() - phrase[1], phrase[0] - found.end())


def flexible(words: str) -> re.Pattern[str]:
    """Return what finds words whatever white space is between them, and whatever quotation marks."""
    pattern = r"\s+".join(map(re.escape, words.split()))
    return re.compile(re.sub("['’]", "['’]", re.sub('["“”]', '["“”]', pattern)), re.IGNORECASE)


@cache
def text_of(service: str, index: str, doc_id: str) -> str:
    """Return a document's text."""
    path = f"{urllib.parse.quote(index, safe='')}/{urllib.parse.quote(doc_id)}"
    return fetched(f"{service}/documents/{path}")["text"]


def fetched(address: str, body: bytes | None = None) -> Any:  # noqa: ANN401 - JSON
    """Return what the service answers."""
    asked = urllib.request.Request(address, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:  # "hybrid" before there are vectors, for example
        raise SystemExit(f"{address}: {error.read().decode()}") from None


if __name__ == "__main__":
    main()
