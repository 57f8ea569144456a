"""Are rankings what they were? Runs written by one version, compared byte for byte by another.

    python benchmarks/same_rankings.py write   COLLECTIONS RUNS     # with the version to be held to
    python benchmarks/same_rankings.py compare COLLECTIONS RUNS     # with the version to be tried

COLLECTIONS has folders NAME with corpus.jsonl.gz and queries[.SPLIT].jsonl. For each of five: five models,
RM3 on and off, k 10, 100 and 1000, one segment and several; of the first four fifths of the documents, of
all (the last fifth appended), and after a seventh was deleted and an eleventh replaced. ``write`` builds
that last state afresh, so it needs no version that can delete; ``compare`` appends, deletes and replaces in
place.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rankhouse.core.nouns import Document, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.corpora import read_documents, read_queries

NAMES = ("cacm", "cranfield", "nfcorpus", "scifact", "vaswani")
MODELS = ("bm25", "ql", "jm", 'ql(form="indri")', 'bm25(k1=1.2, b=0.75, lengths="exact")')
DEPTHS = (10, 100, 1000)
SEGMENTS = (1, 4)
STATES = ("begun", "appended", "changed")


def changed(documents: list[Document]) -> list[Document]:
    """Leave out every seventh document; every eleventh gets the text of another, and stands at the end."""
    kept = [d for i, d in enumerate(documents) if i % 7 and i % 11]
    return kept + [
        Document(d.id, documents[-i].text, documents[i // 2].title)
        for i, d in enumerate(documents)
        if i % 7 and not i % 11
    ]


def build_in(documents: list[Document], out: Path, segments: int) -> None:
    """Build an index of so many segments."""
    size = -(-len(documents) // segments)
    for start in range(0, len(documents), size):
        (append if start else build)(documents[start : start + size], out, BuildOptions(workers=1))


def states(documents: list[Document], out: Path, segments: int, *, new: bool) -> Iterator[tuple[str, Index]]:
    """Yield the index in each of its states."""
    begun = documents[: len(documents) * 4 // 5]
    build_in(begun, out, segments)
    yield "begun", Index.open(out)
    append(documents[len(begun) :], out, BuildOptions(workers=1))
    yield "appended", Index.open(out)
    if new:
        build_in(changed(documents), out.with_name("changed"), segments)
        yield "changed", Index.open(out.with_name("changed"))
    else:
        from rankhouse.index.lexical.build import delete

        delete([d.id for i, d in enumerate(documents) if not i % 7], out)
        kept = sum(1 for i in range(len(documents)) if i % 7 and i % 11)
        append(changed(documents)[kept:], out, BuildOptions(workers=1), update=True)
        yield "changed", Index.open(out)


def content(index: Index, queries: list[Query], options: LexicalOptions) -> bytes:
    """Return a run as bytes: ids and float32 scores of every query."""
    run = retrieve(index, queries, options)
    return b"".join(
        b"\0".join([query.encode(), *(i.encode() for i in run[query].doc_ids), run[query].scores.tobytes()])
        for query in run
    )


def runs(collections: Path, *, new: bool) -> Iterator[tuple[str, bytes]]:
    """Yield all runs, each with its name."""
    for name in NAMES:
        folder = collections / name
        documents = list(read_documents([folder / "corpus.jsonl.gz"]))
        queries = read_queries(min(folder.glob("queries*.jsonl"), key=lambda path: path.stat().st_size))
        for segments in SEGMENTS:
            with tempfile.TemporaryDirectory() as scratch:
                for state, index in states(documents, Path(scratch) / "index", segments, new=new):
                    for model in MODELS:
                        for feedback in ("", "rm3"):
                            for k in DEPTHS:
                                options = LexicalOptions(model, feedback, k)
                                label = f"{name} {segments} {state} {model} {feedback or '-'} {k}"
                                yield label, content(index, queries, options)


def main() -> None:
    """Write runs, or compare them."""
    job, collections, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    different = total = 0
    for name, run in runs(collections, new=job == "write"):
        path = folder / f"{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}.run"
        if job == "write":
            path.write_bytes(run)
        else:
            total += 1
            if path.read_bytes() != run:
                different += 1
                print(f"DIFFERENT: {name}", flush=True)
    if job != "write":
        print(f"{total - different} of {total} runs are the same bytes")
        sys.exit(different > 0)


if __name__ == "__main__":
    main()
