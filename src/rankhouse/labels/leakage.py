"""The guard: a teacher must not label what its student is tested on, and train and test must be apart.

QA-DocRank keeps its teacher off every test set, since a teacher may have been trained on the test's own
questions; what it says of them would leak. Queries are the same here if their words are, whatever their ids,
case, width, accents' form or punctuation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from rankhouse.core.errors import WrongUse, name_few
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels, relevant
from rankhouse.core.sameness import Texts, normalised, same_queries
from rankhouse.labels.leaf_rules import teachers
from rankhouse.labels.rules import Rule


class QuerySet(NamedTuple):
    """Training data, or test data."""

    queries: Collection[Query] = ()
    qrels: Qrels = MappingProxyType({})


class Overlap(NamedTuple):
    """Overlap of training and test data.

    Attributes:
        queries: (training query id, test query id) of queries with the same words.
        ids: Query ids of both where the words do not decide, since one side gives none.
        documents: Ids of documents that are relevant in both.
        copies: (training document id, test document id) of relevant documents with the same words.
        pairs: (training query id, test query id, document id) where a pair is judged relevant in both.
    """

    queries: tuple[tuple[str, str], ...]
    ids: tuple[str, ...]
    documents: tuple[str, ...]
    copies: tuple[tuple[str, str], ...]
    pairs: tuple[tuple[str, str, str], ...]

    @property
    def leaks(self) -> bool:
        """Return whether a query, or a pair, is on both sides; documents of one collection may well be."""
        return bool(self.queries or self.ids or self.pairs)

    def rows(self) -> list[tuple[str, int, str]]:
        """Return table rows: what, how many, the first few."""
        groups: dict[str, list[str]] = {
            "queries with the same words": [" = ".join(ids) for ids in self.queries],
            "queries with the same id": list(self.ids),
            "relevant documents in both": list(self.documents),
            "relevant documents with the same words": [" = ".join(ids) for ids in self.copies],
            "relevant pairs in both": [f"{query_id} {doc_id}" for query_id, _, doc_id in self.pairs],
        }
        return [(name, len(group), name_few(group, 3)) for name, group in groups.items()]


def overlap(train: QuerySet, test: QuerySet, documents: Mapping[str, Document] | None = None) -> Overlap:
    """Find what training and test data have in common.

    Args:
        documents: Their texts; where given, relevant documents with other ids but the same words are found.
    """
    same = list(same_queries(train.queries, test.queries))
    texts = [{q.id for q in side.queries if normalised(q.text)} for side in (train, test)]
    # Two files often number their queries alike, so an id says something only where a text is missing.
    ids = [(p.qrels.keys() | {q.id for q in p.queries}) for p in (train, test)]
    same_ids = tuple(sorted((ids[0] & ids[1]) - (texts[0] & texts[1])))
    wanted = [_relevant(side.qrels) for side in (train, test)]
    alike = [*same, *((i, i) for i in same_ids)]
    return Overlap(
        tuple(same),
        same_ids,
        tuple(d for d in wanted[0] if d in wanted[1]),
        tuple(_copies(wanted[0], wanted[1], documents or {})),
        pairs=tuple(
            (a, b, doc_id)
            for a, b in alike
            for both in [relevant(train.qrels, a) & relevant(test.qrels, b)]
            for doc_id in train.qrels.get(a, {})
            if doc_id in both
        ),
    )


def keep_apart(rule: Rule, queries: Iterable[Query], test: QuerySet, *, allow_test: bool = False) -> Overlap:
    """Refuse to label test queries with a teacher.

    Raises:
        WrongUse: The rule asks a teacher, a query is among the test queries, and nobody allowed it.
    """
    shared = overlap(QuerySet(tuple(queries)), test)
    asked = teachers(rule)
    if asked and (shared.queries or shared.ids) and not allow_test:
        ids = [*(a for a, _ in shared.queries), *shared.ids]
        raise WrongUse(
            f"{len(ids):,} of the queries to be labelled are test queries ({name_few(ids, 3)}), and the "
            f"rule asks a teacher ({asked[0]}), which may know their answers: what it says would leak into "
            "the test. Take them out of the queries and the run, or allow it explicitly (allow_test=True in "
            "Python, --allow-test on the command line)"
        )
    return shared


def _relevant(qrels: Qrels) -> dict[str, None]:
    return dict.fromkeys(d for q in qrels for d, grade in qrels[q].items() if grade > 0)


def _copies(
    train: Iterable[str], test: Iterable[str], documents: Mapping[str, Document]
) -> Iterable[tuple[str, str]]:
    known = Texts((doc_id, documents[doc_id].full_text) for doc_id in test if doc_id in documents)
    for doc_id in train:
        others = known.named(documents[doc_id].full_text) if doc_id in documents else ()
        yield from ((doc_id, other) for other in others if other != doc_id)
