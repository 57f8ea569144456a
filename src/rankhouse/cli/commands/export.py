"""rankhouse export: an index's postings for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option
from rankhouse.index.index import Index
from rankhouse.index.lexical.ciff import write_index
from rankhouse.page.tables import CommandResult


@verb("export", "rankhouse export --index my.index --out my.ciff.gz")
def command(
    *,
    index: Annotated[Path, Option("The index folder.")],
    out: Annotated[Path, Option("The file to write; .gz and .zst compress it.", "output")],
) -> CommandResult:
    """Write an index's terms, postings, ids and lengths as a CIFF file, which other engines import.

    Anserini, PISA, Terrier, OldDog and others read the Common Index File Format; rankhouse
    index --ciff  does, too. Texts, vectors and impacts of encoders are not in it.
    """
    held = Index.open(index)
    with console.progress("exporting", held.distinct_terms(), "terms") as show:
        write_index(held, out, show)
    facts = {"out": str(out), "documents": len(held), "tokens": held.collection.tokens}
    return CommandResult(facts, f"{len(held):,} documents, {held.collection.tokens:,} terms written to {out}")
