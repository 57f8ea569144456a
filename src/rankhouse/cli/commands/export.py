"""rankhouse export: rankers for sentence-transformers and the hub, postings for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import Query
from rankhouse.core.progress import counted
from rankhouse.index.impacts.ciff import query_terms, write_impacts
from rankhouse.index.impacts.impacts import Impacts, QueryWeigher, impacts_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.ciff import write_index
from rankhouse.io.corpora import read_queries
from rankhouse.io.outputs import writing
from rankhouse.page.tables import CommandResult
from rankhouse.systems.execution import Execution
from rankhouse.systems.notation import system
from rankhouse.systems.rankers import source_of
from rankhouse.systems.system import Sparse


@verb("export", "rankhouse export mine --license apache-2.0 --data 'SciFact, CC BY 4.0' --out for-others")
def command(
    *,
    ranker: Annotated[str, Option("The ranker.", "source", positional=True)] = "",
    index: Annotated[Path | None, Option("In place of RANKER: an index, whose postings are written.")] = None,
    impacts: Annotated[
        str | None,
        Option("In place of its terms: what a sparse encoder gave it, as 'sparse(\"DIR\")'.", beside="index"),
    ] = None,
    queries: Annotated[
        str | None,
        Option(
            "Write these queries as terms in place of the impacts, id <tab> terms.",
            "source",
            beside="impacts",
        ),
    ] = None,
    out: Annotated[
        Path, Option("The folder to make; of an index, the file, which .gz or .zst compresses.", "local")
    ],
    license_id: Annotated[
        str, Option("By the hub's list: apache-2.0 ...; without it the card says TODO.", flag="--license")
    ] = "",
    data: Annotated[str, Option("Its training data and their terms, for the card.")] = "",
    base_model: Annotated[
        str, Option("What it began with, OWNER/NAME.", default="as the training's command says")
    ] = "",
    language: Annotated[tuple[str, ...], Option("Of its texts: en; repeat for more.")] = (),
    scale: Annotated[
        float, Option("Impacts are written as whole numbers: times this, rounded.", beside="impacts")
    ] = 100.0,
    to: Annotated[str, Option("Also upload the folder to the hub, as OWNER/NAME.")] = "",
    overwrite: Annotated[
        bool, Option("Add a commit where that repository is there already.", beside="to")
    ] = False,
) -> CommandResult:
    """Write RANKER for sentence-transformers, transformers and the hub, or an index for other engines.

    A cross-encoder, bi-encoder or monoT5 keeps its scores there; README.md is its model card: data, command,
    numbers with intervals, limits. An index (--index) becomes a CIFF file, which Anserini, PISA, Terrier and
    others import, and  rankhouse index --ciff  does, too; with --impacts, one of a sparse encoder's weights,
    and with --queries what it makes of these: each term as often as its weight says.
    """
    if index is None:
        if not ranker:
            raise WrongUse("name what to export: a ranker, or an index with --index")
        if (Path(ranker) / "segments").is_dir():
            raise WrongUse(f"{ranker}: is an index; write  rankhouse export --index {ranker} --out FILE")
        said = {"license": license_id, "data": data, "base_model": base_model, "language": language}
        return _ranker_exported(ranker, out, said, to=to, overwrite=overwrite)
    about = "an index becomes one file without a model card"
    idle(about, "license_id", "data", "base_model", "language", "to", "overwrite")
    if ranker:
        raise WrongUse(f'"{ranker}" and --index exclude each other: one of them is exported at a time')
    if out.resolve().is_relative_to(index.resolve()):
        raise WrongUse(f"--out {out}: lies in the index itself; write the file elsewhere")
    if impacts is None:
        return _index_exported(index, out)
    if scale <= 0:
        raise WrongUse(f"--scale {scale:g}: must be a positive number")
    held, encoder = _impacts_of(index, impacts)
    if queries is not None:
        return _queries_exported(read_queries(queries), encoder, out, scale)
    with console.progress("exporting", None, "words") as show:
        written = write_impacts(held, encoder, out, scale=scale, progress=show)
    facts = {"out": str(out), "documents": len(held), "entries": written, "scale": scale}
    message = f"impacts of {counted(len(held), 'document')}, times {scale:g}, written to {out}"
    return CommandResult(facts, message)


def _ranker_exported(
    ranker: str, out: Path, said: dict[str, Any], *, to: str, overwrite: bool
) -> CommandResult:
    """Write a ranker and its card; upload both where that is asked for."""
    with needs("neural", "export"):
        from rankhouse.hosts.model_card import ModelCard, upload
        from rankhouse.hosts.sentence_transformers import save
    save(ranker, out, card=ModelCard(**said), name=to)
    left = (out / "README.md").read_text(encoding="utf-8").count("TODO")
    if left:
        console.note(f"{out / 'README.md'}: {left} places say TODO; fill them in before you share it")
    address = upload(out, to, overwrite=overwrite) if to else ""
    facts = {"folder": str(out), "todo": left, "address": address}
    return CommandResult(facts, f"written: {out}" + (f", uploaded to {address}" if to else ""))


def _index_exported(index: Path, out: Path) -> CommandResult:
    """Write the postings, ids and lengths of an index; texts and vectors are not in such a file."""
    held = Index.open(index)
    with console.progress("exporting", held.distinct_terms(), "terms") as show:
        write_index(held, out, show)
    facts = {"out": str(out), "documents": len(held), "tokens": held.collection.tokens}
    return CommandResult(
        facts, f"{counted(len(held), 'document')}, {counted(held.collection.tokens, 'term')} written to {out}"
    )


def _impacts_of(index: Path, asked: str) -> tuple[Impacts, QueryWeigher]:
    """Open what a sparse encoder gave an index, and the encoder."""
    model = system(asked)
    if not isinstance(model, Sparse):
        raise WrongUse(f'--impacts {asked}: is no sparse encoder; name one like  sparse("DIR")')
    held, impacts = Index.open(index), Impacts.open(impacts_folder(index, model.name))
    impacts.require_all(held)
    encoder = Execution(held, ()).weigher(model, impacts)
    if impacts.state.source != source_of(model.ranker):  # equal: only the precision may differ
        impacts.require_encoder(encoder)
    return impacts, encoder


def _queries_exported(queries: list[Query], encoder: QueryWeigher, out: Path, scale: float) -> CommandResult:
    """Write queries as terms, but those of which none is left."""
    with console.progress("exporting", len(queries), "queries") as show, writing(out) as file:
        terms, left = 0, 0
        for done, (query_id, text) in enumerate(query_terms(encoder, queries, scale), 1):
            if text:
                file.write(f"{query_id}\t{text}\n")
                terms, left = terms + text.count(" ") + 1, left + 1
            show(done)
        if not left:
            raise WrongUse(f"--scale {scale:g}: every weight rounds to 0; give a larger one")
    if lost := len(queries) - left:
        console.note(
            f"left out: {counted(lost, 'query', 'queries')} without text, or with weights that all round to 0"
        )
    facts = {"out": str(out), "queries": left, "terms": terms, "scale": scale}
    return CommandResult(
        facts,
        f"{counted(left, 'query', 'queries')} as {counted(terms, 'term')}, "
        f"weights times {scale:g}, written to {out}",
    )
