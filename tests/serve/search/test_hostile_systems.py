"""Whatever a client writes into a system of its own is answered or refused, never a fault of the service."""

import itertools
import math

import pytest

from rankhouse.core.errors import RankhouseError
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.shapes import ExplainBody, SearchBody
from rankhouse.serve.search.why import explain

MODELS = [
    "",
    "bm25",
    "bm25()",
    "bm25(k1=1e308)",
    "bm25(k1=-1)",
    "bm25(k1=float('nan'))",
    "bm25(b=7)",
    "bm25(x=1)",
    "bm25(",
    "ql(mu=0)",
    "ql(mu=-5)",
    "ql(mu=1e300)",
    "jm(lambda=0)",
    "jm(lambda=1)",
    "jm(lambda=2)",
    "jm(lambda='a')",
    "dense",
    "dense()",
    "dense('bi')",
    "dense('bi', name='../..')",
    "dense('bi', name='other')",
    "dense('bi', vectors='hnsw')",
    "dense('bi', vectors='/etc')",
    "dense('cross')",
    "dense('../../etc')",
    "dense(dense)",
    "dense('bi'" * 40,
    "__import__('os').system('true')",
    "bm25" * 3_000,
    "(" * 900,
    "bm25(k1=1" + "0" * 5_000 + ")",
    "\x00",
    "bm25\n",
]
FEEDBACKS = [
    "rm3",
    "rm3(terms=0)",
    "rm3(terms=1000000000)",
    "rm3(docs=0)",
    "rm3(docs=10000000)",
    "rm3(weight=7)",
    "rm4",
    "rm3(weight=float('inf'))",
    "rm3(terms='a')",
]
FUSIONS = [
    "rrf",
    "rrf(k=0)",
    "rrf(k=-1)",
    "rrf(k=1e308)",
    "linear",
    "linear('nope')",
    "linear('raw', missing='no')",
    "combmnz",
    "greedy",
    "best",
    "rrf(rrf)",
]
SPLITS = [
    "whole",
    "whole(1)",
    "words(1)",
    "words(0)",
    "words(1000000000)",
    "sentences(1, 1, max_chars=0)",
    "sentences(1, 1, max_chars=1)",
    "sentences(5, 10)",
    "windows(1, 1, limit=1)",
    "windows(2, 1, limit=2)",
    "sentences(find=print)",
    "nope",
]
POOLS = [
    "max",
    "first",
    "mean",
    "sum",
    "top(0)",
    "top(100000)",
    "top(2)",
    "weighted",
    "weighted([1])",
    "sum(scale='probability')",
    "mean(scale='nope')",
    "nope",
]
QUERIES = ["pilots steer ships", "the", "?", "\x00\x01", "👍🏽 ships", "ships " * 3_000, "؀؁", "a" * 9_000]


def answered(call, request, service):
    """Whether a request is answered; else it is refused."""
    try:
        call(service.catalogue, request)
    except RankhouseError:
        return False
    return True


def systems():
    """Systems with one strange part each, as fields of a question."""
    yield from ({"models": [model]} for model in MODELS)
    yield from ({"models": ["bm25", model], "ranker": "tk", "depth": 3} for model in MODELS[:8])
    yield from ({"feedback": feedback} for feedback in FEEDBACKS)
    yield from ({"models": ["bm25", "ql"], "fusion": fusion} for fusion in FUSIONS)
    both = ["bm25", "dense('bi')"]
    yield from ({"models": both, "fusion": fusion, "ranker": "tk", "depth": 5} for fusion in FUSIONS)
    for ranker, split in itertools.product(("cross", "tk"), SPLITS):
        yield {"ranker": ranker, "split": split, "depth": 4}
    for ranker, pool in itertools.product(("cross", "bi"), POOLS):
        yield {"ranker": ranker, "pool": pool, "depth": 4}
    for weights in ([], [1.0], [0.0, 0.0], [-1.0, 1.0], [math.inf, 1.0], [1e308, 1e308], [1.0, 2.0]):
        yield {"models": ["bm25", "ql"], "fusion": "linear", "weights": weights}
    yield from ({"ranker": "cross", "depth": depth} for depth in (0, 1, 1000))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_systems_of_ones_own_are_answered_or_refused(service):
    asked = [SearchBody(query="high water", k=3, **own) for own in systems()]
    done = [answered(search, request, service) for request in asked]
    assert 40 < sum(done) < len(done)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_so_are_their_explanations(service):
    document = search(service.catalogue, SearchBody(query="high water", system="bm25")).hits[0].doc_id
    asked = [ExplainBody(query="high water", document=document, passes=4, **own) for own in systems()]
    done = [answered(explain, request, service) for request in asked]
    assert 30 < sum(done) < len(done)


@pytest.mark.quick("bm25*", "hybrid", "dense")
@pytest.mark.parametrize("system", ["bm25", "bm25+rm3", "ql", "dense", "hybrid", "cross", "tk", "tk+bm25"])
def test_strange_questions_are_answered(service, system):
    for query in QUERIES:
        assert answered(search, SearchBody(query=query, system=system, k=3), service)
        answered(explain, ExplainBody(query=query, document="d01", system=system, passes=4), service)
