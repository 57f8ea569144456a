"""Why: explain a score, two of them, a ranking, a move."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from rankhouse.api.index import as_index
from rankhouse.core import notation
from rankhouse.core.arguments import checked
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query, Ranker
from rankhouse.explanation.contrast import Answer
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.explanation.report import ExplainResult
from rankhouse.index.index import Index
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.io.files import PathLike, as_path, wrong_kind
from rankhouse.io.inputs import QueriesLike, RunLike, as_list, as_queries, as_run, check_texts
from rankhouse.systems.execution import Execution, TextsAlone, before_ranker
from rankhouse.systems.explaining import TEXTS, Question, ask
from rankhouse.systems.names import choose_query, with_words
from rankhouse.systems.on_record import OnRecord, read_record
from rankhouse.systems.rankers import as_ranker
from rankhouse.systems.short_forms import as_whole, asked_form, is_dense, refuse_beside
from rankhouse.systems.stage import Stage, as_stage
from rankhouse.systems.system import RerankedSystem, System


@checked
def explain(
    ranker: System | str | os.PathLike[str] | Sequence[str] | Ranker,
    query: str | Query,
    documents: str | Document | Sequence[str | Document] | None = None,
    *,
    index: Index | PathLike | None = None,
    against: str = "",
    top: int | None = None,
    queries: QueriesLike | None = None,
    run: RunLike | None = None,
    first_stage: str | RunLike = "",
    before: RunLike | None = None,
    feedback: str = "",
    fusion: str = "",
    weights: Sequence[float] | None = None,
    k: int = 1000,
    split: str = "",
    pool: str = "",
    depth: int = 1000,
    method: str = "",
    unit: str = "",
    passes: int = 1024,
) -> ExplainResult:
    """Say why a document scores what it scores, why it stands above another, or why it moved.

    >>> import rankhouse as rh
    >>> index = rh.Index.build([{"id": "a", "text": "ships sail"}, {"id": "b", "text": "a ship sinks"}], "i")
    >>> why = rh.explain("bm25", "sailing ships", "a", index=index, against="b")
    >>> why.parts[0].name
    'sail'
    >>> why.save("why.html")

    Args:
        ranker: A system or its expression, a ranker or what :func:`open_ranker` opens, or a first stage,
            ``bm25``, or several.
        query: The question; with ``queries``, its id.
        documents: Ids of documents of the index; without one, texts or documents. Several are put in order.
        index: The index of the documents.
        against: The document that the first is compared with.
        top: The first so many documents of the ranking instead, and what separates them.
        queries: The texts of queries, for ``run`` and the like.
        run: The run that the ranker or model made; its numbers are compared with the ranker's.
        first_stage: The first stage that the ranker reranks: a model, or a run.
        before: An earlier run: why did the document move from there?
        feedback: Of the lexical models.
        fusion: How several models, and with them the ranker, are joined.
        weights: Of the fusion, the ranker's last.
        k: Documents a query of each model.
        split: How documents are cut; as for :func:`rerank`.
        pool: The pool of passages' scores; as for :func:`rerank`.
        depth: Documents of the first stage that the ranker reads.
        method: "removal", "shapley" or "gradients"; "" for what suits the ranker.
        unit: "sentence" or "word": what is left out at a time.
        passes: Most pairs scored for one document.

    Raises:
        WrongUse: An unknown document, query, model or method, or a run that another system made.
        MissingExtra: torch is not installed, and a ranker is to be explained.
    """
    asked, options = _query(query, queries), ExplainOptions(method, unit, passes)
    models: tuple[str, ...] = ()
    stage = None
    if (whole := as_whole(ranker)) is not None:
        refuse_beside(
            whole, explain, first_stage=first_stage, feedback=feedback, fusion=fusion, weights=weights, k=k,
            split=split, pool=pool, depth=depth,
        )  # fmt: skip
    else:
        models, stage = _split_ranker(ranker)
    if stage is not None:
        stage = replace(stage, split=split, pool=pool, depth=depth)
    if index is None:
        return ExplainResult(_of_texts(_texts(documents), stage, asked, against, options=options))
    record, first = _first_stage(first_stage)
    system = whole or asked_form(
        (*models, *first), feedback, fusion, weights, k=k, stage=stage, record=record
    )
    earlier, found = _record(before, "the earlier run"), before_ranker(system)
    if earlier is not None and found is not None and first:
        earlier = earlier.made_by(found)
    if top is not None and top < 1:
        raise WrongUse(f"top={top}: ask for 1 document or more")
    named = () if top is not None else _ids(documents)
    question = Question(named, against, top, run=_record(run, "the run"), before=earlier, options=options)
    return ExplainResult(ask(Execution(as_index(index), [asked]), system, question))


def _of_texts(
    texts: list[Document], stage: Stage | None, query: Query, against: str, options: ExplainOptions
) -> Answer:
    """Explain a ranker that reads documents which are in no index."""
    if stage is None:
        raise WrongUse("a first stage needs an index: its words are counted there; give index=")
    held = TextsAlone({text.id: text for text in texts})
    question = Question(tuple(text.id for text in texts), against, options=options)
    return ask(Execution(held, [query]), RerankedSystem(TEXTS, stage), question)


def _query(given: str | Query, queries: QueriesLike | None) -> Query:
    if isinstance(given, Query):
        return with_words(given)
    if not isinstance(given, str):
        raise wrong_kind("query", given, "a text, or a Query")
    if queries is None:
        return with_words(Query("query", given))
    return with_words(choose_query(given, as_queries(queries), "queries"))


def _split_ranker(given: object) -> tuple[tuple[str, ...], Stage | None]:
    """Return the models that are named, or the ranker."""
    if isinstance(given, str) and is_model(given):
        return (given,), None
    if isinstance(given, list | tuple):
        names = as_list(given, "ranker", "a ranker, a model, or several models")
        check_texts("the models", names)
        return tuple(names), None
    if isinstance(given, str | os.PathLike):
        return (), as_stage(str(given))
    return (), as_stage(as_ranker(given))  # type: ignore[arg-type]  # as_ranker refuses what is no ranker


def _first_stage(given: str | RunLike) -> tuple[OnRecord | None, tuple[str, ...]]:
    if isinstance(given, str) and (not given or is_model(given) or as_whole(given) is not None):
        return None, (given,) if given else ()
    return _record(given, "the first stage"), ()


def is_model(text: str) -> bool:
    """Return whether a notation names a first stage, not a ranker."""
    try:
        return is_dense(text) or notation.parse(text).name in WEIGHTINGS
    except WrongUse:
        return False


def _record(given: RunLike | None, name: str) -> OnRecord | None:
    """Return a run with its name and tag; a run that is no file has no tag."""
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        return read_record(as_path(given, name))
    return OnRecord(as_run(given), name)


def _ids(documents: object) -> tuple[str, ...]:
    given = [documents] if isinstance(documents, str | Document) else documents
    if given is None:
        raise WrongUse("no document is named; give its id, several, or top=N for the first N of the ranking")
    ids = [one.id if isinstance(one, Document) else one for one in as_list(given, "documents", "ids")]  # type: ignore[arg-type]
    check_texts("the documents", ids)
    if not ids:
        raise WrongUse("documents is empty; give one id or more")
    return tuple(ids)


def _texts(documents: object) -> list[Document]:
    """Return documents that are given themselves; a bare text's id is its place, from "0"."""
    if documents is None:
        raise WrongUse("no document is given; without an index, give its text or a Document")
    given = [documents] if isinstance(documents, str | Document) else as_list(documents, "documents", "texts")  # type: ignore[arg-type]
    texts = [Document(str(place), one) if isinstance(one, str) else one for place, one in enumerate(given)]
    for one in texts:
        if not isinstance(one, Document):
            raise wrong_kind("one of documents", one, "a text or a Document")
    if not texts or len({one.id for one in texts}) < len(texts):
        raise WrongUse("documents is empty or has an id twice; give each document an id of its own")
    return texts
