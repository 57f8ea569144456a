"""A served ranker gives the scores of the ranker itself, to the bit, whatever else is asked beside it."""

import random
import threading
import time

import numpy as np
import pytest
import torch

from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.core.run import Run
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.serve.engine.choice import choose
from rankhouse.serve.engine.served import open_served
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.errors import DeadlinePassed, NotThisModel, UnknownName
from rankhouse.systems.rankers import ComputeOptions, open_ranker

KINDS = ("crossencoder", "biencoder", "monot5", "tk")


def make_pairs(tiny, n, seed):
    rng = random.Random(seed)
    query = Query("q", tiny.text(rng, 6))
    return [Pair(query, Passage(f"d{i}", 0, tiny.text(rng, 80))) for i in range(n)]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def offline(tiny, kind):
    return open_ranker(tiny.tiny_model(kind, tiny.folder), ComputeOptions("fp32", "cpu", 1))


@pytest.mark.quick("biencoder")
def test_many_requests_at_once_get_the_offline_scores(tiny, served, kind, offline):
    requests = [make_pairs(tiny, n, seed) for seed, n in enumerate([1, 2, 3, 5, 8, 40, 300, 1, 60, 7])]
    one = served(kind)
    readings = [None] * len(requests)

    def ask(i):
        readings[i] = one.read(requests[i]).result(120)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pairs, reading in zip(requests, readings, strict=True):
        assert np.array_equal(reading.scores, offline.score(pairs))
        assert (reading.tokens > 0).all()
    assert one.worker.waiting_tokens == one.worker.waiting_jobs == 0


@pytest.mark.quick("crossencoder", "biencoder")
def test_reranking_through_it_is_reranking(tiny, served, kind, offline):
    rng = random.Random(3)
    documents = {f"d{i}": Document(f"d{i}", tiny.long_text(rng, rng.randint(1, 60))) for i in range(20)}
    run = Run.of({"q": {name: 1.0 / (i + 1) for i, name in enumerate(documents)}})
    one = served(kind)
    plan = Plan(split=one.split, pool=one.pool)
    queries = [Query("q", tiny.text(rng, 5))]
    online = rerank(one.blocking(), run, queries, documents, plan)
    assert online.to_dict() == rerank(offline, run, queries, documents, plan).to_dict()


def test_no_pairs_no_scores(served, kind):
    assert served(kind).read([]).result(120).scores.shape == (0,)


def test_it_warms_up(served, kind):
    one = served(kind)
    one.warm()
    assert one.worker.rate > 0
    assert one.end_of_tokens("", 1) == 0
    assert one.end_of_tokens("storm storm", 1) < len("storm storm")


def test_how_long_texts_are_read_is_the_bundles_or_the_kinds(served):
    assert (str(served("tk").split), str(served("tk").pool)) == ("words(40)", "top(2)")
    assert (str(served("monot5").split), str(served("monot5").pool)) == ("sentences(10, 5)", "max")


def test_what_was_lost_of_a_text_is_said(tiny, served):
    reading = (
        served("crossencoder").read([Pair(Query("q", "storm"), Passage("d", 0, "harbour " * 500))]).result()
    )
    assert reading.tokens.tolist() == [64]
    assert reading.lost[0] >= 400


def test_vectors_are_the_encoders_own(tiny, served):
    offline = open_ranker(tiny.tiny_model("biencoder", tiny.folder), ComputeOptions("fp32", "cpu", 1))
    texts = [tiny.text(random.Random(i), 50) for i in range(70)]
    one = served("biencoder")
    assert np.array_equal(one.encode(texts, "query").result().values, offline.encode_queries(texts))
    assert np.array_equal(one.blocking().encode_passages(texts), offline.encode_passages(texts))
    with pytest.raises(NotThisModel, match="gives no vectors"):
        served("monot5").encode(texts, "query")


def test_a_text_that_no_tokenizer_reads_spoils_only_its_own_score(tiny, served, kind, offline):
    pairs = make_pairs(tiny, 30, 1)
    pairs[7] = Pair(pairs[7].query, Passage("bad", 0, "lone \ud800 surrogate"))
    scores = served(kind).read(pairs).result(120).scores
    others = [pair for i, pair in enumerate(pairs) if i != 7]
    assert np.array_equal(np.delete(scores, 7), offline.score(others))
    if kind != "tk":  # whose words are split in Python
        assert np.isnan(scores[7])
        assert served(kind).blocking().score(pairs).argmin() == 7


def test_a_row_that_the_model_fails_at_spoils_only_its_own_score(tiny, served, monkeypatch):
    one = served("crossencoder")
    compute = one._pairs.compute

    pairs = make_pairs(tiny, 40, 5)
    batch = one.ranker.model.encode(pairs)
    rows = [row.tolist() for row in torch.split(batch.ids.values, batch.lengths.tolist())]
    poison = rows[3][-2]
    doomed = [i for i, row in enumerate(rows) if poison in row]

    def failing(batch):
        if (batch.ids.values == poison).any():
            raise RuntimeError("this row")
        return compute(batch)

    assert 0 < len(doomed) < 40
    monkeypatch.setattr(one, "_pairs", type(one._pairs)(one._pairs.encode, failing))
    scores = one.read(pairs).result(120).scores
    assert np.flatnonzero(np.isnan(scores)).tolist() == doomed


def test_a_deadline_ends_the_wait(tiny, served):
    one = served("crossencoder")
    release = threading.Event()
    one.call(release.wait)
    future = one.read(make_pairs(tiny, 3, 1), Deadline.after(0.05))
    with pytest.raises(DeadlinePassed):
        one.blocking(Deadline.after(0.05)).score(make_pairs(tiny, 3, 2))
    release.set()
    with pytest.raises(DeadlinePassed):
        future.result(120)
    assert settled(one.worker)


def test_cancelled_work_is_dropped(tiny, served):
    one = served("crossencoder")
    release = threading.Event()
    one.call(release.wait)
    future = one.read(make_pairs(tiny, 500, 1))
    assert one.worker.waiting_tokens > 0
    assert future.cancel()
    release.set()
    assert settled(one.worker)


def until(true):
    """Wait for something; the limit is for a hang."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def settled(worker):
    until(lambda: worker.waiting_jobs == 0)
    return worker.waiting_jobs == worker.waiting_tokens == 0


def test_what_is_called_is_answered_or_fails_alone(served):
    one = served("tk")
    assert one.call(lambda: threading.current_thread().name).result(120) == "model-tk"
    with pytest.raises(ZeroDivisionError):
        one.call(lambda: 1 / 0).result(120)
    assert one.worker.alive


def test_names(served):
    rankers = {name: served(name) for name in ("biencoder", "monot5")}
    assert choose(rankers).name == "monot5"
    assert choose(rankers, encoder=True).name == "biencoder"
    assert choose(rankers, "biencoder").name == "biencoder"
    with pytest.raises(UnknownName, match='did you mean "monot5"'):
        choose(rankers, "mono-t5")
    with pytest.raises(NotThisModel):
        choose(rankers, "monot5", encoder=True)
    with pytest.raises(NotThisModel, match="no model that gives vectors"):
        choose({"monot5": served("monot5")}, encoder=True)


def test_a_closed_one_refuses(tiny):
    from rankhouse.serve.errors import Unready

    one = open_served("tk", tiny.tiny_model("tk", tiny.folder), ComputeOptions("fp32", "cpu", 1))
    release = threading.Event()
    one.call(release.wait)
    late = one.read(make_pairs(tiny, 3, 1))
    closing = threading.Thread(target=one.close)
    closing.start()
    until(lambda: not one.worker.alive)
    release.set()
    closing.join()
    with pytest.raises(Unready):
        late.result(120)
    with pytest.raises(Unready):
        one.read(make_pairs(tiny, 3, 1))
