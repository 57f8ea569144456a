"""rankhouse push, pull: an index goes to a database or search engine, and its answers become a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.commands.search import warn_of_empty
from rankhouse.cli.options import idle, verb, was_given
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import as_given
from rankhouse.core.nouns import Query
from rankhouse.core.progress import Progress, counted, ignore
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.io.corpora import read_queries
from rankhouse.io.outputs import write_lines
from rankhouse.io.trec import write_run
from rankhouse.page.tables import CommandResult
from rankhouse.stores.names import open_store
from rankhouse.stores.pull import pull_dense, pull_documents, pull_impacts, pull_sparse, pull_text
from rankhouse.stores.push import PushOptions, push
from rankhouse.stores.store import Store
from rankhouse.systems.execution import Execution, TextsAlone
from rankhouse.systems.notation import system as read_system
from rankhouse.systems.rankers import ComputeOptions, as_weigher, sparse_spec
from rankhouse.systems.short_forms import cut, first_stage, is_dense, is_sparse
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import Dense, FirstStage, Lexical, RerankedSystem, Sparse, System


@verb(
    "push",
    'rankhouse push --index my.index --to \'qdrant("http://localhost:6333", '
    'collection="papers")\' --impacts "bm25(k1=0.9, b=0.4)" --vectors default',
)
def push_command(
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
    return CommandResult(
        facts, f"{counted(result.written, 'record')} written{there} to {name}, {seconds:.1f} s"
    )


@verb(
    "pull",
    'rankhouse pull --from \'qdrant("http://localhost:6333", collection="papers")\' '
    "--queries q.tsv --out first.run",
)
def pull_command(
    *,
    store: Annotated[
        str, Option("qdrant(URL, collection=NAME), lancedb(...), milvus(...) ...", flag="--from")
    ],
    queries: Annotated[str, Option("Queries: .jsonl, .tsv, TREC topics, or ir_datasets:NAME.", "source")],
    field: Annotated[str, Option("The text field of the queries, if they have several.")] = "",
    model: Annotated[
        str,
        Option(
            "impacts (as pushed), text (the store's own search), dense(RANKER) or sparse(RANKER).", "source"
        ),
    ] = "impacts",
    system: Annotated[
        str | None,
        Option(
            'In place of --model, an expression: "(bm25 + dense(R)) % 100 >> R"; rankers read what is there.',
            "source",
        ),
    ] = None,
    feedback: Annotated[
        str, Option('With impacts: "rm3(terms=10, docs=10, weight=0.5)"; needs --index.')
    ] = "",
    index: Annotated[Path | None, Option("The index that was pushed; feedback reads its documents.")] = None,
    k: Annotated[int, Option("Documents per query.", least=1, flag="-k")] = 1000,
    documents: Annotated[
        Path | None, Option("Also write the run's documents, as JSON lines to be indexed.", "output")
    ] = None,
    tag: Annotated[str, Option("Name of the run, in its last column.")] = "rankhouse",
    out: Annotated[Path, Option("The run file to write.", "output")],
    compute: ComputeOptions,
) -> CommandResult:
    """Pull a run from a store: by impacts that were pushed, by vectors, or by the store's own text search.

    The store need not have been filled by rankhouse: name the fields that hold ids, titles, texts and vectors
    in its notation, as in  qdrant(URL, collection="c", key="doc_id", text="body", vector="minilm"). Of a
    --system, words are the impacts that were pushed, of the same model, and a ranker reads the store's texts.
    """
    whole = _whole(system, model, k)
    asked = read_queries(queries, field=field)
    started = time.perf_counter()
    with closing(open_store(store)) as source:
        held = Index.open(index) if index else None
        with console.progress("pulling", None, "work") as show:
            if whole is None:
                run = _lexical(model, feedback, held)(source, asked, k=k, progress=show)
            else:
                run = StoreExecution(source, asked, compute, held, progress=show).run(whole)
        found = () if documents is None else pull_documents(source, run)
        records = ({"id": one.id, "title": one.title, "text": one.text} for one in found)
        fetched = 0 if documents is None else write_lines(documents, records)
    write_run(run, out, tag)
    warn_of_empty(run, asked, "found nothing")
    seconds = time.perf_counter() - started
    facts = {"run": str(out), "queries": len(run), "rows": run.rows, "documents": fetched}
    facts |= {"without_results": [query_id for query_id in run if not run[query_id].doc_ids]}
    also = f", {counted(fetched, 'document')} to {documents}" if documents else ""
    message = f"{counted(len(run), 'query', 'queries')}, {counted(run.rows, 'row')} written to {out}{also}"
    return CommandResult(facts | {"seconds": round(seconds, 3)}, f"{message} in {seconds:.2f} s")


class StoreExecution(Execution):
    """Systems whose first stages a store answers, and whose rankers read the documents that it holds.

    Args:
        pushed: The index that was pushed, which feedback reads; None where there is none.
    """

    def __init__(
        self,
        store: Store,
        queries: Sequence[Query],
        compute: ComputeOptions,
        pushed: Index | None = None,
        progress: Progress = ignore,
    ) -> None:
        super().__init__(TextsAlone({}), queries, compute, progress)
        self._store, self._pushed = store, pushed

    def found(self, stage: FirstStage, k: int, show: Progress) -> Run:
        """Ask the store; WrongUse for what it does not hold."""
        store, queries = self._store, self.queries
        match stage:
            case Lexical():
                there = store.contents() if store.exists() else None
                if there is not None and there.impacts and not there.weigher:
                    held = notation.canonical(there.impacts, WEIGHTINGS, "model")
                    if held != stage.model:
                        raise WrongUse(f"{stage.model}: {store.name} holds impacts of {held}; write  {held}")
                feedback = as_given(stage.feedback)
                return pull_impacts(store, queries, k, feedback, index=self._pushed, progress=show)
            case Dense() if stage.name == "default" and stage.vectors == "exact":
                return pull_dense(store, queries, self.encoder(stage), k, progress=show)
            case Sparse() if stage.name == "default":
                spec = sparse_spec(stage.ranker)
                return pull_sparse(
                    store, queries, as_weigher(self.ranker(Stage(spec)), spec), k, progress=show
                )
        raise WrongUse(
            f"{stage}: a store holds one set of vectors and searches it in its own way; name the "
            "encoder alone"
        )

    def reranked(self, system: RerankedSystem, before: Run, show: Progress) -> Run:
        """Let a ranker read what was found, its texts pulled. Args: as for the base class."""
        read = before if system.stage.depth is None else before.top(system.stage.depth)
        self.documents = {one.id: one for one in pull_documents(self._store, read)}
        return super().reranked(system, before, show)


def _whole(text: str | None, model: str, k: int) -> System | None:
    """Return the system to pull by; None for impacts and texts as the store has them."""
    if text is not None:
        idle("--system says what ranks", "model", "feedback")
        whole = read_system(text) % k if was_given("k") else read_system(text)
    elif is_dense(model) or is_sparse(model):
        idle("lexical impacts have feedback, encoders have none", "feedback", "index")
        whole = cut(first_stage(model), k)
    else:
        idle("nothing is encoded", "precision", "device", "threads")
        return None
    if not any(isinstance(part, Lexical) and part.feedback for part in whole.walk()):
        idle("only feedback reads the index", "index")
    if not any(isinstance(part, Dense | Sparse | RerankedSystem) for part in whole.walk()):
        idle("nothing is encoded", "precision", "device", "threads")
    return whole


def _lexical(model: str, feedback: str, index: Index | None) -> Callable[..., Run]:
    """Return what pulls a run by impacts or text."""
    notation.choose(
        model, dict.fromkeys(("impacts", "text", "dense(RANKER)", "sparse(RANKER)")), "model of a store"
    )
    if model == "text":
        idle("the store's own search has no feedback here", "feedback", "index")
        return pull_text
    if not feedback:
        idle("only feedback reads the index", "index")
    if feedback and index is None:
        raise WrongUse(f"--feedback {feedback}: needs --index, whose documents it reads")
    return partial(pull_impacts, feedback=feedback, index=index)
