"""Search with lexical and dense models, fused where there are several: what the command and Python share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rankhouse.core import notation
from rankhouse.core.nouns import Query
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.results import SearchResult
from rankhouse.core.run import Ranking, Run
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.index.parts.parted_index import AnyIndex
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.systems.rankers import ComputeOptions, DenseModel, dense_run, is_dense
from rankhouse.text.snippets import snippet

LOOKED_AT = 100_000
"""Characters of a document, from its beginning, among which the stretch to show is chosen."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
        models: In notation; several are fused.
        feedback: Of the lexical models, in notation; "" for none.
        fusion: How several runs become one, in notation.
        k: Documents a query.
        compute: How to compute.
    """

    models: tuple[str, ...] = ("bm25",)
    feedback: str = ""
    fusion: str = "rrf"
    k: int = 1000
    compute: ComputeOptions = field(default_factory=ComputeOptions)


def search_with(
    index: AnyIndex,
    queries: Sequence[Query],
    options: SearchOptions,
    show: Callable[[str], Progress] = lambda _: ignore,
) -> Run:
    """Search with every model, and fuse where there are several.

    Raises:
        WrongUse: An unknown model, feedback or fusion.
    """
    fusion = notation.make(options.fusion, FUSIONS, "method of fusion")
    runs = []
    for model in options.models:
        if is_dense(model):
            dense = DenseModel.parse(model)
            runs.append(dense_run(index, dense, queries, options.k, options.compute, show(model)))
        else:
            lexical = lexical_options(model, options.feedback, options.k, options.compute.threads)
            runs.append(retrieve(index, queries, lexical, show(model)))
    return runs[0] if len(runs) == 1 else fusion(runs).top(options.k)


def lexical_options(model: str, feedback: str, k: int, threads: int) -> LexicalOptions:
    """Return how to search with a model that is not dense.

    Args:
        feedback: In notation; "" for none.
        threads: Queries at a time; 0 for the processor's number.

    Raises:
        WrongUse: There is no such model; names dense ones too.
    """
    notation.choose(notation.parse(model).name, {**WEIGHTINGS, "dense": DenseModel}, "model")
    return LexicalOptions(model, feedback, k, threads)


def with_snippets(index: AnyIndex, question: str, ranking: Ranking) -> SearchResult:
    """Return a ranking with each document's title and the stretch of its text that answers best."""
    weights = {t: 1 / (1 + index.counts(t).documents) ** 0.5 for t in dict.fromkeys(index.analyzer(question))}
    documents = index.documents.fetch(ranking.doc_ids)
    shown = ((d.title, *snippet(d.text[:LOOKED_AT], weights, index.analyzer)) for d in documents)
    return SearchResult(ranking, list(shown))
