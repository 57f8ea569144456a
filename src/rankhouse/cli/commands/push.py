"""rankhouse push: an index's documents, vectors and impacts into a database or search engine."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option
from rankhouse.index.index import Index
from rankhouse.page.tables import CommandResult
from rankhouse.stores.names import open_store
from rankhouse.stores.push import PushOptions, push


@verb(
    "push",
    'rankhouse push --index my.index --to \'qdrant("http://localhost:6333", '
    'collection="papers")\' --impacts "bm25(k1=0.9, b=0.4)" --vectors default',
)
def command(
    *,
    index: Annotated[Path, Option("The index folder.")],
    store: Annotated[str, Option("qdrant(URL, collection=NAME), lancedb(...), milvus(...) ...", flag="--to")],
    impacts: Annotated[
        str, Option('Also posting weights of "bm25(k1=0.9, b=0.4)", ql or jm, or of an encoder: sparse.')
    ] = "",
    vectors: Annotated[str, Option('Also vectors that encode stored under this name: "default".')] = "",
    texts: Annotated[bool, Option("Titles and texts too.", default="with them")] = True,
    overwrite: Annotated[bool, Option("Replace a collection that holds something else.")] = False,
) -> CommandResult:
    """Push an index into a store that you run: documents, vectors, and a retrieval model as sparse vectors.

    Pushing again changes nothing; after a kill it resumes. A collection that holds something
    else is left alone unless --overwrite is given. Keys and passwords are read from the environment.
    """
    held = Index.open(index)
    options = PushOptions(impacts, vectors, texts, overwrite)
    started = time.perf_counter()
    with closing(open_store(store)) as target, console.progress("pushing", None) as show:
        result = push(held, target, options, show)
        name = target.name
    seconds, contents = time.perf_counter() - started, result.contents
    if result.collisions:
        console.note(
            f"{result.collisions:,} terms share the number of their dimension with another term; a document "
            "may get the other one's weight"
        )
    facts = {
        "store": name, "documents": contents.documents, "records": contents.records,
        "written": result.written, "impacts": contents.impacts, "dimension": contents.dimension,
        "collisions": result.collisions, "seconds": round(seconds, 3),
    }  # fmt: skip
    kept = contents.records - result.written
    there = f" ({kept:,} were there already)" if kept else ""
    return CommandResult(facts, f"{result.written:,} records written{there} to {name}, {seconds:.1f} s")
