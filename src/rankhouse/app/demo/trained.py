"""The demo's trained row: a TK taught by the collection itself, without any judgement.

Nobody has judged enough questions to learn from, so the documentation asks itself: a docstring's first
sentence says in one line what the rest explains. The sentence becomes a pseudo-query, and the document
without its first sentence the one relevant document among those that BM25 finds for it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rankhouse.app import console
from rankhouse.app.rankers import ComputeOptions
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import scorer
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.ranking.fuse import linear, tune
from rankhouse.ranking.rerank import rerank
from rankhouse.ranking.rerank_plan import Plan
from rankhouse.training.tuning import cut_at

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.models.tk import TK
    from rankhouse.training.validation import Validation

QUERY_WORDS = (3, 20)
FEWEST_WORDS_LEFT = 8

_FIRST_ENDS = re.compile(r"(?<=[.!?])\s|\n\s*\n")


class Pseudo(NamedTuple):
    """Questions a collection asks itself.

    Attributes:
        queries: First sentences.
        documents: The documents without them, by id.
        qrels: Each query's own document.
    """

    queries: Sequence[Query]
    documents: dict[str, Document]
    qrels: Qrels


def pseudo_queries(documents: Iterable[Document]) -> Pseudo:
    """Take documents apart: the first sentence asks, the rest answers.

    A docstring's first sentence ends with its first full stop, question or exclamation mark before white
    space, or with its first empty line. Documents are left out whose first sentence has not 3 to 20 words,
    whose rest has fewer than 8, or whose first sentence another document has too.
    """
    queries: list[Query] = []
    answers: dict[str, Document] = {}
    seen: dict[str, int] = {}
    for document in documents:
        docstring, _, whereabouts = document.text.rpartition("\n\n")
        first, *rest = _FIRST_ENDS.split(docstring, maxsplit=1)
        left = " ".join(rest).strip()
        words = first.split()
        if not QUERY_WORDS[0] <= len(words) <= QUERY_WORDS[1] or len(left.split()) < FEWEST_WORDS_LEFT:
            continue
        asked = " ".join(words).rstrip(".")
        seen[asked.lower()] = seen.get(asked.lower(), 0) + 1
        queries.append(Query(document.id, asked))
        answers[document.id] = Document(document.id, f"{left}\n\n{whereabouts}", document.title)
    once = [query for query in queries if seen[query.text.lower()] == 1]
    return Pseudo(once, answers, {query.id: {query.id: 1} for query in once})


class Lesson(NamedTuple):
    """How the TK is taught; the differences from the paper are for the sake of a minute (docs/demo.md).

    Attributes:
        steps: Optimiser steps.
        batch: Contrasts a step.
        rate: Learning rate of the kernels' weights.
        slow: Learning rate of word vectors, encoder and mix.
        layers: Transformer layers.
        heads: Attention heads.
        words: Words of a document that are read.
        spread: Standard deviation that the start vectors are scaled to; GloVe's is about this.
        mix: The share of a word's own vector at the start, against its context.
        depth: Documents of the first stage that are reranked.
        held_out: Pseudo-queries to validate on.
    """

    steps: int = 150
    batch: int = 32
    rate: float = 1e-2
    slow: float = 1e-3
    layers: int = 1
    heads: int = 4
    words: int = 64
    spread: float = 0.3
    mix: float = 0.9
    depth: int = 100
    held_out: int = 100


LESSON = Lesson()


def taught_runs(
    index: Index,
    questions: Sequence[Query],
    first: Run,
    out: Path,
    vectors: Path | None,
    lesson: Lesson = LESSON,
    compute: ComputeOptions | None = None,
) -> dict[str, Run]:
    """Teach a TK and let it rerank the first stage, alone and interpolated.

    Args:
        index: The demo's index.
        questions: What is asked.
        first: The run to rerank.
        out: The training's folder; what was there is replaced.
        vectors: A folder with the word pieces' vectors to start from; None draws them.
        lesson: How.
        compute: How to compute.
    """
    shutil.rmtree(out, ignore_errors=True)
    asked = pseudo_queries(index.documents.stream())
    validation = _train(index, asked, out, vectors, lesson)
    ranker = _open(out, compute)
    plan = Plan(depth=lesson.depth)
    held_out = rerank(ranker, validation.run, validation.queries, asked.documents, plan)
    fusion, measure = linear("z-score"), scorer(validation.qrels, "RR@10")
    weights = tune([held_out, validation.run], measure, fusion).weights
    console.say(f"TK is weighed {weights[0]:g} against {weights[1]:g} for BM25, tuned on the held-out ones")
    top = first.top(lesson.depth)
    alone = rerank(ranker, top, questions, index.documents, plan)
    joined = fusion([alone, top], weights)
    return {
        "tk": cut_at(alone, first, lesson.depth),
        "tk+bm25": cut_at(joined, first, lesson.depth),
    }


def _train(index: Index, asked: Pseudo, out: Path, vectors: Path | None, lesson: Lesson) -> Validation:
    """Teach; gives the held-out pseudo-queries with their first stage."""
    from rankhouse.training.examples import from_judgements
    from rankhouse.training.fit import fit
    from rankhouse.training.settings import defaults
    from rankhouse.training.validation import Validation

    build(asked.documents.values(), out / "pseudo-index", BuildOptions(overwrite=True))
    first = retrieve(
        Index.open(out / "pseudo-index"), asked.queries, LexicalOptions("bm25(k1=0.9, b=0.4)", k=lesson.depth)
    )
    every = max(1, len(asked.queries) // lesson.held_out)
    held_out = asked.queries[::every]
    judged = {query.id: asked.qrels[query.id] for query in held_out}
    learned = [query for query in asked.queries if query.id not in judged]
    console.say(
        f"TK learns from {len(learned):,} first sentences and what their documents say besides; "
        f"{len(held_out)} more are held out"
    )
    examples = from_judgements(
        learned, asked.qrels, asked.documents, first.restrict([query.id for query in learned])
    )
    validation = Validation(first.restrict(judged), held_out, judged, asked.documents, Plan(depth=20))
    settings = defaults("tk").but(
        steps=lesson.steps,
        epochs=1 + lesson.steps * lesson.batch // max(1, len(learned)),
        batch=lesson.batch,
        rate=lesson.rate,
        rates=dict.fromkeys(("embedding", "encoder", "mix"), lesson.slow),
        schedule="constant",
        negatives="random",  # BM25's best share more words with a sentence than the text that has lost it
        validate_every=50,
        device="cpu",
    )
    model = _fresh(index, vectors, lesson)
    with console.progress("teaching a TK", lesson.steps) as show, _one_thread():
        fit(model, examples, settings, out / "training", validation, progress=show)
    return validation


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: the same numbers everywhere, and no waiting for threads on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fresh(index: Index, vectors: Path | None, lesson: Lesson) -> TK:
    """Begin a TK with word vectors large enough to be heard beside their context."""
    import torch

    from rankhouse.models.tk import TKDesign

    design = TKDesign(
        vectors=str(vectors or ""),
        min_count=2,
        layers=lesson.layers,
        heads=lesson.heads,
        passage_length=lesson.words,
    )
    model = design.fresh((document.full_text for document in index.documents.stream()), seed=0)
    with torch.no_grad():
        words = model.embedding.weight
        words.mul_(lesson.spread / words[2:].std())
        model.mix.fill_(lesson.mix)
    return model


def _open(out: Path, compute: ComputeOptions | None) -> NeuralRanker:
    from rankhouse.app.rankers import open_ranker

    return open_ranker(str(out / "training"), compute or ComputeOptions("fp32", "cpu"))
