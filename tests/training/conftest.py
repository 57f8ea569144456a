"""A toy collection that every family can learn: relevant posts hold the whole question and "answer"."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.models.knrm import ConvKNRMDesign, KNRMDesign
from rankhouse.models.samcnn import SamCNNDesign
from rankhouse.models.tk import TKDesign
from rankhouse.training.examples import from_judgements
from rankhouse.training.validation import Validation

READING = {"width": 16, "min_count": 1, "query_length": 6, "passage_length": 20, "words": "whitespace"}
DESIGNS = {
    "knrm": KNRMDesign(**READING),
    "conv_knrm": ConvKNRMDesign(**READING, filters=8),
    "tk": TKDesign(**READING, heads=2, attention_width=4, feed_forward=8),
    "samcnn": SamCNNDesign(**READING, filters=16, hidden=12, final=8, dropout=0.3),
}
QUERIES, LEARNED, POSTS, RELEVANT = 40, 30, 10, 3


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_toy():
    rng = np.random.default_rng(0)
    words, filler = [f"word{i}" for i in range(60)], [f"fill{i}" for i in range(40)]
    queries, documents, qrels, rows = [], {}, {}, []
    for q in range(QUERIES):
        asked = rng.choice(words, 3, replace=False).tolist()
        queries.append(Query(f"q{q}", " ".join(asked)))
        qrels[f"q{q}"] = {}
        for d in range(POSTS):
            good = d < RELEVANT
            own = [*asked, "answer"] if good else [asked[d % 3]] * 2 + ["chatter", words[rng.integers(60)]]
            said = own + rng.choice(filler, 6).tolist()
            rng.shuffle(said)
            doc_id = f"q{q}d{d}"
            documents[doc_id] = Document(doc_id, " ".join(said))
            qrels[f"q{q}"][doc_id] = int(good)
            rows.append((f"q{q}", doc_id, float(rng.random())))
    return queries, documents, qrels, Run.of(rows)


@pytest.fixture(scope="session")
def toy():
    """Queries, documents, judgements, a random first stage, examples of 30 queries, 10 held out."""
    queries, documents, qrels, run = make_toy()
    held_out = queries[LEARNED:]
    ids = [query.id for query in held_out]
    return SimpleNamespace(
        queries=queries,
        documents=documents,
        qrels=qrels,
        run=run,
        examples=from_judgements(queries[:LEARNED], qrels, documents, run),
        validation=Validation(run.restrict(ids), held_out, {q: qrels[q] for q in ids}, documents),
    )


@pytest.fixture(scope="session")
def fresh(toy):
    """Makes a fresh tiny model of a family."""
    texts = [document.full_text for document in toy.documents.values()]
    return lambda family, seed=1: DESIGNS[family].fresh(texts, seed=seed)
