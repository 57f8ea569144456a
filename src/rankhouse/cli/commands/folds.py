"""rankhouse folds, group-split: queries are dealt into folds, or into parts that share no product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import click
import msgspec

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels, RelevantFrom, from_grade, restrict
from rankhouse.evaluation.folds import Folds, deal, divide, products, read_folds, write_folds
from rankhouse.io.corpora import read_documents, read_queries, write_queries
from rankhouse.io.files import SkipBad, Skips
from rankhouse.io.outputs import check_own_folder, only_writer, write_lines, writing
from rankhouse.io.trec import read_qrels, write_qrels
from rankhouse.page.tables import CommandResult, Table
from rankhouse.text.characters import WIDTHS


@verb("folds", "rankhouse folds --queries q.jsonl --folds 5 --seed 1 --out folds.json")
def command(
    *,
    queries: Annotated[str, Option("The queries to deal.", "source")],
    qrels: Annotated[Path | None, Option("Deal only queries that have judgements here.")] = None,
    folds: Annotated[int, Option("Number of folds.", least=2)] = 5,
    seed: Annotated[int, Option("Another seed gives other folds.", least=0, most=2**32 - 1)] = 0,
    given: Annotated[Path | None, Option("Check and take the folds of this file instead of dealing.")] = None,
    out: Annotated[Path, Option("The fold file to write (JSON).", "output")],
) -> CommandResult:
    """Deal queries into folds; the same queries and seed give the same folds on every machine.

    A fold file in which a query stands twice, or that lacks a query, is refused.
    """
    if given is not None:
        idle("the folds are those of --given", "folds", "seed")
    judged = None if qrels is None else read_qrels(qrels)
    ids = [query.id for query in read_queries(queries) if judged is None or query.id in judged]
    if not ids:
        raise WrongUse(f"no query of {queries} is left to deal; do --qrels belong to these queries?")
    result = deal(ids, folds, seed) if given is None else _checked(given, ids)
    write_folds(result, out)
    sizes = [len(fold) for fold in result.folds]
    message = f"{sum(sizes):,} queries in {len(sizes)} folds of {', '.join(map(str, sizes))}: {out}"
    return CommandResult({"folds": str(out), "sizes": sizes, "seed": result.seed}, message)


def _checked(path: Path, ids: list[str]) -> Folds:
    """Read someone else's folds, and make sure that they hold these queries."""
    given = read_folds(path)
    missing = sorted(set(ids) - set(given.query_ids))
    if missing:
        raise BadData(
            f"{len(missing)} queries are in no fold: {name_few(missing, 8)}; add them, or deal again", path
        )
    wanted = set(ids)
    parts = tuple(tuple(q for q in fold if q in wanted) for fold in given.folds)
    if not all(parts):
        empty = next(number for number, fold in enumerate(parts, 1) if not fold)
        raise BadData(f"fold {empty} holds none of these queries, so there is nothing to test on", path)
    return Folds(given.seed, parts)


SHARES = "first=0.25, second=0.25, third=0.25, test=0.25"


FIELDS: dict[str, Callable[[Document], str]] = {
    "title": lambda document: document.title or document.text,
    "all": lambda document: document.full_text,
}
"""Name -> which text of an entry is kept."""

_MARK = ".group-split"
"""Names a folder as one that this command made, and so may write into again."""


@verb(
    "group-split",
    "rankhouse group-split --corpus corpus.jsonl --queries queries.jsonl --qrels qrels.txt "
    '--shares "first=0.3, second=0.3, third=0.3, test=0.1" --seed 1 --out parts',
)
def group_split_command(
    *,
    corpus: Annotated[tuple[str, ...], Option("The catalogue's entries; may be repeated.", "source")],
    queries: Annotated[str, Option("Entries to find matches for.", "source")],
    qrels: Annotated[Path, Option("The known matches.")],
    shares: Annotated[str, Option("Part=share of the queries, with commas.")] = SHARES,
    field: Annotated[str, Option("The text of an entry: title or all.")] = "title",
    width: Annotated[str, Option("Characters' width: as-is, full or half.")] = "as-is",
    matched: Annotated[
        bool, Option("Leave out queries without a match (by default they are dealt as well).")
    ] = False,
    by: Annotated[
        str | None,
        Option("A key of queries or entries that names the product: product_id ...", metavar="KEY"),
    ] = None,
    test_queries: Annotated[
        str | None,
        Option(
            "Queries of your own as the part named test; no other part shares a product with them.", "source"
        ),
    ] = None,
    test_qrels: Annotated[Path | None, Option("Their matches.")] = None,
    seed: Annotated[int, Option("Of the deal.", least=0, most=2**32 - 1)] = 0,
    out: Annotated[Path, Option("The folder to write into.", "folder")],
    relevant_from: RelevantFrom = 1,
    skip_bad: SkipBad = 0,
) -> CommandResult:
    """Deal the queries of a catalogue into parts that share no product, and write its titles as a corpus.

    For each part NAME there will be NAME.queries.jsonl and NAME.qrels, beside them corpus.jsonl.gz. An entry
    is no match of itself: where a query is an entry of the corpus (same id, same text), that judgement is
    left out. Queries with a match or a text in common are of one product, and so are those joined by way of
    others; with --by, those with the same value of a key are, and nothing else joins them. A test set of your
    own takes the place of the part "test": the shares of the others are dealt out of what is apart from it.
    """
    if (test_queries is None) != (test_qrels is None):
        raise WrongUse("a test set of your own needs both --test-queries FILE and --test-qrels FILE")
    chosen, text_of = read_shares(shares), notation.choose(field, FIELDS, "field of an entry")
    written = notation.choose(width, WIDTHS, "width of characters")
    skips = Skips(skip_bad)
    asked = [Query(query.id, written(query.text)) for query in read_queries(queries, skips)]
    tested = [Query(q.id, written(q.text)) for q in read_queries(test_queries, skips)] if test_queries else []
    held_out = {query.id for query in tested}
    asked = [*(query for query in asked if query.id not in held_out), *tested]
    click.get_current_context().with_resource(only_writer(out))
    check_own_folder(out, (_MARK,))
    with writing(out / _MARK) as file:
        file.write("the result of rankhouse group-split\n")
    documents = read_documents(corpus, skips)
    number, own = _write_corpus(documents, lambda entry: written(text_of(entry)), out, asked)
    grades = {**read_qrels(qrels, skips), **(read_qrels(test_qrels, skips) if test_qrels else {})}
    judged = _matches(from_grade(grades, relevant_from), asked, own)
    console.report_skips(skips)
    if matched:
        asked = [query for query in asked if judged.get(query.id)]
    if not asked:
        raise BadData("no query is left to deal; do queries and judgements use the same ids?", qrels)
    keys = _keys(asked, judged, own) if by is None else _values(by, queries, corpus, asked)
    parts = _divide(keys, chosen, seed, even=judged, tested=held_out)
    if by is not None and (shared := _shared(parts, judged)):
        console.note(f"{shared:,} entries are matches of queries in several parts, whose {by} differ")
    rows = [_write_part(out, name, asked, part=part, judged=judged) for name, part in parts.items()]
    facts = {"entries": number, "own": len(own), "parts": [row._asdict() for row in rows]}
    table = Table(ProductRow._fields, tuple(tuple(map(str, row)) for row in rows))
    return CommandResult(facts, f"{number:,} entries and {len(rows)} parts written to {out}", [table])


def _divide(
    keys: dict[str, list[str]], shares: dict[str, float], seed: int, even: Iterable[str], tested: set[str]
) -> dict[str, tuple[str, ...]]:
    """Deal queries into parts; those that are tested form one, and what shares a product with them none."""
    if not tested:
        return divide(keys, shares, seed, even=even)
    shares = {name: share for name, share in shares.items() if name != "test"}
    total = sum(shares.values())
    apart = [q for queries in products(keys) if tested.isdisjoint(queries) for q in queries]
    parts = divide({q: keys[q] for q in apart}, {n: s / total for n, s in shares.items()}, seed, even=even)
    if left_out := len(keys) - len(tested) - len(apart):
        console.note(f"{left_out:,} queries share a product with a test query and are in no part")
    return parts | {"test": tuple(sorted(tested))}


class ProductRow(NamedTuple):
    """Contents of a part."""

    part: str
    queries: int
    matched: int
    matches: int


def read_shares(text: str) -> dict[str, float]:
    """Read ``first=0.5, test=0.5``; WrongUse for another form, a name given twice or no name of a file."""
    shares: dict[str, float] = {}
    for piece in text.split(","):
        name, equals, share = (word.strip() for word in piece.partition("="))
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if not equals or value <= 0 or not name.isidentifier() or name in shares:
            raise WrongUse(f'--shares "{piece.strip()}": write PART=SHARE, each part once, like  {SHARES}')
        shares[name] = value
    return shares


def _write_corpus(
    documents: Iterator[Document], text_of: Callable[[Document], str], out: Path, queries: list[Query]
) -> tuple[int, set[str]]:
    """Write the texts of all entries; return how many there are, and which queries are among them."""
    texts, own = {query.id: query.text.split() for query in queries}, set[str]()

    def records() -> Iterator[dict[str, str]]:
        for document in documents:
            text = text_of(document)
            if texts.get(document.id) == text.split():
                own.add(document.id)
            yield {"id": document.id, "text": text}

    return write_lines(out / "corpus.jsonl.gz", records()), own


def _matches(qrels: Qrels, queries: list[Query], own: set[str]) -> dict[str, Mapping[str, int]]:
    """Keep each query's matches with other entries than itself, in the order of the judgements."""
    matched = {
        query.id: {d: 1 for d, g in qrels.get(query.id, {}).items() if g > 0 and not (d == query.id in own)}
        for query in queries
    }
    return {query_id: matches for query_id, matches in matched.items() if matches}


def _keys(
    queries: list[Query], judged: Mapping[str, Mapping[str, int]], own: set[str]
) -> dict[str, list[str]]:
    """Return what joins queries to products: common matches, common words, being a match itself."""
    return {
        query.id: [
            " ".join(["text", *query.text.casefold().split()]),
            *(f"entry {doc_id}" for doc_id in (*judged.get(query.id, ()), *{query.id} & own)),
        ]
        for query in queries
    }


def _values(by: str, queries: str, corpus: tuple[str, ...], asked: list[Query]) -> dict[str, list[str]]:
    """Return each query's value of a key: its own record's, or that of the entry with its id."""
    # Queries are read as documents, which keep what else their records carry.
    by_query: dict[str, list[str]] = {}
    wanted = {query.id for query in asked}
    for sources in ((queries,), corpus):
        for record in read_documents(sources):
            if record.id in wanted and record.id not in by_query and by in record.extra:
                by_query[record.id] = [msgspec.json.encode(record.extra[by]).decode()]
    if missing := [query.id for query in asked if query.id not in by_query]:
        raise BadData(
            f'--by {by}: {len(missing):,} of {len(asked):,} queries have no "{by}", nor has an entry of '
            f'their id: "{missing[0]}" ...; name a key that every record has, or leave --by out'
        )
    return by_query


def _shared(parts: Mapping[str, tuple[str, ...]], judged: Mapping[str, Mapping[str, int]]) -> int:
    """Count entries that are matches of queries in several parts."""
    owners: dict[str, set[str]] = {}
    for name, part in parts.items():
        for query_id in part:
            for doc_id in judged.get(query_id, ()):
                owners.setdefault(doc_id, set()).add(name)
    return sum(len(names) > 1 for names in owners.values())


def _write_part(
    out: Path, name: str, queries: list[Query], part: tuple[str, ...], judged: Mapping[str, Mapping[str, int]]
) -> ProductRow:
    within = set(part)
    own = [query for query in queries if query.id in within]
    write_queries(own, out / f"{name}.queries.jsonl")
    matches = restrict(judged, [query.id for query in own])
    write_qrels(matches, out / f"{name}.qrels")
    counts = Counter({query_id: len(doc_ids) for query_id, doc_ids in matches.items()})
    return ProductRow(name, len(own), len(counts), counts.total())
