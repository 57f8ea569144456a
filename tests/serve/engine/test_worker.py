"""The worker alone: turns, batches, admission; the work is a sum that takes as long as it is told."""

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from rankhouse.nn.layers.ragged import Packed, Ragged
from rankhouse.serve.engine.jobs import ModelWork
from rankhouse.serve.engine.worker import ModelWorker
from rankhouse.serve.errors import Overloaded


def encode(items):
    rows = Ragged.of([[value] * length for value, length in items])
    return Packed(rows, torch.zeros(len(items), dtype=torch.int64))


@dataclass
class Slow:
    """Work that notes its batches and waits for a gate."""

    gate: threading.Event
    batches: list
    begun: threading.Event = field(default_factory=threading.Event)

    def __call__(self, batch):
        self.begun.set()
        self.gate.wait(120)
        self.batches.append(batch)
        return batch.ids.pad().float().sum(1).numpy()


@pytest.fixture
def slow():
    return Slow(threading.Event(), [])


@pytest.fixture
def worker():
    worker = ModelWorker("sums", capacity=10_000)
    yield worker
    worker.close()


def ask(worker, work, n, length=10, value=1):
    sizes = np.full(n, length, np.int64)
    return worker.submit(work, [(value, length)] * n, sizes)


def test_requests_are_joined_into_batches(worker, slow):
    work = ModelWork(encode, slow)
    futures = [ask(worker, work, 4, value=i) for i in range(20)]
    slow.gate.set()
    for i, future in enumerate(futures):
        assert future.result(120).values.tolist() == [10.0 * i] * 4
    assert len(slow.batches) <= 3  # the first alone, while the others arrive


def test_a_large_request_delays_a_small_one_by_no_more_than_a_batch(worker, slow):
    work = ModelWork(encode, slow)
    worker.rate = 1e6  # else how long the gate is shut would say how much a batch holds
    large = ask(worker, work, 5_000, value=1)
    slow.begun.wait(120)
    small = ask(worker, work, 5, value=2)
    slow.gate.set()
    small.result(120)
    places = [i for i, batch in enumerate(slow.batches) if (batch.ids.values == 2).any()]
    assert places == [1]
    assert large.result(120).values.sum() == 50_000


def test_memory_of_a_large_request_is_bounded(worker, slow):
    work = ModelWork(encode, slow)
    ask(worker, work, 100_000)
    time.sleep(0.3)
    job = next(iter(worker._jobs))
    assert job.ready_size <= 2 * 2_048 + worker.batch_tokens
    slow.gate.set()


def test_too_much_is_refused_at_once_and_a_large_request_is_not(worker, slow):
    work = ModelWork(encode, slow)
    first = ask(worker, work, 100_000)  # a hundred times the room, and nothing else waits
    second = ask(worker, work, 400)  # the large one leaves half of the room to others
    with pytest.raises(Overloaded) as refused:
        ask(worker, work, 400)
    assert refused.value.retry_after > 0
    slow.gate.set()
    assert len(first.result(120).values) == 100_000
    assert len(second.result(120).values) == 400


def test_kinds_of_work_are_not_mixed_and_calls_come_in_turn(worker, slow):
    doubled = Slow(slow.gate, [])
    order = []
    futures = [ask(worker, ModelWork(encode, kind), 3, value=2) for kind in (slow, doubled, slow)]
    call = worker.call(lambda: order.append("called"))
    slow.gate.set()
    call.result(120)
    assert [len(future.result(120).values) for future in futures] == [3, 3, 3]
    assert order == ["called"]


def test_an_observer_is_told_of_batches_and_times(worker, slow):
    class Notes(list):
        def batch(self, *seen, seconds):
            self.append((*seen, seconds))

        def job(self, *seen):
            self.append(seen)

    worker.observer = notes = Notes()
    slow.gate.set()
    ask(worker, ModelWork(encode, slow), 3).result(120)
    ends = time.monotonic() + 120
    while len(notes) < 2 and time.monotonic() < ends:  # the second comes after the answer
        time.sleep(0.01)
    batch, job = notes
    assert batch[:4] == ("sums", 3, 30, 0)
    assert job[1].computing > 0
