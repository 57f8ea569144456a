"""Build an index of the documents on standard input: search-benchmark-game's first executable.

    python benchmarks/arena/build_index.py OUT [--engine tantivy] < corpus.json

The corpus is JSON lines of {"id", "text"}, words in lower case with white space between.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def rankhouse(out: Path) -> None:
    """Build ours; texts are kept as for every index."""
    from rankhouse.core.nouns import Document
    from rankhouse.index.lexical.build import BuildOptions, build

    records = map(json.loads, sys.stdin)
    documents = (Document(str(record["id"]), record["text"]) for record in records)
    build(documents, out, BuildOptions("whitespace", workers=1, segment_tokens=1 << 27))


def tantivy(out: Path) -> None:
    """Build tantivy's by one thread, with positions for phrases."""
    import tantivy as engine

    out.mkdir(parents=True)
    index = engine.Index(schema(), path=str(out))
    writer = index.writer(heap_size=300_000_000, num_threads=1)
    for line in sys.stdin:
        record = json.loads(line)
        writer.add_document(engine.Document(id=str(record["id"]), text=record["text"]))
    writer.commit()
    writer.wait_merging_threads()


def schema() -> object:
    """Return what tantivy indexes: words as they stand."""
    import tantivy as engine

    builder = engine.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("text", stored=False, tokenizer_name="whitespace", index_option="position")
    return builder.build()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--engine", choices=("rankhouse", "tantivy"), default="rankhouse")
    options = parser.parse_args()
    {"rankhouse": rankhouse, "tantivy": tantivy}[options.engine](options.out)
