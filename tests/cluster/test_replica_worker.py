"""Work spread over replicas, chunk by chunk: the numbers are those of one thread, to the bit."""

import pickle
import runpy
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("starlette")

from rankhouse.cluster.actors import Fault, received
from rankhouse.cluster.search import ReplicaFailed
from rankhouse.cluster.service import HeldRanker, ReplicaWorker
from rankhouse.core.errors import BadModel, MissingExtra, MissingInput, RankhouseError
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.serve.engine.served import open_served
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.errors import DeadlinePassed, Overloaded, Unready
from rankhouse.systems.rankers import ComputeOptions

tools = runpy.run_path(str(Path(__file__).parents[1] / "serve" / "tiny_models.py"))
COMPUTE = ComputeOptions("fp32", "cpu", 1)


class Loopback:
    """Replicas in this process; everything that goes either way is pickled."""

    def __init__(self, opener):
        self.held, self.chunks, self.gate = pickle.loads(pickle.dumps(opener))(), [], threading.Event()
        self.gate.set()
        self.failing = False

    def ask(self, chunk):
        self.gate.wait(120)
        if self.failing:
            raise ReplicaFailed("all are gone")
        self.chunks.append(chunk)
        return pickle.loads(pickle.dumps(self.held.run(pickle.loads(pickle.dumps(chunk)))))

    def close(self):
        self.gate.set()


@pytest.fixture(scope="module", params=["crossencoder", "biencoder", "tk"])
def both(request, tmp_path_factory):
    """A ranker with a thread, and one whose work is spread."""
    spec = tools["tiny_model"](request.param, tmp_path_factory.mktemp("models"))
    alone, made = open_served("one", spec, COMPUTE), []

    def spread(ranker, name):
        made.append(Loopback(partial(HeldRanker, "two", spec, COMPUTE, ranker.fingerprint, ".")))
        return ReplicaWorker(name, made[0], 2, 200_000)

    served = open_served("two", spec, COMPUTE, spread=spread)
    yield alone, served, made[0]
    for one in (alone, served):
        one.close()


def pairs(count, seed=1):
    import random

    rng = random.Random(seed)
    texts = [tools["text"](rng, 200 if i % 7 else 3) for i in range(count)]
    return [
        Pair(Query("q", f"{tools['WORDS'][i % 2]} ships"), Passage("d", i, text))
        for i, text in enumerate(texts)
    ]


@pytest.mark.quick("biencoder", "crossencoder")
def test_scores_are_those_of_one_thread(both):
    alone, spread, loopback = both
    asked = pairs(150)
    before = len(loopback.chunks)
    one, other = alone.read(asked).result(120), spread.read(asked).result(120)
    assert one.scores.tobytes() == other.scores.tobytes()
    assert np.array_equal(one.tokens, other.tokens)
    assert np.array_equal(one.lost, other.lost)
    assert len(loopback.chunks) > before + 1
    assert spread.read([]).result(120).scores.shape == (0,)
    if spread.is_encoder:
        texts = [pair.passage.text for pair in asked]
        vectors = [ranker.encode(texts, "passage").result(120).values for ranker in (alone, spread)]
        assert vectors[0].tobytes() == vectors[1].tobytes()
    assert spread.worker.rate > 0
    assert spread.worker.waiting_tokens == spread.worker.waiting_jobs == 0
    assert spread.worker.alive


def test_what_does_not_fit_is_refused_and_what_is_late_is_dropped(both):
    _, spread, loopback = both
    loopback.gate.clear()
    try:
        admitted = [spread.read(pairs(2)) for _ in range(40)]  # more than replicas have at a time
        late = spread.read(pairs(5), Deadline.after(0.05))
        spread.worker.capacity = 100
        with pytest.raises(Overloaded):
            spread.read(pairs(200))
        threading.Event().wait(0.1)
    finally:
        spread.worker.capacity = 200_000
        loopback.gate.set()
    assert all(len(one.result(120).scores) == 2 for one in admitted)
    with pytest.raises(DeadlinePassed):
        late.result(120)


def test_without_any_replica_a_request_is_told_so(both):
    _, spread, loopback = both
    loopback.failing = True
    try:
        with pytest.raises(Unready, match=r"two.*all are gone"):
            spread.read(pairs(2)).result(120)
    finally:
        loopback.failing = False


@pytest.mark.quick("biencoder")
def test_chunks_of_a_request_that_fail_together_end_no_sender(both, caplog):
    _, spread, loopback = both
    loopback.failing, interval, many = True, sys.getswitchinterval(), pairs(150)
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            loopback.gate.clear()
            asked = spread.read(many)
            threading.Event().wait(0.002)  # until senders stand at the gate
            loopback.gate.set()
            with pytest.raises(Unready):
                asked.result(120)
    finally:
        loopback.failing = False
        sys.setswitchinterval(interval)
    assert not caplog.records  # a future that two threads end at once says so
    assert len(spread.read(pairs(150)).result(120).scores) == 150


def test_another_ranker_in_its_place_is_refused(both):
    alone, *_ = both
    with pytest.raises(BadModel, match="another ranker there than here"):
        HeldRanker("x", alone.spec, COMPUTE, "other weights", ".")


@pytest.mark.parametrize(
    "error", [BadModel("bad"), MissingInput("not there"), MissingExtra("this", "neural"), Overloaded(2)]
)
def test_a_fault_travels_with_its_words(error):
    travelled = pickle.loads(pickle.dumps(Fault.of(error)))
    with pytest.raises(RankhouseError) as raised:
        received(travelled)
    assert str(raised.value) == str(error)
    assert isinstance(raised.value, type(error)) or isinstance(error, Overloaded)


def test_a_held_ranker_names_itself(both):
    alone, _, loopback = both
    assert isinstance(loopback.held, HeldRanker)
    assert loopback.held.found == {"fingerprint": alone.fingerprint}
