"""Collections from other packages: those of ir_datasets by their ids, and readers by the ending of a file.

``ir_datasets:beir/scifact/test`` names a public collection; readers are said in docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rankhouse.core.errors import BadData, MissingInput, RankhouseError, WrongUse, needs
from rankhouse.core.notation import entries, load
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels
from rankhouse.io.files import checked_id, kind_of

PUBLIC = "ir_datasets:"
"""Prefix of the names of public collections."""


_NAMES: Final = {"docs": "documents", "queries": "queries", "qrels": "judgements"}


def _ir_dataset(name: str, part: str) -> Any:  # noqa: ANN401 - an untyped library's object
    """Return a collection that has a part, "docs", "queries" or "qrels"."""
    with needs("datasets", f"{PUBLIC}{name}"):
        import ir_datasets  # noqa: PLC0415 - an optional package
    try:
        dataset = ir_datasets.load(name)
    except KeyError as error:
        raise WrongUse(f'ir_datasets knows no collection "{name}"; see https://ir-datasets.com') from error
    if not getattr(dataset, f"has_{part}")():
        raise WrongUse(
            f'"{PUBLIC}{name}" has no {_NAMES[part]}; name one that has, see https://ir-datasets.com'
        )
    return dataset


def count_public(name: str) -> int:
    """Count the documents of a public collection.

    Raises MissingExtra: ir_datasets is not installed; WrongUse: it knows no such collection, or that one has
    no documents.
    """
    return int(_ir_dataset(name, "docs").docs_count() or sum(1 for _ in _rows(name, "docs")))


def _rows(name: str, part: str) -> Iterator[Any]:
    """Stream a part of a collection; MissingInput if it cannot be fetched or read."""
    with needs("datasets", f"{PUBLIC}{name}"):
        yield from records_of(_ir_dataset(name, part), part, name)


def records_of(dataset: Any, part: str, name: str = "") -> Iterator[Any]:  # noqa: ANN401 - as above
    """Stream a part of a collection of ir_datasets that was loaded; MissingInput as for others."""
    try:
        yield from getattr(dataset, f"{part}_iter")()
    except (OSError, RuntimeError) as error:  # the latter where each of several sources failed
        reason = str(error).strip().partition("\n")[0]
        raise MissingInput(
            f"{PUBLIC}{name or dataset.dataset_id()}: ir_datasets cannot fetch or read it "
            f"({type(error).__name__}: {reason:.200}); "
            "connect to the network, or put its files where https://ir-datasets.com says"
        ) from error


def public_documents(name: str) -> Iterator[Document]:
    """Stream the documents of a public collection; raises as :func:`count_public` does."""
    for record in _rows(name, "docs"):
        yield document_of(record, Path(name))


def document_of(record: Any, path: Path | None = None) -> Document:  # noqa: ANN401 - one class a collection
    """Return the document of a record of ir_datasets, a named tuple with "doc_id"; BadData for an odd id."""
    fields = record._asdict()
    doc_id, title = fields.pop("doc_id"), str(fields.pop("title", "") or "")
    main = next((name for name in ("text", "body") if name in fields), "")
    fields.pop("marked_up_doc", None)  # the same text again, with its tags
    text = fields.pop(main) if main else record.default_text()
    return Document(checked_id(doc_id, path, 0 if path else None), str(text or ""), title, fields)


def query_of(record: Any, field: str = "") -> Query:  # noqa: ANN401 - as above
    """Return the query of a record of ir_datasets: its text, or that of a field."""
    return Query(record.query_id, getattr(record, field) if field else record.default_text())


def qrels_of(name: str) -> Qrels:
    """Read the judgements of a public collection.

    Raises MissingExtra: ir_datasets is not installed; WrongUse: it knows no such collection, or that one has
    no judgements.
    """
    qrels: dict[str, dict[str, int]] = {}
    for judged in _rows(name, "qrels"):
        qrels.setdefault(judged.query_id, {})[judged.doc_id] = int(judged.relevance)
    return qrels


def public_queries(name: str, field: str = "") -> list[Query]:
    """Read the queries of a public collection; raises as :func:`count_public` does."""
    asked = list(_rows(name, "queries"))
    if field and asked and field not in asked[0]._fields:
        raise WrongUse(
            f'queries of "{PUBLIC}{name}" have no "{field}"; they have {", ".join(asked[0]._fields)}'
        )
    return [query_of(record, field) for record in asked]


GROUP = "rankhouse.readers"
"""Entry points named by the ending without its dot; each a function from a path to documents."""


def installed_endings() -> list[str]:
    """List the endings that installed packages read."""
    return [f".{name}" for name in entries(GROUP)]


def has_reader(path: Path) -> bool:
    """Return whether an installed package reads files of this ending."""
    return kind_of(path)[1:] in entries(GROUP)


def installed_documents(path: Path) -> Iterator[tuple[int, Document]]:
    """Stream (place, document) of a file; BadData if the reader fails, or gives something else."""
    ending = kind_of(path)
    try:
        for place, document in enumerate(load(GROUP, ending[1:])(path), 1):
            if not isinstance(document, Document):
                raise BadData(
                    f"the reader of {ending} gave {document!r:.60}; it must give Documents", path, place
                )
            checked_id(document.id, path, place)
            yield place, document
    except (RankhouseError, OSError):
        raise
    except Exception as error:
        reason = (
            f"the reader of {ending} failed ({type(error).__name__}: {error}); mend the file, or the reader"
        )
        raise BadData(reason, path) from error
